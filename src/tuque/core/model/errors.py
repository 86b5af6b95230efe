"""The one table of errors: for each code its first word, its text and its number for IPROTO.

Core and tubes refuse with a code and the arguments of its text: `Refusal` here, `TubeError` in
tubes/model/errors.py. server/replies/errors.py makes the replies of it. The classes that clients
raise are made from the first words (`tuque.errors`). A function that may refuse returns
`Refusal | None`; None means accepted, so that what is accepted allocates nothing.
"""

from typing import Final, final

from mypy_extensions import i64

PROC: Final = 32  # IPROTO: an error raised by a procedure


@final
class ErrorRow:
    """The reply for one code, over RESP and over IPROTO."""

    def __init__(self, word: bytes, text: bytes, iproto: i64, resp: bytes) -> None:
        self.word = word  # [C9, T15.5] the first word of the reply over RESP
        self.text = text  # with a % for each argument
        self.resp = resp  # [T13.3] the text over RESP, where the module's means nothing there
        self.iproto = iproto  # [T13] Tarantool's number of the error


ROWS: Final[dict[int, ErrorRow]] = {}  # by code


@final
class Refusal:
    """Nothing was done. `about` has the arguments of the code's text, in order."""

    def __init__(self, code: i64, about: tuple[object, ...] = ()) -> None:
        self.code = code
        self.about = about


# Parts of texts that several codes share
FEW_NODES_TEXT: Final = b"Not enough reachable nodes for the requested replication level"
UNABLE: Final = (
    FEW_NODES_TEXT + b", since I'm unable to hold a copy of the message for the following reason: "
)
NOTHING_IN_WAY: Final = b": let jobs end, or raise maxmemory"
LETTERS_IN_WAY: Final = b": %d MB are dead letters, replay or purge them, or raise maxmemory"
OUTCOMES_IN_WAY: Final = b": %d MB are kept outcomes, lower results-max-bytes or raise maxmemory"
BOTH_IN_WAY: Final = (
    b": %d MB are dead letters and %d MB kept outcomes, replay or purge the letters, "
    b"lower results-max-bytes, or raise maxmemory"
)


def _is(code: i64, word: bytes, text: bytes, iproto: i64 = PROC, resp: bytes = b"") -> None:
    assert int(code) not in ROWS, "two errors have this code"
    ROWS[int(code)] = ErrorRow(word, text, iproto, resp if len(resp) > 0 else text)


# ---- Jobs (SPEC Q, R)

NOJOB: Final = 1
_is(NOJOB, b"NOJOB", b"Job not known in the context of this node.")
ACKED_ALREADY: Final = 2
_is(ACKED_ALREADY, b"ACKED", b"Job is already acknowledged.")
LEASED_OUT: Final = 3
_is(LEASED_OUT, b"NOTDELIVERED", b"Job is leased: LEASE TOUCH and LEASE FETCH extend its lease.")
NOTDELIVERED: Final = 4
_is(NOTDELIVERED, b"NOTDELIVERED", b"Job was not delivered yet, there is no processing to extend.")
TOOLATE: Final = 5
_is(
    TOOLATE,
    b"TOOLATE",
    b"Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery.",
)
NOREPL: Final = 6
_is(NOREPL, b"NOREPL", FEW_NODES_TEXT, iproto=7)
NOREPL_LEAVING: Final = 7
_is(NOREPL_LEAVING, b"NOREPL", UNABLE + b"I'm leaving the cluster")
NOREPL_MEMORY: Final = 8  # about: what is in the way, or nothing
_is(NOREPL_MEMORY, b"NOREPL", UNABLE + b"I'm out of memory%s")
NOREPL_TIMEOUT: Final = 9
_is(
    NOREPL_TIMEOUT,
    b"NOREPL",
    b"Timeout reached before replicating to the requested number of nodes",
)
NOREPL_REMOVED: Final = 10
_is(
    NOREPL_REMOVED,
    b"NOREPL",
    b"job removed (expired?) before the requested replication level was achieved",
)
AMO_ONE_COPY: Final = 11
_is(
    AMO_ONE_COPY,
    b"ERR",
    b"With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)",
)
DELAY_BEYOND_TTL: Final = 12
_is(
    DELAY_BEYOND_TTL,
    b"ERR",
    b"The specified DELAY is greater than TTL. Job refused since would never be delivered",
)
MAXLEN: Final = 13
_is(MAXLEN, b"MAXLEN", b"Queue is already longer than the specified MAXLEN count")
PRI_OF_QUEUE: Final = 14  # about: queue
_is(PRI_OF_QUEUE, b"ERR", b"'%s' is no tube: a queue takes PRI 0 to 9 with ADDJOB, and no UTUBE")
PAUSED: Final = 15
_is(PAUSED, b"PAUSED", b"Queue paused in input, try later")

