"""The RESP error of each code of core and tubes, and of each fault of a command's words."""

from __future__ import annotations

from typing import Final

from tuque.core.model import errors as core
from tuque.core.model.errors import Refusal
from tuque.core.queues.procedures import check
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.tubes.model import errors as why
from tuque.tubes.model.errors import TubeError
from tuque.wire.proto.iproto import (
    E_NO_ROLE,
    E_NO_USER,
    E_PROC,
    E_READ_ONLY,
    IprotoError,
)

# ---- The text of each code in tubes/model/errors.py, for RESP and for IPROTO.
#
# RESP clients get a first word before the text (T15.5), IPROTO clients a number beside it (T13).


LEAVING_TEXT: Final = b"This node is leaving the cluster, please connect to a different one"
LEAVING: Final = b"LEAVING " + LEAVING_TEXT
CONFLICT_TEXT: Final = (
    b"another node has the id of this one: stop one of the two, move its nodes.conf and its "
    b"journal away, and start it again"
)
CONFLICT: Final = b"CONFLICT " + CONFLICT_TEXT
PAUSED_TEXT: Final = b"Queue paused in input, try later"
NOREPL_TEXT: Final = b"Not enough reachable nodes for the requested replication level"
READ_ONLY: Final = b"Can't modify data because this instance is in read-only mode"

