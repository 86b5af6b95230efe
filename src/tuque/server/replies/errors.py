"""The text of each error of core and tubes, and internal errors (SPEC C3.12, T13, T15.5)."""

from __future__ import annotations

from typing import Final

from tuque.core.model import errors as core_errors
from tuque.core.model.errors import Refusal
from tuque.core.queues.procedures import check
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.tubes.model import errors as tube_errors
from tuque.tubes.model.errors import TubeError
from tuque.wire.proto.iproto import (
    E_NO_ROLE,
    E_NO_USER,
    E_PROC,
    E_READ_ONLY,
    IprotoError,
)

LEAVING_TEXT: Final = b"This node is leaving the cluster, please connect to a different one"
LEAVING: Final = b"LEAVING " + LEAVING_TEXT
UNMET: Final = (
    b"LEAVING this node is not in its cluster, which knows another one at this "
    b"address: CLUSTER MEET it; or CLUSTER FORGET the other one there, and CLUSTER RESET this one"
)
FORGOTTEN: Final = (
    b"LEAVING this node was removed from its cluster by CLUSTER FORGET, and does no work: use "
    b"another one. To take it back, CLUSTER RESET it or start it without its journal, "
    b"and CLUSTER MEET it"
)
CONFLICT_TEXT: Final = (
    b"another node has the id of this one: stop one of the two, move its nodes.conf and its "
    b"journal away, and start it again"
)
CONFLICT: Final = b"CONFLICT " + CONFLICT_TEXT
IDLE: Final = {"forgotten": FORGOTTEN, "unmet": UNMET}  # why a node does no work (S6.5)
PAUSED_TEXT: Final = b"Queue paused in input, try later"
NOREPL_TEXT: Final = b"Not enough reachable nodes for the requested replication level"
READ_ONLY: Final = b"Can't modify data because this instance is in read-only mode"