# ---- Keys and publications (SPEC Z)

NOREPL_SAME_KEY: Final = 16
_is(
    NOREPL_SAME_KEY,
    b"NOREPL",
    b"Timeout reached before the job with this DEDUPE key had its copies",
)
FEW_PUBLISHED: Final = 17  # about: jobs, those with too few copies
_is(
    FEW_PUBLISHED,
    b"FEWCOPIES",
    b"all %d jobs are published, but %d of them have fewer copies than asked for, since nodes "
    b"are unreachable: do not publish them again",
)
KEYS_FULL: Final = 18  # about: keys kept, keys wanted
_is(
    KEYS_FULL,
    b"OOM",
    b"this node keeps %d DEDUPE keys, at most %d, and would need %d more: raise "
    b"dedupe-max-keys, give a shorter DEDUPETTL, or wait until some are over",
)
NOSTAGE: Final = 19  # about: attempt, transaction
_is(
    NOSTAGE,
    b"NOSTAGE",
    b"nothing is staged in attempt '%s' of transaction '%s': it was never staged, dropped "
    b"after its time, or published; stage it again",
)
KEY_WAITS: Final = 20  # about: key
_is(
    KEY_WAITS,
    b"NOREPL",
    b"the job with DEDUPE key '%s' still waits for its copies: nothing was done, try again soon",
)
LONG_PUBLISH: Final = 21  # about: jobs at most
_is(
    LONG_PUBLISH,
    b"ERR",
    b"PUBLISH takes at most %d jobs at once: publish them as several versions",
)
APPS_FULL: Final = 22  # about: apps
_is(
    APPS_FULL,
    b"ERR",
    b"this node keeps the versions of %d apps, each for 30 days after its last use: use fewer "
    b"names",
)

# ---- Leases (SPEC Y)

NOGROUP: Final = 23  # about: group
_is(NOGROUP, b"NOGROUP", b"there is no group '%s' on this node: begin with LEASE OPEN")
FENCED: Final = 24  # about: epoch, group, its owner, its epoch
_is(
    FENCED,
    b"FENCED",
    b"epoch %d of group '%s' is over, '%s' has opened it with epoch %d: stop, or take it over "
    b"with LEASE OPEN",
)
AHEAD: Final = 25  # about: group, epoch, its epoch
_is(AHEAD, b"NOGROUP", b"group '%s' has had no epoch %d here, its last is %d: LEASE OPEN it again")
NOBATCH: Final = 26  # about: group, batch, its last batch, the next one
_is(NOBATCH, b"NOBATCH", b"group '%s' has no batch %d: its last is %d, the next one must be %d")
OVER: Final = 27  # about: batch, group
_is(OVER, b"NOBATCH", b"batch %d of group '%s' was given up, its jobs are queued: take a new one")
ACKED_BATCH: Final = 28  # about: batch, group, last committed batch
_is(ACKED_BATCH, b"ACKED", b"batch %d of group '%s' is committed, as is all up to %d")
NOPART: Final = 29  # about: batch, group, its last part, part
_is(NOPART, b"NOBATCH", b"batch %d of group '%s' has the parts 0 to %d, there is no part %d")
BATCHES_FULL: Final = 30  # about: group, batches
_is(
    BATCHES_FULL,
    b"ERR",
    b"group '%s' has %d batches that are not committed: LEASE COMMIT some first",
)
NO_HALVES: Final = 31  # about: group, batches
_is(NO_HALVES, b"ERR", b"group '%s' has %d batches that are not committed: no more are made")
GROUPS_FULL: Final = 32  # about: groups
_is(
    GROUPS_FULL,
    b"ERR",
    b"this node has %d groups with a lease: LEASE RELEASE those that are not used",
)
LEASE_LEAVING: Final = 33
_is(LEASE_LEAVING, b"LEAVING", b"this node leaves the cluster and begins no batch: ask another one")
TUBE_LEASED: Final = 34  # about: tube
_is(TUBE_LEASED, b"ERR", b"'%s' is a tube: its tasks are taken one by one, not leased")

# ---- The life of a job (SPEC W)