TEXTS: Final[dict[int, bytes]] = {
    why.NOT_TAKEN: b"Task was not taken",
    why.NOT_FOUND: b"Task %d not found",
    why.NO_TOUCH: b"%s queue does not support touch",
    why.CONSUMERS: b"There are consumers connected the tube",
    why.TAKEN_TASKS: b"There are taken tasks in the tube",
    why.NO_TUBE: b"Tube not found",
    why.UNKNOWN_TYPE: b"Unknown tube type %s",
    why.EXISTS: b"Space '%s' already exists",
    why.TUBES_MAX: b"%d tubes exist, and tubes-max is %d: drop unused tubes",
    why.MANY_GRANTS: b"there are %d grants, the most a node keeps: revoke some, or use roles",
    why.OTHER_TYPE: b"Tube '%s' exists with the type %s",
    why.TEMPORARY: b"Cannot create temporary tube in replicaset mode",
    why.NO_VINYL: b"limfifottl queue does not support vinyl engine",
    why.NO_VINYL_BUFFER: b'"ready_buffer" storage mode cannot be used with vinyl engine',
    why.NO_ENGINE: b"Space engine '%s' does not exist",
    why.BAD_UUID: b"Invalid UUID format.",
    why.UNKNOWN_UUID: b"The UUID %s is unknown.",
    why.BAD_TTR: b"Invalid value of ttr: %d",
    why.OVERRIDING: b'overriding registered driver "%s"',
    why.NO_DRIVER: b"no package of this server has a driver named '%s'",
    why.NO_DRIVER_CLASS: b"the driver '%s' makes no tuque.tubes.driver.Driver",
    why.EMPTY_NAME: b"Invalid identifier '' (expected printable symbols only or it is too long)",
    why.LONG_NAME: b"Failed to create space '%s': space name is too long",
    why.LONG_OPTION: b"Options of tubes are at most 255 bytes",
    why.DOTTED: b"Tube '%s' cannot be called over IPROTO: its name has a dot or a colon",
    why.PAUSED: PAUSED_TEXT,
    why.MOVED: b"Tube '%s' has its leader there",
    why.NO_QUORUM: b"Tube '%s': this node reaches %d of %d nodes",
    why.NOT_YET: b"Tube '%s' is %s here: try again soon",
    why.STOOD: (
        b"Tube '%s': this node stood still for %d ms and waits for a reply of the others; "
        b"if they are lost for good, run here: TUBE HOME '%s' %s FORCE"
    ),
    why.STOOD_MEANWHILE: b"this node stood still meanwhile: nothing was done, try again",
    why.LOST: (
        b"Tube '%s' was led here, and this node has lost it: TUBE HOME '%s' <node> FORCE "
        b"makes another replica the leader"
    ),
    why.NODE_READ_ONLY: b"This node is read-only: CONFIG SET read-only no, or use another node",
    why.NOREPL: NOREPL_TEXT,
    why.TEMPORARY_SYNC: b"a temporary tube has no copies: SYNC must be 1",
    why.BAD_SYNC: b"SYNC must be from 1 to the number of nodes, which is %d",
    why.NO_NODE: b"no node of the cluster has that name, or it is not reachable",
    why.NO_HOME_THERE: (
        b"that node cannot lead the tube: it is read-only, is leaving, or has another tube of "
        b"that name"
    ),
    why.NO_TYPE_THERE: (
        b"node %s lacks the type '%s' of tube '%s', which stays: install its package there "
        b"and run there TUBE REGISTERDRIVER '%s', or choose another node"
    ),
    why.FAILED_THERE: (
        b"on node %s the driver of type '%s' of tube '%s', which stays, has failed: INFO of "
        b"the tube says why there; fix it and restart that node, or choose another node"
    ),
    why.BY_VOTE: (
        b"votes choose the leader of tube '%s': FORCE is for a tube of which no voter has all, "
        b"once a majority of the voters has been here for %d s and has chosen none"
    ),
    why.OTHER_VOTERS: b"the voters of another list choose the leader of tube '%s'",
    why.NO_VOTES_YET: (b"no majority has voted for this node yet: it asks again, see TUBE HOME %s"),
    why.NO_VOTERS: (
        b"votes choose the leader only where a list of voters is in force, which three nodes or "
        b"more make, and never that of a temporary tube"
    ),
    why.NO_LIST: b"there is no list of voters: three nodes or more with tube-failover yes make one",
    why.NO_VOTE_HERE: b"this node does not vote: use a voter, CLUSTER VOTERS shows them",
    why.LIST_CHANGING: b"the list of voters is changing already, see CLUSTER VOTERS",
    why.CANNOT_VOTE: b"node %s cannot vote: it is not linked here, or does not know the list",
    why.JOURNAL_IS_OFF: (
        b"node %s has no journal, so its votes would not last: run CONFIG SET appendonly yes on it "
        b"first"
    ),
    why.JOURNAL_FAILS: (
        b"the journal of node %s cannot be written: see journal_error in INFO there; it works "
        b"again by itself once its disk has room"
    ),
    why.OWN_JOURNAL: (
        b"the journal of this node cannot be written, so that other nodes may not get its "
        b"messages: see journal_error in INFO; try again when it works"
    ),
    why.IS_NO_VOTER: b"node %s is no voter",
    why.LAST_VOTER: b"that is the last voter",
    why.UNSETTLED: b"the list stays: no majority has all of tube '%s' under the present one yet",
    why.LIST_LATE: b"a majority of the voters did not answer in time: see CLUSTER VOTERS",
    why.NAME_THIS_NODE: b"name this node too: the voters must be here",
    why.MAJORITY_HERE: b"a majority of the voters is here: use CLUSTER VOTERS REMOVE and ADD",
    why.NAME_ALL_HERE: b"node %s is here and can vote: name it too",
    why.NO_MAJORITY_HERE: (
        b"%d of %d voters are here and can vote, which is no majority: see CLUSTER VOTERS; if the "
        b"others are lost for good, use CLUSTER VOTERS FORCE"
    ),
    why.NO_MAJORITY_LEFT: (
        b"without node %s too few of the voters left are here and can vote: see CLUSTER VOTERS; "
        b"if others are lost for good, use CLUSTER VOTERS FORCE"
    ),
    why.NO_SCHEDULES: b"tube '%s' has no schedules: they need a tube of type tasks that stays",
    why.NO_SCHEDULE: b"tube '%s' has no schedule '%s'",
    why.MANY_SCHEDULES: b"tube '%s' has %d schedules, the most that a tube keeps",
    why.IS_SCHEDULE: b"task %d is a schedule: use SCHEDULE PAUSE",
    why.NO_LIMITS: b"'%s' has no limits: they need a tube of type tasks",
    why.NO_GROUPS: b"tube '%s' has no groups: they need a tube of type tasks that stays",
    why.NO_GROUP: b"tube '%s' has no group '%s'",
    why.MANY_GROUPS_OF_JOBS: b"tube '%s' has %d groups, the most that a tube keeps",
    why.BAD_INDEX: b"the children of group '%s' have the indexes 0 to %d",
    why.IS_MEMBER: b"task %d belongs to a group: use GROUP CANCEL",
    why.IS_KEY: b"task %d keeps a UNIQUE key: delete it to free the key",
    why.NO_CAPACITY: (
        b"tube '%s': the type tasks has no capacity, use MAXLEN of ADDJOB, which refuses what is "
        b"too much"
    ),
    why.MOVING: b"the leader of tube '%s' is changing already",
    why.MOVE_BROKEN: b"the link to the new leader broke: tube '%s' stays",
    why.MOVE_SLOW: b"the new leader did not get all of tube '%s' within %d s: it stays",
    why.MOVE_UNSURE: b"tube '%s' was handed to its new leader, which has not replied yet",
    why.MOVE_ENDED: b"the leader of tube '%s' changed meanwhile",
    why.HOME_ALIVE: b"the leader of tube '%s' is reachable: run TUBE HOME on it",
    why.FEW_NODES: b"this node reaches %d of %d nodes, and needs more than half of them",
    why.LATER_COPY: b"node %s has a later copy of tube '%s'",
    why.NOT_LOADED: b"the %s '%s' cannot be loaded: %s",
    why.LATE: b"done here, but not yet on %d nodes: do not repeat it",
    why.LEAVING: LEAVING_TEXT,
    why.NO_CALLBACK: b"this server has no callback named '%s'",
    why.NO_USER: b"User '%s' is not found",
    why.NO_ROLE: b"Role '%s' is not found",
    why.NO_RETRY_0: b"'%s' is a tube: its tasks come back, RETRY is 1 or more",
    why.NO_COPIES: b"'%s' is a tube: SYNC says which copies count, REPLICATE is 1",
    why.NO_OPTION: b"'%s' is a tube of type %s: it has no %s",
}