TEXTS: Final[dict[int, bytes]] = {
    tube_errors.NOT_TAKEN: b"Task was not taken",
    tube_errors.NOT_FOUND: b"Task %d not found",
    tube_errors.NO_TOUCH: b"%s queue does not support touch",
    tube_errors.CONSUMERS: b"There are consumers connected the tube",
    tube_errors.TAKEN_TASKS: b"There are taken tasks in the tube",
    tube_errors.NO_TUBE: b"Tube not found",
    tube_errors.UNKNOWN_TYPE: b"Unknown tube type %s",
    tube_errors.EXISTS: b"Space '%s' already exists",
    tube_errors.TUBES_MAX: b"%d tubes exist, and tubes-max is %d: drop unused tubes",
    tube_errors.MANY_GRANTS: (
        b"there are %d grants, the most a node keeps: revoke some, or use roles"
    ),
    tube_errors.OTHER_TYPE: b"Tube '%s' exists with the type %s",
    tube_errors.TEMPORARY: b"Cannot create temporary tube in replicaset mode",
    tube_errors.NO_VINYL: b"limfifottl queue does not support vinyl engine",
    tube_errors.NO_VINYL_BUFFER: b'"ready_buffer" storage mode cannot be used with vinyl engine',
    tube_errors.NO_ENGINE: b"Space engine '%s' does not exist",
    tube_errors.BAD_UUID: b"Invalid UUID format.",
    tube_errors.UNKNOWN_UUID: b"The UUID %s is unknown.",
    tube_errors.BAD_TTR: b"Invalid value of ttr: %d",
    tube_errors.OVERRIDING: b'overriding registered driver "%s"',
    tube_errors.NO_DRIVER: b"no package of this server has a driver named '%s'",
    tube_errors.NO_DRIVER_CLASS: b"the driver '%s' makes no tuque.tubes.driver.Driver",
    tube_errors.EMPTY_NAME: (
        b"Invalid identifier '' (expected printable symbols only or it is too long)"
    ),
    tube_errors.LONG_NAME: b"Failed to create space '%s': space name is too long",
    tube_errors.LONG_OPTION: b"Options of tubes are at most 255 bytes",
    tube_errors.DOTTED: b"Tube '%s' cannot be called over IPROTO: its name has a dot or a colon",
    tube_errors.PAUSED: PAUSED_TEXT,
    tube_errors.MOVED: b"Tube '%s' has its leader there",
    tube_errors.NO_QUORUM: b"Tube '%s': this node reaches %d of %d nodes",
    tube_errors.NOT_YET: b"Tube '%s' is %s here: try again soon",
    tube_errors.STRANGE_TASK: (
        b"this node does not know the tube of task %s, and not all nodes are in reach: "
        b"try again soon"
    ),
    tube_errors.STOOD: (
        b"Tube '%s': this node stood still for %d ms and waits for a reply of the others; "
        b"if they are lost for good, run here: TUBE HOME '%s' %s FORCE"
    ),
    tube_errors.STOOD_MEANWHILE: b"this node stood still meanwhile: nothing was done, try again",
    tube_errors.LOST: (
        b"Tube '%s' was led here, and this node has lost it: TUBE HOME '%s' <node> FORCE "
        b"makes another replica the leader"
    ),
    tube_errors.NODE_READ_ONLY: (
        b"This node is read-only: CONFIG SET read-only no, or use another node"
    ),
    tube_errors.NOREPL: NOREPL_TEXT,
    tube_errors.TEMPORARY_SYNC: b"a temporary tube has no copies: SYNC must be 1",
    tube_errors.BAD_SYNC: b"SYNC must be from 1 to the number of nodes, which is %d",
    tube_errors.NO_NODE: b"no node of the cluster has that name, or it is not reachable",
    tube_errors.NO_HOME_THERE: (
        b"that node cannot lead the tube: it is read-only, is leaving, or has another tube of "
        b"that name"
    ),
    tube_errors.NO_TYPE_THERE: (
        b"node %s lacks the type '%s' of tube '%s', which stays: install its package there "
        b"and run there TUBE REGISTERDRIVER '%s', or choose another node"
    ),
    tube_errors.FAILED_THERE: (
        b"on node %s the driver of type '%s' of tube '%s', which stays, has failed: INFO of "
        b"the tube says why there; fix it and restart that node, or choose another node"
    ),
    tube_errors.BY_VOTE: (
        b"votes choose the leader of tube '%s': FORCE is for a tube of which no voter has all, "
        b"once a majority of the voters has been here for %d s and has chosen none"
    ),
    tube_errors.OTHER_VOTERS: b"the voters of another list choose the leader of tube '%s'",
    tube_errors.NO_VOTES_YET: (
        b"no majority has voted for this node yet: it asks again, see TUBE HOME %s"
    ),
    tube_errors.NO_VOTERS: (
        b"votes choose the leader only where a list of voters is in force, which three nodes or "
        b"more make, and never that of a temporary tube"
    ),
    tube_errors.NO_LIST: (
        b"there is no list of voters: three nodes or more with tube-failover yes make one"
    ),
    tube_errors.NO_VOTE_HERE: b"this node does not vote: use a voter, CLUSTER VOTERS shows them",
    tube_errors.LIST_CHANGING: b"the list of voters is changing already, see CLUSTER VOTERS",
    tube_errors.CANNOT_VOTE: (
        b"node %s cannot vote: it is not linked here, or does not know the list"
    ),
    tube_errors.JOURNAL_IS_OFF: (
        b"node %s has no journal, so its votes would not last: run CONFIG SET appendonly yes on it "
        b"first"
    ),
    tube_errors.JOURNAL_FAILS: (
        b"the journal of node %s cannot be written: see journal_error in INFO there; it works "
        b"again by itself once its disk has room"
    ),
    tube_errors.OWN_JOURNAL: (
        b"the journal of this node cannot be written, so that other nodes may not get its "
        b"messages: see journal_error in INFO; try again when it works"
    ),
    tube_errors.IS_NO_VOTER: b"node %s is no voter",
    tube_errors.LAST_VOTER: b"that is the last voter",
    tube_errors.UNSETTLED: (
        b"the list stays: no majority has all of tube '%s' under the present one yet"
    ),
    tube_errors.LIST_LATE: b"a majority of the voters did not answer in time: see CLUSTER VOTERS",
    tube_errors.NAME_THIS_NODE: b"name this node too: the voters must be here",
    tube_errors.MAJORITY_HERE: (
        b"a majority of the voters is here: use CLUSTER VOTERS REMOVE and ADD"
    ),
    tube_errors.NAME_ALL_HERE: b"node %s is here and can vote: name it too",
    tube_errors.NO_MAJORITY_HERE: (
        b"%d of %d voters are here and can vote, which is no majority: see CLUSTER VOTERS; if the "
        b"others are lost for good, use CLUSTER VOTERS FORCE"
    ),
    tube_errors.NO_MAJORITY_LEFT: (
        b"without node %s too few of the voters left are here and can vote: see CLUSTER VOTERS; "
        b"if others are lost for good, use CLUSTER VOTERS FORCE"
    ),
    tube_errors.NO_SCHEDULES: (
        b"tube '%s' has no schedules: they need a tube of type tasks that stays"
    ),
    tube_errors.NO_SCHEDULE: b"tube '%s' has no schedule '%s'",
    tube_errors.MANY_SCHEDULES: b"tube '%s' has %d schedules, the most that a tube keeps",
    tube_errors.IS_SCHEDULE: b"task %d is a schedule: use SCHEDULE PAUSE",
    tube_errors.NO_LIMITS: b"'%s' has no limits: they need a tube of type tasks",
    tube_errors.NO_GROUPS: b"tube '%s' has no groups: they need a tube of type tasks that stays",
    tube_errors.NO_GROUP: b"tube '%s' has no group '%s'",
    tube_errors.MANY_GROUPS_OF_JOBS: b"tube '%s' has %d groups, the most that a tube keeps",
    tube_errors.BAD_INDEX: b"the children of group '%s' have the indexes 0 to %d",
    tube_errors.IS_MEMBER: b"task %d belongs to a group: use GROUP CANCEL",
    tube_errors.IS_KEY: b"task %d keeps a UNIQUE key: delete it to free the key",
    tube_errors.NO_CAPACITY: (
        b"tube '%s': the type tasks has no capacity, use MAXLEN of ADDJOB, which refuses what is "
        b"too much"
    ),
    tube_errors.MOVING: b"the leader of tube '%s' is changing already",
    tube_errors.MOVE_BROKEN: b"the link to the new leader broke: tube '%s' stays",
    tube_errors.MOVE_SLOW: b"the new leader did not get all of tube '%s' within %d s: it stays",
    tube_errors.MOVE_UNSURE: b"tube '%s' was handed to its new leader, which has not replied yet",
    tube_errors.MOVE_ENDED: b"the leader of tube '%s' changed meanwhile",
    tube_errors.HOME_ALIVE: b"the leader of tube '%s' is reachable: run TUBE HOME on it",
    tube_errors.FEW_NODES: b"this node reaches %d of %d nodes, and needs more than half of them",
    tube_errors.LATER_COPY: b"node %s has a later copy of tube '%s'",
    tube_errors.NOT_LOADED: b"the %s '%s' cannot be loaded: %s",
    tube_errors.LATE: b"done here, but not yet on %d nodes: do not repeat it",
    tube_errors.LEAVING: LEAVING_TEXT,
    tube_errors.NO_CALLBACK: b"this server has no callback named '%s'",
    tube_errors.NO_USER: b"User '%s' is not found",
    tube_errors.NO_ROLE: b"Role '%s' is not found",
    tube_errors.NO_RETRY_0: b"'%s' is a tube: its tasks come back, RETRY is 1 or more",
    tube_errors.NO_COPIES: b"'%s' is a tube: SYNC says which copies count, REPLICATE is 1",
    tube_errors.NO_OPTION: b"'%s' is a tube of type %s: it has no %s",
}

