"""Why core refuses a command: a code and the arguments of its text.

server/replies/core_words.py has the texts. A function that may refuse returns `Refusal | None`;
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
NOREPL_PUBLISHED: Final = 17  # about: jobs, those with too few copies
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


@final
class Refusal:
    """Nothing was done. `about` has the arguments of the code's text, in order."""

    def __init__(self, code: i64, about: tuple[object, ...] = ()) -> None:
        self.code = code
        self.about = about