# [T13.3] texts for RESP where the module's words mean nothing to its clients
OF_RESP: Final[dict[int, bytes]] = {
    why.EXISTS: (
        b"a tube or a queue '%s' already exists: choose another name, "
        b"or first drop the tube or end the jobs of the queue"
    ),
    why.NO_ENGINE: b"ENGINE must be memtx or vinyl, which mean the same here, not '%s'",
    why.EMPTY_NAME: b"the name of a tube has 1 to 512 bytes",
    why.LONG_NAME: b"the name of a tube has 1 to 512 bytes, '%s' is too long",
}

# [T15.5] first words other than ERR
FIRST: Final[dict[int, bytes]] = {
    why.NOT_TAKEN: b"NOTTAKEN",
    why.NOT_FOUND: b"NOTASK",
    why.NO_TUBE: b"NOTUBE",
    why.NO_SCHEDULES: b"NOTUBE",
    why.NO_LIMITS: b"NOTUBE",
    why.NO_SCHEDULE: b"NOSCHEDULE",
    why.IS_SCHEDULE: b"WRONGTUBE",
    why.NO_GROUPS: b"NOTUBE",
    why.NO_GROUP: b"NOJOBGROUP",
    why.IS_MEMBER: b"WRONGTUBE",
    why.IS_KEY: b"WRONGTUBE",
    why.NO_TOUCH: b"WRONGTUBE",
    why.OTHER_TYPE: b"WRONGTUBE",
    why.PAUSED: b"PAUSED",
    why.NOREPL: b"NOREPL",
    why.LATE: b"FEWCOPIES",
    why.LEAVING: b"LEAVING",
    why.NODE_READ_ONLY: b"READONLY",
    why.NO_QUORUM: b"NOQUORUM",
    why.NOT_YET: b"NOQUORUM",
    why.STOOD: b"NOQUORUM",
    why.LOST: b"NOQUORUM",
}