# [T13.3] texts for RESP where the module's words mean nothing to its clients
OF_RESP: Final[dict[int, bytes]] = {
    tube_errors.EXISTS: (
        b"a tube or a queue '%s' already exists: choose another name, "
        b"or first drop the tube or end the jobs of the queue"
    ),
    tube_errors.NO_ENGINE: b"ENGINE must be memtx or vinyl, which mean the same here, not '%s'",
    tube_errors.EMPTY_NAME: b"the name of a tube has 1 to 512 bytes",
    tube_errors.LONG_NAME: b"the name of a tube has 1 to 512 bytes, '%s' is too long",
}

# [T15.5] first words other than ERR
FIRST: Final[dict[int, bytes]] = {
    tube_errors.NOT_TAKEN: b"NOTTAKEN",
    tube_errors.NOT_FOUND: b"NOTASK",
    tube_errors.NO_TUBE: b"NOTUBE",
    tube_errors.NO_SCHEDULES: b"NOTUBE",
    tube_errors.NO_LIMITS: b"NOTUBE",
    tube_errors.NO_SCHEDULE: b"NOSCHEDULE",
    tube_errors.IS_SCHEDULE: b"WRONGTUBE",
    tube_errors.NO_GROUPS: b"NOTUBE",
    tube_errors.NO_GROUP: b"NOJOBGROUP",
    tube_errors.IS_MEMBER: b"WRONGTUBE",
    tube_errors.IS_KEY: b"WRONGTUBE",
    tube_errors.NO_TOUCH: b"WRONGTUBE",
    tube_errors.OTHER_TYPE: b"WRONGTUBE",
    tube_errors.PAUSED: b"PAUSED",
    tube_errors.NOREPL: b"NOREPL",
    tube_errors.LATE: b"FEWCOPIES",
    tube_errors.LEAVING: b"LEAVING",
    tube_errors.NODE_READ_ONLY: b"READONLY",
    tube_errors.NO_QUORUM: b"NOQUORUM",
    tube_errors.NOT_YET: b"NOQUORUM",
    tube_errors.STRANGE_TASK: b"NOQUORUM",
    tube_errors.STOOD: b"NOQUORUM",
    tube_errors.LOST: b"NOQUORUM",
}

