"""The RESP error of each code in core/model/errors.py; words.py has those of tubes."""

from typing import Final

from tuque.core.model import errors as why
from tuque.core.model.errors import Refusal
from tuque.server.replies.words import NOREPL_TEXT, PAUSED_TEXT

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
    why.NOJOB: b"NOJOB Job not known in the context of this node.",
    why.ACKED_ALREADY: b"ACKED Job is already acknowledged.",
    why.LEASED_OUT: b"NOTDELIVERED Job is leased: LEASE TOUCH and LEASE FETCH extend its lease.",
    why.NOTDELIVERED: (
        b"NOTDELIVERED Job was not delivered yet, there is no processing to extend."
    ),
    why.TOOLATE: (
        b"TOOLATE Half of job TTL already elapsed, "
        b"you are no longer allowed to postpone the next delivery."
    ),
    why.NOREPL: NOREPL,
    why.NOREPL_LEAVING: NOREPL + SINCE + b"I'm leaving the cluster",
    why.NOREPL_MEMORY: NOREPL + SINCE + b"I'm out of memory",
    why.NOREPL_LETTERS: NOREPL + SINCE + b"I'm out of memory" + LETTERS_IN_WAY,
    why.NOREPL_OUTCOMES: NOREPL + SINCE + b"I'm out of memory" + OUTCOMES_IN_WAY,
    why.NOREPL_BOTH: NOREPL + SINCE + b"I'm out of memory" + BOTH_IN_WAY,
    why.NOREPL_TIMEOUT: (
        b"NOREPL Timeout reached before replicating to the requested number of nodes"
    ),
    why.NOREPL_LOST: b"NOREPL Too few nodes are left for the copies: the job is withdrawn",
    why.NOREPL_REMOVED: (
        b"NOREPL job removed (expired?) before the requested replication level was achieved"
    ),
    why.AMO_ONE_COPY: (
        b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
    ),
    why.DELAY_BEYOND_TTL: (
        b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
    ),
    why.DELAY_FOR_EVER: b"ERR DELAY must be below 2147483647 seconds, the longest TTL",
    why.MAXLEN: b"MAXLEN Queue is already longer than the specified MAXLEN count",
    why.NO_TUBE: b"ERR '%s' is no tube: PRI and UTUBE mean nothing to a queue",
    why.PAUSED: b"PAUSED " + PAUSED_TEXT,
    why.NOREPL_SAME_KEY: (
        b"NOREPL Timeout reached before the job with this DEDUPE key had its copies"
    ),
    why.FEW_PUBLISHED: (
        b"FEWCOPIES all %d jobs are published, but %d of them have fewer copies than asked for, "
        b"since nodes are away: do not publish them again"
    ),
    why.KEYS_FULL: (
        b"OOM this node keeps %d DEDUPE keys, at most %d, and would need %d more: raise "
        b"dedupe-max-keys, give a shorter DEDUPETTL, or wait until some are over"
    ),
    why.NOSTAGE: (
        b"NOSTAGE nothing is staged in attempt '%s' of transaction '%s': it was never staged, "
        b"dropped after its time, or published; stage it again"
    ),
    why.KEY_WAITS: (
        b"NOREPL the job with DEDUPE key '%s' still waits for its copies: nothing was done, "
        b"try again soon"
    ),
    why.LONG_PUBLISH: (
        b"ERR PUBLISH takes at most %d jobs at once: publish them as several versions"
    ),
    why.APPS_FULL: (
        b"ERR this node keeps the versions of %d apps, each for 30 days after its last use: "
        b"use fewer names"
    ),
    why.NOGROUP: b"NOGROUP there is no group '%s' on this node: begin with LEASE OPEN",
    why.FENCED: (
        b"FENCED epoch %d of group '%s' is over, '%s' has opened it with epoch %d: "
        b"stop, or take it over with LEASE OPEN"
    ),
    why.AHEAD: (
        b"NOGROUP group '%s' has had no epoch %d here, its last is %d: LEASE OPEN it again"
    ),
    why.NOBATCH: b"NOBATCH group '%s' has no batch %d: its last is %d, the next one must be %d",
    why.OVER: b"NOBATCH batch %d of group '%s' was given up, its jobs are queued: take a new one",
    why.ACKED_BATCH: b"ACKED batch %d of group '%s' is committed, as is all up to %d",
    why.NOPART: b"NOBATCH batch %d of group '%s' has the parts 0 to %d, there is no part %d",
    why.BATCHES_FULL: (
        b"ERR group '%s' has %d batches that are not committed: LEASE COMMIT some first"
    ),
    why.NO_HALVES: b"ERR group '%s' has %d batches that are not committed: no more are made",
    why.GROUPS_FULL: (
        b"ERR this node has %d groups with a lease: LEASE RELEASE those that are not used"
    ),
    why.LEASE_LEAVING: (
        b"LEAVING this node leaves the cluster and begins no batch: ask another one"
    ),
    why.STALE_RUN: b"STALE Run %s is over: run %s began since",
    why.FAILED_RUN: b"STALE Run %s was counted as failed",
    why.OVER_RUN: b"STALE Run %s is over",
    why.NO_RUN_YET: b"STALE Nobody works on the job: START it first",
    why.ATWORK: b"ATWORK Job is at work at worker %s since %d s",
    why.LEASED_WORK: b"ATWORK Job is leased by a group: commit or release its batch first",
    why.DELIVERED_OUT: b"ATWORK Job was delivered %d s ago",
    why.FEW_ATTEMPTS: b"ERR ATTEMPTS must be above the %d that failed already",
    why.HAS_COPIES: (
        b"ERR Job is delivered at most once and has copies: it cannot be changed, "
        b"only cancelled and added again"
    ),
    why.CHANGING: b"ATWORK Job is changed by another client at this moment: try again",
    why.NOREACH: b"NOREACH Job is not known here, and may be at a node that did not answer: %s",
    why.NOREACH_RESULT: (
        b"NOREACH Job is done, but its result is not here, and may be at a node that did not "
        b"answer: %s"
    ),
    why.NOREACH_OWN: (
        b"NOREACH Job or its result is not here, and may be at another node: what this node asks "
        b"them waits for its journal, which cannot be written: see journal_error in INFO, or ask "
        b"another node"
    ),
    why.NOREACH_YET: (
        b"NOREACH Job is not known here, and may be at a node that did not answer: %s; "
        b"CANCEL may still take effect there"
    ),
    why.NOT_HELD: (
        b"NOREPL Not all nodes with copies of the job answered: nothing was changed, try again"
    ),
    why.CANCELLED_JOB: b"CANCELLED Job was cancelled: %s",
    why.DEAD_LETTER: b"DEAD Job is a dead letter of queue %s: DEAD REPLAY it",
    why.RESTING: b"NOTDELIVERED Job waits for its next attempt: it is delivered after its back-off",
    why.TASK_WORK: b"ERR '%s' is a tube: its tasks have no runs, use TUBE TAKE, ACK and RELEASE",
    why.TASK_APART: b"ERR %s is %s",
    why.TASK_UPDATE: b"ERR '%s' is a tube: UPDATEJOB changes PRI of its tasks, and nothing else",
    why.ATTEMPTS_OF_ONCE: b"ERR ATTEMPTS needs RETRY above 0",
    why.TUBE_LIFE: (
        b"ERR '%s' is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and HEADERS are of queues "
        b"and tubes of type tasks"
    ),
    why.MANY_STARTS: b"ERR Job was started 16777215 times: FAIL it with FINAL, or DELJOB it",
    why.OVER_TIME: b"TOOLATE The run is over its TIMELIMIT of %s s",
    why.NO_KEYS: b"NOTUBE UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks",
    why.DUPLICATE: b"DUPLICATE %s has this UNIQUE key",
    why.TUBE_KEYS_FULL: b"OOM tube '%s' has %d keys, the most that a tube keeps",
    why.TUBE_LETTERS: b"ERR '%s' is a tube: dead letters go to a queue",
    why.TOPIC_FULL: (
        b"ERR topic '%s' has %d subscriptions, the most that a topic has: unsubscribe one, or "
        b"use another topic"
    ),
    why.SUBSCRIPTIONS_FULL: (
        b"ERR %d queues are subscribed to topics, the most that a node keeps: unsubscribe some"
    ),
    why.TENANT_TOPICS: (
        b"QUOTA tenant '%s' has %d subscriptions to topics, a quarter of what a node keeps: "
        b"unsubscribe some"
    ),
    why.TOPICS_UNHEARD: (
        b"LOADING this node has started, and has not heard all subscriptions of other nodes yet: "
        b"nothing was added, try again soon"
    ),
    why.TUBE_FULL: b"MAXLEN tube '%s' is full: its capacity is %d tasks",
    why.FEW_OF_TOPIC: (
        b"FEWCOPIES all jobs of the topic are added, %d of %d with fewer copies than asked for, "
        b"since nodes are away: do not add them again"
    ),
    why.TUBE_LEASED: b"ERR '%s' is a tube: its tasks are taken one by one, not leased",
}


def core_words(refused: Refusal) -> bytes:
    """The RESP error of a refusal, without the `-`."""
    text: bytes = WORDS[int(refused.code)] % refused.about
    return text