# [T13] numbers other than E_PROC
NUMBERS: Final[dict[int, int]] = {
    why.EMPTY_NAME: 70,
    why.LONG_NAME: 9,
    why.NO_ENGINE: 57,
    why.MOVED: E_READ_ONLY,
    why.NOREPL: E_READ_ONLY,
    why.LATE: E_READ_ONLY,
    why.LEAVING: E_READ_ONLY,
    why.NO_USER: E_NO_USER,
    why.NO_ROLE: E_NO_ROLE,
}
IS_READ_ONLY: Final = [b"READONLY", b"NOQUORUM"]  # READ_ONLY over IPROTO (T17.4, T19.5)


def text_of(error: TubeError) -> bytes:
    """The text for IPROTO, and for RESP unless that has its own."""
    text: bytes = TEXTS[int(error.code)] % error.about
    return text


def resp_words(error: TubeError) -> bytes:
    """[T15.5] The refusal with the first word for RESP clients."""
    text = OF_RESP.get(int(error.code))
    said = text_of(error) if text is None else text % error.about
    return b"%s %s" % (FIRST.get(int(error.code), b"ERR"), said)


def iproto_words(error: TubeError) -> IprotoError:
    """[T13] The refusal for IPROTO: a number, and a text without a first word (T17.4)."""
    if FIRST.get(int(error.code)) in IS_READ_ONLY:
        return IprotoError(E_READ_ONLY, b"%s: %s" % (READ_ONLY, text_of(error)))
    return IprotoError(NUMBERS.get(int(error.code), E_PROC), text_of(error))


# ---- core words


NOREPL: Final = b"NOREPL " + NOREPL_TEXT
SINCE: Final = b", since I'm unable to hold a copy of the message for the following reason: "
LETTERS_IN_WAY: Final = b": %d MB are dead letters, replay or purge them, or raise maxmemory"
OUTCOMES_IN_WAY: Final = b": %d MB are kept outcomes, lower results-max-bytes or raise maxmemory"
BOTH_IN_WAY: Final = (
    b": %d MB are dead letters and %d MB kept outcomes, replay or purge the letters, "
    b"lower results-max-bytes, or raise maxmemory"
)