# [T13] numbers other than E_PROC
NUMBERS: Final[dict[int, int]] = {
    tube_errors.EMPTY_NAME: 70,
    tube_errors.LONG_NAME: 9,
    tube_errors.NO_ENGINE: 57,
    tube_errors.MOVED: E_READ_ONLY,
    tube_errors.NOREPL: E_READ_ONLY,
    tube_errors.LATE: E_READ_ONLY,
    tube_errors.LEAVING: E_READ_ONLY,
    tube_errors.NO_USER: E_NO_USER,
    tube_errors.NO_ROLE: E_NO_ROLE,
}
IS_READ_ONLY: Final = [b"READONLY", b"NOQUORUM"]  # READ_ONLY over IPROTO (T17.4, T19.5)

NOREPL: Final = b"NOREPL " + NOREPL_TEXT
SINCE: Final = b", since I'm unable to hold a copy of the message for the following reason: "
OOM: Final = b"OOM command not allowed when used memory > 'maxmemory'"
FULL: Final = b"OOM used memory is above 75 %% of 'maxmemory'"
NOTHING_IN_WAY: Final = b": let jobs end, or raise maxmemory"
LETTERS_IN_WAY: Final = b": %d MB are dead letters, replay or purge them, or raise maxmemory"
OUTCOMES_IN_WAY: Final = b": %d MB are kept outcomes, lower results-max-bytes or raise maxmemory"
BOTH_IN_WAY: Final = (
    b": %d MB are dead letters and %d MB kept outcomes, replay or purge the letters, "
    b"lower results-max-bytes, or raise maxmemory"
)