STALE_RUN: Final = 35  # about: run, the run since, or b"-"
_is(STALE_RUN, b"STALE", b"Run %s is over: run %s began since")
FAILED_RUN: Final = 36  # about: run
_is(FAILED_RUN, b"STALE", b"Run %s was counted as failed")
NO_RUN_YET: Final = 37
_is(NO_RUN_YET, b"STALE", b"Nobody works on the job: START it first")
ATWORK: Final = 38  # about: worker, seconds
_is(ATWORK, b"ATWORK", b"Job is at work at worker %s since %d s")
LEASED_WORK: Final = 39
_is(LEASED_WORK, b"ATWORK", b"Job is leased by a group: commit or release its batch first")
CANCELLED_JOB: Final = 40  # about: reason
_is(CANCELLED_JOB, b"CANCELLED", b"Job was cancelled: %s")
DEAD_LETTER: Final = 41  # about: queue or tube
_is(DEAD_LETTER, b"DEAD", b"Job is a dead letter in '%s': DEAD REPLAY it")
RESTING: Final = 42
_is(RESTING, b"NOTDELIVERED", b"Job waits for its next attempt: it is delivered after its back-off")
TASK_WORK: Final = 43  # about: tube
_is(TASK_WORK, b"ERR", b"'%s' is a tube: its tasks have no runs, use TUBE TAKE, ACK and RELEASE")
ATTEMPTS_OF_ONCE: Final = 44
_is(ATTEMPTS_OF_ONCE, b"ERR", b"ATTEMPTS needs RETRY above 0")
TUBE_LIFE: Final = 45  # about: tube
_is(
    TUBE_LIFE,
    b"ERR",
    b"'%s' is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT, ONEXPIRY and HEADERS are of "
    b"queues and tubes of type tasks",
)
MANY_STARTS: Final = 46
_is(MANY_STARTS, b"ERR", b"Job was started 16777215 times: FAIL it with FINAL, or DELJOB it")
OVER_TIME: Final = 47  # about: seconds as text
_is(OVER_TIME, b"TOOLATE", b"The run is over its TIMELIMIT of %s s")
TUBE_LETTERS: Final = 48  # about: tube
_is(TUBE_LETTERS, b"ERR", b"'%s' is a tube: dead letters go to a queue")
OVER_RUN: Final = 49  # about: run
_is(OVER_RUN, b"STALE", b"Run %s is over")
DELIVERED_OUT: Final = 50  # about: seconds
_is(DELIVERED_OUT, b"ATWORK", b"Job was delivered %d s ago")
HAS_COPIES: Final = 51
_is(
    HAS_COPIES,
    b"ERR",
    b"Job is delivered at most once and has copies: it cannot be changed, only cancelled and "
    b"added again",
)
FEW_ATTEMPTS: Final = 52  # about: attempts that failed
_is(FEW_ATTEMPTS, b"ERR", b"ATTEMPTS must be above the %d that failed already")
UNDECIDED: Final = 53
_is(
    UNDECIDED,
    b"NOREPL",
    b"The node that decides about the change did not answer: it may still be made, try again",
)
NOT_ASKED: Final = 54
_is(
    NOT_ASKED,
    b"NOREPL",
    b"Not all nodes with copies of the job answered: nothing was changed, try again",
)
TASK_UPDATE: Final = 55  # about: tube
_is(TASK_UPDATE, b"ERR", b"'%s' is a tube: UPDATEJOB changes PRI of its tasks, and nothing else")
NOREACH: Final = 56  # about: nodes
_is(NOREACH, b"NOREACH", b"Job is not known here, and may be at a node that did not answer: %s")
NOREACH_YET: Final = 57  # about: nodes
_is(
    NOREACH_YET,
    b"NOREACH",
    b"Job is not known here, and may be at a node that did not answer: %s; CANCEL may still "
    b"take effect there",
)
NO_KEYS: Final = 60
_is(NO_KEYS, b"NOTUBE", b"UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks")
DUPLICATE: Final = 61  # about: id of the job that has the key
_is(DUPLICATE, b"DUPLICATE", b"%s has this UNIQUE key")
TUBE_KEYS_FULL: Final = 62  # about: tube, its most keys
_is(TUBE_KEYS_FULL, b"OOM", b"tube '%s' has %d keys, the most that a tube keeps")
DELAY_FOR_EVER: Final = 63
_is(DELAY_FOR_EVER, b"ERR", b"DELAY must be below 2147483647 seconds, the longest TTL")
NOREACH_RESULT: Final = 64  # about: nodes
_is(
    NOREACH_RESULT,
    b"NOREACH",
    b"Job is done, but its result is not here, and may be at a node that did not answer: %s",
)
NOREPL_LOST: Final = 66
_is(NOREPL_LOST, b"NOREPL", b"Too few nodes are left for the copies: the job is withdrawn")
TUBE_FULL: Final = 67  # about: tube, its capacity
_is(TUBE_FULL, b"MAXLEN", b"tube '%s' is full: its capacity is %d tasks")
TASK_APART: Final = 68  # about: id, what it is and what to use
_is(TASK_APART, b"ERR", b"%s is %s")
NOREACH_OWN: Final = 69
_is(
    NOREACH_OWN,
    b"NOREACH",
    b"Job or its result is not here, and may be at another node: what this node asks them "
    b"waits for its journal, which cannot be written: see journal_error in INFO, or ask "
    b"another node",
)
FULL: Final = 70  # about: what is in the way
_is(FULL, b"OOM", b"used memory is above 75 %% of 'maxmemory'%s")
ABOVE_ALL: Final = 71  # about: what is in the way
_is(ABOVE_ALL, b"OOM", b"command not allowed when used memory > 'maxmemory'%s")