# [C9] with the first word
WORDS: Final[dict[int, bytes]] = {
    core.NOJOB: b"NOJOB Job not known in the context of this node.",
    core.ACKED_ALREADY: b"ACKED Job is already acknowledged.",
    core.LEASED_OUT: b"NOTDELIVERED Job is leased: LEASE TOUCH and LEASE FETCH extend its lease.",
    core.NOTDELIVERED: (
        b"NOTDELIVERED Job was not delivered yet, there is no processing to extend."
    ),
    core.TOOLATE: (
        b"TOOLATE Half of job TTL already elapsed, "
        b"you are no longer allowed to postpone the next delivery."
    ),
    core.NOREPL: NOREPL,
    core.NOREPL_LEAVING: NOREPL + SINCE + b"I'm leaving the cluster",
    core.NOREPL_MEMORY: NOREPL + SINCE + b"I'm out of memory",
    core.NOREPL_LETTERS: NOREPL + SINCE + b"I'm out of memory" + LETTERS_IN_WAY,
    core.NOREPL_OUTCOMES: NOREPL + SINCE + b"I'm out of memory" + OUTCOMES_IN_WAY,
    core.NOREPL_BOTH: NOREPL + SINCE + b"I'm out of memory" + BOTH_IN_WAY,
    core.NOREPL_TIMEOUT: (
        b"NOREPL Timeout reached before replicating to the requested number of nodes"
    ),
    core.NOREPL_LOST: b"NOREPL Too few nodes are left for the copies: the job is withdrawn",
    core.NOREPL_REMOVED: (
        b"NOREPL job removed (expired?) before the requested replication level was achieved"
    ),
    core.AMO_ONE_COPY: (
        b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
    ),
    core.DELAY_BEYOND_TTL: (
        b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
    ),
    core.DELAY_FOR_EVER: b"ERR DELAY must be below 2147483647 seconds, the longest TTL",
    core.MAXLEN: b"MAXLEN Queue is already longer than the specified MAXLEN count",
    core.NO_TUBE: b"ERR '%s' is no tube: PRI and UTUBE mean nothing to a queue",
    core.PAUSED: b"PAUSED " + PAUSED_TEXT,
    core.NOREPL_SAME_KEY: (
        b"NOREPL Timeout reached before the job with this DEDUPE key had its copies"
    ),
    core.FEW_PUBLISHED: (
        b"FEWCOPIES all %d jobs are published, but %d of them have fewer copies than asked for, "
        b"since nodes are unreachable: do not publish them again"
    ),
    core.KEYS_FULL: (
        b"OOM this node keeps %d DEDUPE keys, at most %d, and would need %d more: raise "
        b"dedupe-max-keys, give a shorter DEDUPETTL, or wait until some are over"
    ),
    core.NOSTAGE: (
        b"NOSTAGE nothing is staged in attempt '%s' of transaction '%s': it was never staged, "
        b"dropped after its time, or published; stage it again"
    ),
    core.KEY_WAITS: (
        b"NOREPL the job with DEDUPE key '%s' still waits for its copies: nothing was done, "
        b"try again soon"
    ),
    core.LONG_PUBLISH: (
        b"ERR PUBLISH takes at most %d jobs at once: publish them as several versions"
    ),
    core.APPS_FULL: (
        b"ERR this node keeps the versions of %d apps, each for 30 days after its last use: "
        b"use fewer names"
    ),
    core.NOGROUP: b"NOGROUP there is no group '%s' on this node: begin with LEASE OPEN",
    core.FENCED: (
        b"FENCED epoch %d of group '%s' is over, '%s' has opened it with epoch %d: "
        b"stop, or take it over with LEASE OPEN"
    ),
    core.AHEAD: (
        b"NOGROUP group '%s' has had no epoch %d here, its last is %d: LEASE OPEN it again"
    ),
    core.NOBATCH: b"NOBATCH group '%s' has no batch %d: its last is %d, the next one must be %d",
    core.OVER: b"NOBATCH batch %d of group '%s' was given up, its jobs are queued: take a new one",
    core.ACKED_BATCH: b"ACKED batch %d of group '%s' is committed, as is all up to %d",
    core.NOPART: b"NOBATCH batch %d of group '%s' has the parts 0 to %d, there is no part %d",
    core.BATCHES_FULL: (
        b"ERR group '%s' has %d batches that are not committed: LEASE COMMIT some first"
    ),
    core.NO_HALVES: b"ERR group '%s' has %d batches that are not committed: no more are made",
    core.GROUPS_FULL: (
        b"ERR this node has %d groups with a lease: LEASE RELEASE those that are not used"
    ),
    core.LEASE_LEAVING: (
        b"LEAVING this node leaves the cluster and begins no batch: ask another one"
    ),
    core.STALE_RUN: b"STALE Run %s is over: run %s began since",
    core.FAILED_RUN: b"STALE Run %s was counted as failed",
    core.OVER_RUN: b"STALE Run %s is over",
    core.NO_RUN_YET: b"STALE Nobody works on the job: START it first",
    core.ATWORK: b"ATWORK Job is at work at worker %s since %d s",
    core.LEASED_WORK: b"ATWORK Job is leased by a group: commit or release its batch first",
    core.DELIVERED_OUT: b"ATWORK Job was delivered %d s ago",
    core.FEW_ATTEMPTS: b"ERR ATTEMPTS must be above the %d that failed already",
    core.HAS_COPIES: (
        b"ERR Job is delivered at most once and has copies: it cannot be changed, "
        b"only cancelled and added again"
    ),
    core.CHANGING: b"ATWORK Job is changed by another client at this moment: try again",
    core.NOREACH: b"NOREACH Job is not known here, and may be at a node that did not answer: %s",
    core.NOREACH_RESULT: (
        b"NOREACH Job is done, but its result is not here, and may be at a node that did not "
        b"answer: %s"
    ),
    core.NOREACH_OWN: (
        b"NOREACH Job or its result is not here, and may be at another node: what this node asks "
        b"them waits for its journal, which cannot be written: see journal_error in INFO, or ask "
        b"another node"
    ),
    core.NOREACH_YET: (
        b"NOREACH Job is not known here, and may be at a node that did not answer: %s; "
        b"CANCEL may still take effect there"
    ),
    core.NOT_HELD: (
        b"NOREPL Not all nodes with copies of the job answered: nothing was changed, try again"
    ),
    core.CANCELLED_JOB: b"CANCELLED Job was cancelled: %s",
    core.DEAD_LETTER: b"DEAD Job is a dead letter of queue %s: DEAD REPLAY it",
    core.RESTING: (
        b"NOTDELIVERED Job waits for its next attempt: it is delivered after its back-off"
    ),
    core.TASK_WORK: b"ERR '%s' is a tube: its tasks have no runs, use TUBE TAKE, ACK and RELEASE",
    core.TASK_APART: b"ERR %s is %s",
    core.TASK_UPDATE: b"ERR '%s' is a tube: UPDATEJOB changes PRI of its tasks, and nothing else",
    core.ATTEMPTS_OF_ONCE: b"ERR ATTEMPTS needs RETRY above 0",
    core.TUBE_LIFE: (
        b"ERR '%s' is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and HEADERS are of queues "
        b"and tubes of type tasks"
    ),
    core.MANY_STARTS: b"ERR Job was started 16777215 times: FAIL it with FINAL, or DELJOB it",
    core.OVER_TIME: b"TOOLATE The run is over its TIMELIMIT of %s s",
    core.NO_KEYS: b"NOTUBE UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks",
    core.DUPLICATE: b"DUPLICATE %s has this UNIQUE key",
    core.TUBE_KEYS_FULL: b"OOM tube '%s' has %d keys, the most that a tube keeps",
    core.TUBE_LETTERS: b"ERR '%s' is a tube: dead letters go to a queue",
    core.TOPIC_FULL: (
        b"ERR topic '%s' has %d subscriptions, the most that a topic has: unsubscribe one, or "
        b"use another topic"
    ),
    core.SUBSCRIPTIONS_FULL: (
        b"ERR %d queues are subscribed to topics, the most that a node keeps: unsubscribe some"
    ),
    core.TENANT_TOPICS: (
        b"QUOTA tenant '%s' has %d subscriptions to topics, a quarter of what a node keeps: "
        b"unsubscribe some"
    ),
    core.TOPICS_UNHEARD: (
        b"LOADING this node has started, and has not heard all subscriptions of other nodes yet: "
        b"nothing was added, try again soon"
    ),
    core.TUBE_FULL: b"MAXLEN tube '%s' is full: its capacity is %d tasks",
    core.FEW_OF_TOPIC: (
        b"FEWCOPIES all jobs of the topic are added, %d of %d with fewer copies than asked for, "
        b"since nodes are unreachable: do not add them again"
    ),
    core.TUBE_LEASED: b"ERR '%s' is a tube: its tasks are taken one by one, not leased",
}