# [C9] with the first word
WORDS: Final[dict[int, bytes]] = {
    core_errors.NOJOB: b"NOJOB Job not known in the context of this node.",
    core_errors.ACKED_ALREADY: b"ACKED Job is already acknowledged.",
    core_errors.LEASED_OUT: (
        b"NOTDELIVERED Job is leased: LEASE TOUCH and LEASE FETCH extend its lease."
    ),
    core_errors.NOTDELIVERED: (
        b"NOTDELIVERED Job was not delivered yet, there is no processing to extend."
    ),
    core_errors.TOOLATE: (
        b"TOOLATE Half of job TTL already elapsed, "
        b"you are no longer allowed to postpone the next delivery."
    ),
    core_errors.NOREPL: NOREPL,
    core_errors.NOREPL_LEAVING: NOREPL + SINCE + b"I'm leaving the cluster",
    core_errors.NOREPL_MEMORY: NOREPL + SINCE + b"I'm out of memory",
    core_errors.NOREPL_LETTERS: NOREPL + SINCE + b"I'm out of memory" + LETTERS_IN_WAY,
    core_errors.NOREPL_OUTCOMES: NOREPL + SINCE + b"I'm out of memory" + OUTCOMES_IN_WAY,
    core_errors.NOREPL_BOTH: NOREPL + SINCE + b"I'm out of memory" + BOTH_IN_WAY,
    core_errors.FULL: FULL + NOTHING_IN_WAY,
    core_errors.FULL_LETTERS: FULL + LETTERS_IN_WAY,
    core_errors.FULL_OUTCOMES: FULL + OUTCOMES_IN_WAY,
    core_errors.FULL_BOTH: FULL + BOTH_IN_WAY,
    core_errors.NOREPL_TIMEOUT: (
        b"NOREPL Timeout reached before replicating to the requested number of nodes"
    ),
    core_errors.NOREPL_LOST: b"NOREPL Too few nodes are left for the copies: the job is withdrawn",
    core_errors.NOREPL_REMOVED: (
        b"NOREPL job removed (expired?) before the requested replication level was achieved"
    ),
    core_errors.AMO_ONE_COPY: (
        b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
    ),
    core_errors.DELAY_BEYOND_TTL: (
        b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
    ),
    core_errors.DELAY_FOR_EVER: b"ERR DELAY must be below 2147483647 seconds, the longest TTL",
    core_errors.MAXLEN: b"MAXLEN Queue is already longer than the specified MAXLEN count",
    core_errors.NO_TUBE: b"ERR '%s' is no tube: PRI and UTUBE mean nothing to a queue",
    core_errors.PAUSED: b"PAUSED " + PAUSED_TEXT,
    core_errors.NOREPL_SAME_KEY: (
        b"NOREPL Timeout reached before the job with this DEDUPE key had its copies"
    ),
    core_errors.FEW_PUBLISHED: (
        b"FEWCOPIES all %d jobs are published, but %d of them have fewer copies than asked for, "
        b"since nodes are unreachable: do not publish them again"
    ),
    core_errors.KEYS_FULL: (
        b"OOM this node keeps %d DEDUPE keys, at most %d, and would need %d more: raise "
        b"dedupe-max-keys, give a shorter DEDUPETTL, or wait until some are over"
    ),
    core_errors.NOSTAGE: (
        b"NOSTAGE nothing is staged in attempt '%s' of transaction '%s': it was never staged, "
        b"dropped after its time, or published; stage it again"
    ),
    core_errors.KEY_WAITS: (
        b"NOREPL the job with DEDUPE key '%s' still waits for its copies: nothing was done, "
        b"try again soon"
    ),
    core_errors.LONG_PUBLISH: (
        b"ERR PUBLISH takes at most %d jobs at once: publish them as several versions"
    ),
    core_errors.APPS_FULL: (
        b"ERR this node keeps the versions of %d apps, each for 30 days after its last use: "
        b"use fewer names"
    ),
    core_errors.NOGROUP: b"NOGROUP there is no group '%s' on this node: begin with LEASE OPEN",
    core_errors.FENCED: (
        b"FENCED epoch %d of group '%s' is over, '%s' has opened it with epoch %d: "
        b"stop, or take it over with LEASE OPEN"
    ),
    core_errors.AHEAD: (
        b"NOGROUP group '%s' has had no epoch %d here, its last is %d: LEASE OPEN it again"
    ),
    core_errors.NOBATCH: (
        b"NOBATCH group '%s' has no batch %d: its last is %d, the next one must be %d"
    ),
    core_errors.OVER: (
        b"NOBATCH batch %d of group '%s' was given up, its jobs are queued: take a new one"
    ),
    core_errors.ACKED_BATCH: b"ACKED batch %d of group '%s' is committed, as is all up to %d",
    core_errors.NOPART: (
        b"NOBATCH batch %d of group '%s' has the parts 0 to %d, there is no part %d"
    ),
    core_errors.BATCHES_FULL: (
        b"ERR group '%s' has %d batches that are not committed: LEASE COMMIT some first"
    ),
    core_errors.NO_HALVES: (
        b"ERR group '%s' has %d batches that are not committed: no more are made"
    ),
    core_errors.GROUPS_FULL: (
        b"ERR this node has %d groups with a lease: LEASE RELEASE those that are not used"
    ),
    core_errors.LEASE_LEAVING: (
        b"LEAVING this node leaves the cluster and begins no batch: ask another one"
    ),
    core_errors.STALE_RUN: b"STALE Run %s is over: run %s began since",
    core_errors.FAILED_RUN: b"STALE Run %s was counted as failed",
    core_errors.OVER_RUN: b"STALE Run %s is over",
    core_errors.NO_RUN_YET: b"STALE Nobody works on the job: START it first",
    core_errors.ATWORK: b"ATWORK Job is at work at worker %s since %d s",
    core_errors.LEASED_WORK: b"ATWORK Job is leased by a group: commit or release its batch first",
    core_errors.DELIVERED_OUT: b"ATWORK Job was delivered %d s ago",
    core_errors.FEW_ATTEMPTS: b"ERR ATTEMPTS must be above the %d that failed already",
    core_errors.HAS_COPIES: (
        b"ERR Job is delivered at most once and has copies: it cannot be changed, "
        b"only cancelled and added again"
    ),
    core_errors.CHANGING: b"ATWORK Job is changed by another client at this moment: try again",
    core_errors.NOREACH: (
        b"NOREACH Job is not known here, and may be at a node that did not answer: %s"
    ),
    core_errors.NOREACH_RESULT: (
        b"NOREACH Job is done, but its result is not here, and may be at a node that did not "
        b"answer: %s"
    ),
    core_errors.NOREACH_OWN: (
        b"NOREACH Job or its result is not here, and may be at another node: what this node asks "
        b"them waits for its journal, which cannot be written: see journal_error in INFO, or ask "
        b"another node"
    ),
    core_errors.NOREACH_YET: (
        b"NOREACH Job is not known here, and may be at a node that did not answer: %s; "
        b"CANCEL may still take effect there"
    ),
    core_errors.NOT_HELD: (
        b"NOREPL Not all nodes with copies of the job answered: nothing was changed, try again"
    ),
    core_errors.CANCELLED_JOB: b"CANCELLED Job was cancelled: %s",
    core_errors.DEAD_LETTER: b"DEAD Job is a dead letter of queue %s: DEAD REPLAY it",
    core_errors.RESTING: (
        b"NOTDELIVERED Job waits for its next attempt: it is delivered after its back-off"
    ),
    core_errors.TASK_WORK: (
        b"ERR '%s' is a tube: its tasks have no runs, use TUBE TAKE, ACK and RELEASE"
    ),
    core_errors.TASK_APART: b"ERR %s is %s",
    core_errors.TASK_UPDATE: (
        b"ERR '%s' is a tube: UPDATEJOB changes PRI of its tasks, and nothing else"
    ),
    core_errors.ATTEMPTS_OF_ONCE: b"ERR ATTEMPTS needs RETRY above 0",
    core_errors.TUBE_LIFE: (
        b"ERR '%s' is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and HEADERS are of queues "
        b"and tubes of type tasks"
    ),
    core_errors.MANY_STARTS: (
        b"ERR Job was started 16777215 times: FAIL it with FINAL, or DELJOB it"
    ),
    core_errors.OVER_TIME: b"TOOLATE The run is over its TIMELIMIT of %s s",
    core_errors.NO_KEYS: b"NOTUBE UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks",
    core_errors.DUPLICATE: b"DUPLICATE %s has this UNIQUE key",
    core_errors.TUBE_KEYS_FULL: b"OOM tube '%s' has %d keys, the most that a tube keeps",
    core_errors.TUBE_LETTERS: b"ERR '%s' is a tube: dead letters go to a queue",
    core_errors.TOPIC_FULL: (
        b"ERR topic '%s' has %d subscriptions, the most that a topic has: unsubscribe one, or "
        b"use another topic"
    ),
    core_errors.SUBSCRIPTIONS_FULL: (
        b"ERR %d queues are subscribed to topics, the most that a node keeps: unsubscribe some"
    ),
    core_errors.TENANT_TOPICS: (
        b"QUOTA tenant '%s' has %d subscriptions to topics, a quarter of what others leave: "
        b"unsubscribe some"
    ),
    core_errors.TOPICS_UNHEARD: (
        b"LOADING this node has started, and has not heard all subscriptions of other nodes yet: "
        b"nothing was added, try again soon"
    ),
    core_errors.TUBE_FULL: b"MAXLEN tube '%s' is full: its capacity is %d tasks",
    core_errors.FEW_OF_TOPIC: (
        b"FEWCOPIES all jobs of the topic are added, %d of %d with fewer copies than asked for, "
        b"since nodes are unreachable: do not add them again"
    ),
    core_errors.TUBE_LEASED: b"ERR '%s' is a tube: its tasks are taken one by one, not leased",
}

INTERNAL: Final = b"ERR internal error, the log of the server says more"


# ---- Errors of tubes, for RESP and for IPROTO (SPEC T13, T15.5)
#
# RESP clients get a first word before the text (T15.5), IPROTO clients a number beside it (T13).


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


# ---- Errors of core (core/model/errors.py)


def core_words(refused: Refusal) -> bytes:
    """The RESP error of a refusal, without the `-`."""
    text: bytes = WORDS[int(refused.code)] % refused.about
    return text


# ---- Internal errors: the reply, and whether the node may continue (SPEC C3.12)
#
# An exception in a command or in a client's input gives that client an error or closes its
# connection. The node goes on if its tables are consistent; otherwise it stops.


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