GIVEN_AWAY: Final = 74
_is(
    GIVEN_AWAY,
    b"LEAVING",
    b"This node leaves the cluster and has given its jobs to others: ask another one",
)
NAMELESS: Final = 75
_is(NAMELESS, b"STALE", b"'-' names no run: name the run at work, the reply to START has it")

# ---- Topics (SPEC T60)

TOPIC_FULL: Final = 101  # about: topic, its subscriptions
_is(
    TOPIC_FULL,
    b"ERR",
    b"topic '%s' has %d subscriptions, the most that a topic has: unsubscribe one, or use "
    b"another topic",
)
SUBSCRIPTIONS_FULL: Final = 102  # about: subscriptions
_is(
    SUBSCRIPTIONS_FULL,
    b"ERR",
    b"%d queues are subscribed to topics, the most that a node keeps: unsubscribe some",
)
FEW_OF_TOPIC: Final = 103  # about: jobs with too few copies, all jobs
_is(
    FEW_OF_TOPIC,
    b"FEWCOPIES",
    b"all jobs of the topic are added, %d of %d with fewer copies than asked for, since nodes "
    b"are unreachable: do not add them again",
)
TENANT_TOPICS: Final = 104  # about: tenant, its subscriptions
_is(
    TENANT_TOPICS,
    b"QUOTA",
    b"tenant '%s' has %d subscriptions to topics, a quarter of what others leave: unsubscribe some",
)
TOPICS_UNHEARD: Final = 105
_is(
    TOPICS_UNHEARD,
    b"LOADING",
    b"this node has started, and has not heard all subscriptions of other nodes yet: nothing "
    b"was added, try again soon",
)

# ---- Tubes (SPEC T13, T15.5)