def core_words(refused: Refusal) -> bytes:
    """The RESP error of a refusal, without the `-`."""
    text: bytes = WORDS[int(refused.code)] % refused.about
    return text


# ---- Internal errors: what is replied, and whether the node may go on (SPEC C3.12).
#
# An exception in a command or in a client's input gives that client an error or closes its
# connection. The node goes on if its tables are consistent; otherwise it stops.


INTERNAL: Final = b"ERR internal error, the log of the server says more"


def on_fault(s: Server, c: Client, name: str, written: int, error: Exception) -> None:
    """The command raised an unexpected exception. AssertionError when the node must stop."""
    look_into(s, f"in {name}, asked by {c.address}", error)
    del c.out[written:]
    if c.is_blocked and c.chore is None and c.number not in s.n.waiters:
        c.is_blocked = False
        s.blocked -= 1
    c.error(INTERNAL)


def look_into(s: Server, what: str, error: Exception) -> None:
    """Count and log an internal error. AssertionError when the node's tables are inconsistent."""
    s.bugs.tell(s.n.now_ms, what, error)
    check(s.n)


def drop_turn(s: Server) -> None:
    """Discard what the failed turn did: no client has a reply, nothing is recorded."""
    if s.n.records is not None and s.committer is not None:
        s.n.records.take()
        s.n.records = None
    s.restart_after_ms = -1
    for c in s.clients.values():
        c.out = []
    for w in s.wired.values():
        w.out = []
