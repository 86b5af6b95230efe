"""Why core refuses a command: a code and the arguments of its text.

server/replies/errors.py has the texts. A function that may refuse returns `Refusal | None`;
None means accepted, so that what is accepted allocates nothing.
"""

from typing import Final, final

from mypy_extensions import i64

# jobs (SPEC Q, R)
NOJOB: Final = 1
ACKED_ALREADY: Final = 2
LEASED_OUT: Final = 3
NOTDELIVERED: Final = 4
TOOLATE: Final = 5
NOREPL: Final = 6
NOREPL_LEAVING: Final = 7
NOREPL_MEMORY: Final = 8
NOREPL_TIMEOUT: Final = 9
NOREPL_REMOVED: Final = 10
AMO_ONE_COPY: Final = 11
DELAY_BEYOND_TTL: Final = 12
MAXLEN: Final = 13
NO_TUBE: Final = 14  # about: queue
PAUSED: Final = 15

# keys and publications (SPEC Z)
NOREPL_SAME_KEY: Final = 16
FEW_PUBLISHED: Final = 17  # about: jobs, those with too few copies
KEYS_FULL: Final = 18  # about: keys kept, keys wanted
NOSTAGE: Final = 19  # about: attempt, transaction
KEY_WAITS: Final = 20  # about: key
LONG_PUBLISH: Final = 21  # about: jobs at most
APPS_FULL: Final = 22  # about: apps

# leases (SPEC Y)
NOGROUP: Final = 23  # about: group
FENCED: Final = 24  # about: epoch, group, its owner, its epoch
AHEAD: Final = 25  # about: group, epoch, its epoch
NOBATCH: Final = 26  # about: group, batch, its last batch, the next one
OVER: Final = 27  # about: batch, group
ACKED_BATCH: Final = 28  # about: batch, group, last committed batch
NOPART: Final = 29  # about: batch, group, its last part, part
BATCHES_FULL: Final = 30  # about: group, batches
NO_HALVES: Final = 31  # about: group, batches
GROUPS_FULL: Final = 32  # about: groups
LEASE_LEAVING: Final = 33
TUBE_LEASED: Final = 34  # about: tube

# the life of a job (SPEC W)
STALE_RUN: Final = 35  # about: run, the run since, or b"-"
FAILED_RUN: Final = 36  # about: run
NO_RUN_YET: Final = 37
ATWORK: Final = 38  # about: worker, seconds
LEASED_WORK: Final = 39
CANCELLED_JOB: Final = 40  # about: reason
DEAD_LETTER: Final = 41  # about: queue
RESTING: Final = 42
TASK_WORK: Final = 43  # about: tube
ATTEMPTS_OF_ONCE: Final = 44
TUBE_LIFE: Final = 45  # about: tube
MANY_STARTS: Final = 46
OVER_TIME: Final = 47  # about: seconds as text
TUBE_LETTERS: Final = 48  # about: tube
OVER_RUN: Final = 49  # about: run
DELIVERED_OUT: Final = 50  # about: seconds
HAS_COPIES: Final = 51
FEW_ATTEMPTS: Final = 52  # about: attempts that failed
CHANGING: Final = 53
NOT_HELD: Final = 54
TASK_UPDATE: Final = 55  # about: tube
NOREACH: Final = 56  # about: nodes
NOREACH_YET: Final = 57  # about: nodes
NOREPL_LETTERS: Final = 58  # about: MB of dead letters
NOREPL_OUTCOMES: Final = 59  # about: MB of kept outcomes
NO_KEYS: Final = 60
DUPLICATE: Final = 61  # about: id of the job that has the key
TUBE_KEYS_FULL: Final = 62  # about: tube, its most keys
DELAY_FOR_EVER: Final = 63
NOREACH_RESULT: Final = 64  # about: nodes
NOREPL_BOTH: Final = 65  # about: MB of dead letters, MB of kept outcomes
NOREPL_LOST: Final = 66
TUBE_FULL: Final = 67  # about: tube, its capacity
TASK_APART: Final = 68  # about: id, what it is and what to use
NOREACH_OWN: Final = 69
FULL: Final = 70
FULL_LETTERS: Final = 71  # about: MB of dead letters
FULL_OUTCOMES: Final = 72  # about: MB of kept outcomes
FULL_BOTH: Final = 73  # about: MB of dead letters, MB of kept outcomes

# topics (SPEC T60)
TOPIC_FULL: Final = 101  # about: topic, its subscriptions
SUBSCRIPTIONS_FULL: Final = 102  # about: subscriptions
FEW_OF_TOPIC: Final = 103  # about: jobs with too few copies, all jobs
TENANT_TOPICS: Final = 104  # about: tenant, its subscriptions
TOPICS_UNHEARD: Final = 105


@final
class Refusal:
    """Nothing was done. `about` has the arguments of the code's text, in order."""

    def __init__(self, code: i64, about: tuple[object, ...] = ()) -> None:
        self.code = code
        self.about = about