NOT_TAKEN: Final = 201
_is(NOT_TAKEN, b"NOTTAKEN", b"Task was not taken")
NOT_FOUND: Final = 202
_is(NOT_FOUND, b"NOTASK", b"Task %d not found")
NO_TOUCH: Final = 203
_is(NO_TOUCH, b"WRONGTUBE", b"%s queue does not support touch")
CONSUMERS: Final = 204
_is(CONSUMERS, b"ERR", b"There are consumers connected the tube")
TAKEN_TASKS: Final = 205
_is(TAKEN_TASKS, b"ERR", b"There are taken tasks in the tube")
NO_TUBE: Final = 206
_is(NO_TUBE, b"NOTUBE", b"Tube not found")
TUBES_UNHEARD: Final = 290
_is(
    TUBES_UNHEARD,
    b"LOADING",
    b"this node has started, and has not heard all tubes of other nodes yet: nothing was "
    b"done, try again soon",
)
UNKNOWN_TYPE: Final = 207
_is(UNKNOWN_TYPE, b"ERR", b"Unknown tube type %s")
EXISTS: Final = 208
_is(
    EXISTS,
    b"ERR",
    (b"Space '%s' already exists"),
    resp=(
        b"a tube or a queue '%s' already exists: choose another name, or first drop the tube or "
        b"end the jobs of the queue"
    ),
)
TUBES_MAX: Final = 209
_is(TUBES_MAX, b"ERR", b"%d tubes exist, and tubes-max is %d: drop unused tubes")
MANY_GRANTS: Final = 210
_is(MANY_GRANTS, b"ERR", b"there are %d grants, the most a node keeps: revoke some, or use roles")
OTHER_TYPE: Final = 211
_is(OTHER_TYPE, b"WRONGTUBE", b"Tube '%s' exists with the type %s")
TEMPORARY: Final = 212
_is(TEMPORARY, b"ERR", b"Cannot create temporary tube in replicaset mode")
NO_VINYL: Final = 213
_is(NO_VINYL, b"ERR", b"limfifottl queue does not support vinyl engine")
NO_VINYL_BUFFER: Final = 214
_is(NO_VINYL_BUFFER, b"ERR", b'"ready_buffer" storage mode cannot be used with vinyl engine')
NO_ENGINE: Final = 215
_is(
    NO_ENGINE,
    b"ERR",
    (b"Space engine '%s' does not exist"),
    iproto=57,
    resp=(b"ENGINE must be memtx or vinyl, which mean the same here, not '%s'"),
)
BAD_UUID: Final = 216
_is(BAD_UUID, b"ERR", b"Invalid UUID format.")
UNKNOWN_UUID: Final = 217
_is(UNKNOWN_UUID, b"ERR", b"The UUID %s is unknown.")
BAD_TTR: Final = 218
_is(BAD_TTR, b"ERR", b"Invalid value of ttr: %d")
OVERRIDING: Final = 219
_is(OVERRIDING, b"ERR", b'overriding registered driver "%s"')
NO_DRIVER: Final = 220
_is(NO_DRIVER, b"ERR", b"no package of this server has a driver named '%s'")
NO_DRIVER_CLASS: Final = 221
_is(NO_DRIVER_CLASS, b"ERR", b"the driver '%s' makes no tuque.tubes.driver.Driver")
EMPTY_NAME: Final = 222
_is(
    EMPTY_NAME,
    b"ERR",
    (b"Invalid identifier '' (expected printable symbols only or it is too long)"),
    iproto=70,
    resp=(b"the name of a tube has 1 to 512 bytes"),
)
LONG_NAME: Final = 223
_is(
    LONG_NAME,
    b"ERR",
    (b"Failed to create space '%s': space name is too long"),
    iproto=9,
    resp=(b"the name of a tube has 1 to 512 bytes, '%s' is too long"),
)
LONG_OPTION: Final = 224
_is(LONG_OPTION, b"ERR", b"Options of tubes are at most 255 bytes")
DOTTED: Final = 225
_is(DOTTED, b"ERR", b"Tube '%s' cannot be called over IPROTO: its name has a dot or a colon")
MOVED: Final = 227
_is(MOVED, b"ERR", b"Tube '%s' has its leader there", iproto=7)
NO_QUORUM: Final = 228
_is(NO_QUORUM, b"NOQUORUM", b"Tube '%s': this node reaches %d of %d nodes")
NOT_YET: Final = 229
_is(NOT_YET, b"NOQUORUM", b"Tube '%s' is %s here: try again soon")
STOOD: Final = 230
_is(
    STOOD,
    b"NOQUORUM",
    b"Tube '%s': this node stood still for %d ms and waits for a reply of the others; if they "
    b"are lost for good, run here: TUBE HOME '%s' %s FORCE",
)
STOOD_MEANWHILE: Final = 231
_is(STOOD_MEANWHILE, b"ERR", b"this node stood still meanwhile: nothing was done, try again")
LOST: Final = 232
_is(
    LOST,
    b"NOQUORUM",
    b"Tube '%s' was led here, and this node has lost it: TUBE HOME '%s' <node> FORCE makes "
    b"another replica the leader; if it never had a task, TUBE DROP here ends it",
)
NODE_READ_ONLY: Final = 233
_is(
    NODE_READ_ONLY,
    b"READONLY",
    b"This node is read-only: CONFIG SET read-only no, or use another node",
)
TEMPORARY_SYNC: Final = 235
_is(TEMPORARY_SYNC, b"ERR", b"a temporary tube has no copies: SYNC must be 1")
BAD_SYNC: Final = 236
_is(BAD_SYNC, b"ERR", b"SYNC must be from 1 to the number of nodes with copies, which is %d")
NO_NODE: Final = 237
_is(NO_NODE, b"ERR", b"no node of the cluster has that name, or it is not reachable")
NO_HOME_THERE: Final = 238
_is(
    NO_HOME_THERE,
    b"ERR",
    b"that node cannot lead the tube: it is read-only, is leaving, or has another tube of that "
    b"name",
)
NO_TYPE_THERE: Final = 239
_is(
    NO_TYPE_THERE,
    b"ERR",
    b"node %s lacks the type '%s' of tube '%s', which stays: install its package there and run "
    b"there TUBE REGISTERDRIVER '%s', or choose another node",
)
FAILED_THERE: Final = 240
_is(
    FAILED_THERE,
    b"ERR",
    b"on node %s the driver of type '%s' of tube '%s', which stays, has failed: INFO of the "
    b"tube says why there; fix it and restart that node, or choose another node",
)
MOVING: Final = 241
_is(MOVING, b"ERR", b"the leader of tube '%s' is changing already")
MOVE_BROKEN: Final = 242
_is(MOVE_BROKEN, b"ERR", b"the link to the new leader broke: tube '%s' stays")
MOVE_SLOW: Final = 243
_is(MOVE_SLOW, b"ERR", b"the new leader did not get all of tube '%s' within %d s: it stays")
MOVE_UNSURE: Final = 244
_is(MOVE_UNSURE, b"ERR", b"tube '%s' was handed to its new leader, which has not replied yet")
MOVE_ENDED: Final = 245
_is(MOVE_ENDED, b"ERR", b"the leader of tube '%s' changed meanwhile")
HOME_ALIVE: Final = 246
_is(HOME_ALIVE, b"ERR", b"the leader of tube '%s' is reachable: run TUBE HOME on it")
FEW_NODES: Final = 247
_is(FEW_NODES, b"ERR", b"this node reaches %d of %d nodes, and needs more than half of them")
LATER_COPY: Final = 248
_is(LATER_COPY, b"ERR", b"node %s has a later copy of tube '%s'")
NOT_LOADED: Final = 249
_is(NOT_LOADED, b"ERR", b"the %s '%s' cannot be loaded: %s")
LATE: Final = 250
_is(LATE, b"FEWCOPIES", b"done here, but not yet on %d nodes: do not repeat it", iproto=7)
LEAVING: Final = 251
_is(
    LEAVING,
    b"LEAVING",
    b"This node is leaving the cluster, please connect to a different one",
    iproto=7,
)
NO_CALLBACK: Final = 252
_is(NO_CALLBACK, b"ERR", b"this server has no callback named '%s'")
NO_USER: Final = 253
_is(NO_USER, b"ERR", b"User '%s' is not found", iproto=45)
NO_ROLE: Final = 254
_is(NO_ROLE, b"ERR", b"Role '%s' is not found", iproto=82)
NO_RETRY_0: Final = 255
_is(NO_RETRY_0, b"ERR", b"'%s' is a tube: its tasks come back, RETRY is 1 or more")
NO_COPIES: Final = 256
_is(NO_COPIES, b"ERR", b"'%s' is a tube: SYNC says which copies count, REPLICATE is 1")
NO_OPTION: Final = 257
_is(NO_OPTION, b"ERR", b"'%s' is a tube of type %s: it has no %s")
BY_VOTE: Final = 258
_is(
    BY_VOTE,
    b"ERR",
    b"votes choose the leader of tube '%s': FORCE is for a tube of which no voter has all, "
    b"once a majority of the voters has been here for %d s and has chosen none",
)
MUST_VOTE: Final = 259
_is(
    MUST_VOTE,
    b"ERR",
    b"FAILOVER no is no longer supported: where nodes vote, each tube that is not temporary "
    b"gets a new leader by votes. Leave FAILOVER out; SYNC 1 answers without waiting for others",
)
NO_LIST: Final = 260
_is(
    NO_LIST,
    b"ERR",
    b"there is no list of voters: three nodes or more with tube-failover yes make one",
)
NO_VOTE_HERE: Final = 261
_is(NO_VOTE_HERE, b"ERR", b"this node does not vote: use a voter, CLUSTER VOTERS shows them")
LIST_CHANGING: Final = 262
_is(LIST_CHANGING, b"ERR", b"the list of voters is changing already, see CLUSTER VOTERS")
CANNOT_VOTE: Final = 263
_is(CANNOT_VOTE, b"ERR", b"node %s cannot vote: it is not linked here, or does not know the list")
IS_NO_VOTER: Final = 264
_is(IS_NO_VOTER, b"ERR", b"node %s is no voter")
LAST_VOTER: Final = 265
_is(LAST_VOTER, b"ERR", b"that is the last voter")
UNSETTLED: Final = 266
_is(
    UNSETTLED,
    b"ERR",
    b"the list stays: no majority has all of tube '%s' under the present one yet",
)
LIST_LATE: Final = 267
_is(LIST_LATE, b"ERR", b"a majority of the voters did not answer in time: see CLUSTER VOTERS")
NAME_THIS_NODE: Final = 268
_is(NAME_THIS_NODE, b"ERR", b"name this node too: the voters must be here")
MAJORITY_HERE: Final = 269
_is(MAJORITY_HERE, b"ERR", b"a majority of the voters is here: use CLUSTER VOTERS REMOVE and ADD")
NO_SCHEDULES: Final = 270
_is(
    NO_SCHEDULES,
    b"NOTUBE",
    b"tube '%s' has no schedules: they need a tube of type tasks that stays",
)
NO_SCHEDULE: Final = 271
_is(NO_SCHEDULE, b"NOSCHEDULE", b"tube '%s' has no schedule '%s'")
MANY_SCHEDULES: Final = 272
_is(MANY_SCHEDULES, b"ERR", b"tube '%s' has %d schedules, the most that a tube keeps")
IS_SCHEDULE: Final = 273
_is(IS_SCHEDULE, b"WRONGTUBE", b"task %d is a schedule: use SCHEDULE PAUSE")
NO_MAJORITY_LEFT: Final = 274
_is(
    NO_MAJORITY_LEFT,
    b"ERR",
    b"without node %s too few of the voters left are here and can vote: see CLUSTER VOTERS; if "
    b"others are lost for good, use CLUSTER VOTERS FORCE",
)
NAME_ALL_HERE: Final = 275
_is(NAME_ALL_HERE, b"ERR", b"node %s is here and can vote: name it too")
NO_MAJORITY_HERE: Final = 276
_is(
    NO_MAJORITY_HERE,
    b"ERR",
    b"%d of %d voters are here and can vote, which is no majority: see CLUSTER VOTERS; if the "
    b"others are lost for good, use CLUSTER VOTERS FORCE",
)
NO_LIMITS: Final = 277  # about: tube
_is(NO_LIMITS, b"NOTUBE", b"'%s' has no limits: they need a tube of type tasks")
NO_VOTES_YET: Final = 279
_is(
    NO_VOTES_YET,
    b"ERR",
    b"no majority has voted for this node yet: it asks again, see TUBE HOME %s",
)
JOURNAL_IS_OFF: Final = 280  # about: node
_is(
    JOURNAL_IS_OFF,
    b"ERR",
    b"node %s has no journal, so its votes would not last: run CONFIG SET appendonly yes on it "
    b"first",
)
JOURNAL_FAILS: Final = 281  # about: node
_is(
    JOURNAL_FAILS,
    b"ERR",
    b"the journal of node %s cannot be written: see journal_error in INFO there; it works "
    b"again by itself once its disk has room",
)
OWN_JOURNAL: Final = 282
_is(
    OWN_JOURNAL,
    b"ERR",
    b"the journal of this node cannot be written, so that other nodes may not get its "
    b"messages: see journal_error in INFO; try again when it works",
)
STRANGE_TASK: Final = 283
_is(
    STRANGE_TASK,
    b"NOQUORUM",
    b"this node does not know the tube of task %s, and not all nodes are in reach: try again soon",
)
NO_GROUP: Final = 300
_is(NO_GROUP, b"NOJOBGROUP", b"tube '%s' has no group '%s'")
MANY_GROUPS_OF_JOBS: Final = 301
_is(MANY_GROUPS_OF_JOBS, b"ERR", b"tube '%s' has %d groups, the most that a tube keeps")
BAD_INDEX: Final = 302
_is(BAD_INDEX, b"ERR", b"the children of group '%s' have the indexes 0 to %d")
IS_MEMBER: Final = 303
_is(IS_MEMBER, b"WRONGTUBE", b"task %d belongs to a group: use GROUP CANCEL")
NO_GROUPS: Final = 304
_is(NO_GROUPS, b"NOTUBE", b"tube '%s' has no groups: they need a tube of type tasks that stays")
IS_KEY: Final = 305
_is(IS_KEY, b"WRONGTUBE", b"task %d keeps a UNIQUE key: delete it to free the key")
NO_CAPACITY: Final = 306  # about: tube
_is(
    NO_CAPACITY,
    b"ERR",
    b"tube '%s': the type tasks has no capacity, use MAXLEN of ADDJOB, which refuses what is "
    b"too much",
)
NO_FAILOVER: Final = 307  # about: tube, nodes that may vote, nodes
_is(
    NO_FAILOVER,
    b"ERR",
    b"tube '%s' would have no failover: %d of %d nodes vote, 3 are needed: set appendonly yes "
    b"and tube-failover yes on them, or add ALONE: then it waits for its leader, or for "
    b"TUBE HOME with FORCE",
)
LIST_COMES: Final = 308  # about: tube
_is(LIST_COMES, b"NOQUORUM", b"Tube '%s': the nodes agree on who votes: try again soon")
UNCONFIRMED: Final = 309  # about: tube
_is(
    UNCONFIRMED,
    b"NOQUORUM",
    b"Tube '%s' is led here, but too few voters confirm that now: try again soon",
)
FEW_VOTERS: Final = 311  # about: tube, voters that are here, voters
_is(FEW_VOTERS, b"NOQUORUM", b"Tube '%s' is not made: %d of %d voters are here, try again soon")
NOT_MADE: Final = 312  # about: tube
_is(
    NOT_MADE,
    b"FEWCOPIES",
    b"tube '%s' has no leader: too few voters confirmed it in time. TUBE INFO says if it exists",
    iproto=7,
)
OTHER_TUBE_THERE: Final = 313  # about: node, tube
_is(
    OTHER_TUBE_THERE,
    b"ERR",
    b"node %s cannot be added: it has a tube of its own named '%s', drop one of the two first",
)
NO_VALUES: Final = 314
_is(NO_VALUES, b"NOTUBE", b"tube '%s' has no values: they need a tube of type tasks that stays")
VALUES_FULL: Final = 315  # about: tube, bytes
_is(
    VALUES_FULL,
    b"OOM",
    b"the values of tube '%s' would take more than %d bytes: drop some, give a shorter TTL, or "
    b"raise values-max-bytes",
)
HAS_PARTS: Final = 316
_is(HAS_PARTS, b"ERR", b"'%s' is a set of parts: use VALUE TALLY, PARTS or DROP")
NO_PARTS: Final = 317
_is(NO_PARTS, b"ERR", b"'%s' is a value, and no set of parts")
NO_NUMBER: Final = 318
_is(NO_NUMBER, b"ERR", b"the value '%s' is no number of 64 bits with a sign")
LARGE_SUM: Final = 319
_is(LARGE_SUM, b"ERR", b"the sum of '%s' would have more than 64 bits with a sign")
IS_FIXED_VALUE: Final = 320
_is(IS_FIXED_VALUE, b"ERR", b"the value '%s' is FIXED: only VALUE DROP and its TTL end it")
IS_VALUE: Final = 321
_is(IS_VALUE, b"WRONGTUBE", b"task %d is a named value: use VALUE DROP")
MANY_PATTERNS: Final = 326
_is(MANY_PATTERNS, b"ERR", b"queue '%s' has %d patterns in topic '%s', the most that it may have")
SETTINGS_TUBE: Final = 323
_is(SETTINGS_TUBE, b"ERR", b"'%s' is a tube: only queues have settings")
TENANT_SETTINGS: Final = 325
_is(TENANT_SETTINGS, b"QUOTA", b"tenant '%s' has settings of %d queues, a quarter: delete some")
QUEUE_FULL: Final = 329  # about: queue, number
_is(
    QUEUE_FULL,
    b"MAXLEN",
    b"queue '%s' has %d jobs or more at this node, the MAXLEN of its settings: let workers catch "
    b"up, or raise it with QUEUE SET",
)
PURGE_SHORT: Final = 330  # about: number, queue
_is(
    PURGE_SHORT,
    b"NOREACH",
    b"a node did not answer: %d jobs of queue '%s' were removed at the others, try again once it "
    b"is back",
)
MANY_SETTINGS: Final = 324
_is(MANY_SETTINGS, b"ERR", b"%d queues have settings, the most that a node keeps: delete some")
NO_VOTE_THERE: Final = 310  # about: tube, node, node
_is(
    NO_VOTE_THERE,
    b"ERR",
    b"tube '%s': node %s does not vote, so it cannot lead: CLUSTER VOTERS ADD %s first",
)
OLDER_NAMED: Final = 328  # about: node, tube
_is(
    OLDER_NAMED,
    b"ERR",
    b"node %s has older changes of tube '%s' than others that you name, and could lead it: name "
    b"two nodes, one of them with the newest, and stop voters that you leave out: they join later",
)
SYNC_ABOVE_VOTERS: Final = 327  # about: tube, its SYNC, voters
_is(
    SYNC_ABOVE_VOTERS,
    b"NOREPL",
    b"tube '%s' has SYNC %d, and the voters are %d: nothing was done, add voters with CLUSTER "
    b"VOTERS ADD <node>",
    iproto=7,
)
NEWER_THERE: Final = 322  # about: node, tube
_is(
    NEWER_THERE,
    b"ERR",
    b"node %s has newer changes of tube '%s' than the nodes that you name: name it too, or stop it",
)
