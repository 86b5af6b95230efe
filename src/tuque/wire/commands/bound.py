"""The bounds of one command (SPEC L2): words, work in one turn, bytes of the reply.

And its cost: what its units of work are, and how many of them a call costs at the least.
"""

from typing import Final, final

from mypy_extensions import i64

ALL_WORDS: Final = 1_048_576  # the protocol's own limit (C2.4)
FEW_WORDS: Final = 64  # options may be repeated, within limits
SMALL: Final = 16_384  # bytes of a reply without a list
WHOLE: Final = -1  # units: everything on the node, in one turn; for operators only

ONE: Final = "Does one thing"
CUT: Final = "Cut: the reply has as much as fits"
SLICED: Final = "Sliced: continues in the next turns"
CUT_SLICED: Final = "Sliced, and cut at the reply's bound: continue with the cursor"
REFUSED: Final = "Refused: the error names the bound"
STOPS: Final = "Blocks all clients: see SPEC L2.6"

# what a unit of work is
OF_CALLS: Final = "the call"
OF_WORDS: Final = "words"
OF_JOBS: Final = "jobs"
OF_QUEUES: Final = "queues"
OF_TASKS: Final = "tasks looked at"
OF_TUBES: Final = "tubes"
OF_LETTERS: Final = "dead letters, steps of patterns"
OF_REASONS: Final = "reasons"
OF_POINTS: Final = "points"
OF_FILTERS: Final = "subscriptions, steps of patterns"
OF_INSTANTS: Final = "schedules, instants"
OF_GROUPS: Final = "groups looked at"
OF_CHILDREN: Final = "children looked at"
OF_KEYS: Final = "keys looked at"
OF_VALUES: Final = "names and parts looked at"
OF_HANDS: Final = "workers looked at, steps of patterns"
OF_USERS: Final = "users, words"
OF_CLIENTS: Final = "connections"
OF_NODES: Final = "nodes"
OF_OPTIONS: Final = "options, steps of patterns"
OF_ROWS: Final = "rows"
OF_NODE: Final = "everything on the node"


# ---- Up to which level of memory a command is taken, and why (SPEC M2.3, M2.4)

# refused above a part of maxmemory
JOBS: Final = "refused above 75 %: adds jobs here"
ELSEWHERE: Final = "above 75 % only other nodes take its jobs; refused above 100 %"
GROWS: Final = "refused above 100 %: adds what stays"
LONGER: Final = "refused above 100 % if it makes something new or longer"
# taken at every level
WORK: Final = "taken: takes, does or ends work"
STAGED: Final = "taken: what it adds counts since it was staged"
VIEW: Final = "taken: keeps nothing"
OWN: Final = "taken: what it keeps has a bound of its own"
OPERATES: Final = "taken: operates the node"


@final
class Bound:
    """One row. `words` includes the command's name; 0: the arity decides.

    `counts`: what a unit of its work is; `least`: the units that every call costs.
    """

    def __init__(
        self,
        words: i64,
        work: i64,
        reply: i64,
        beyond: str,
        counts: str,
        has_body: bool = False,
        least: i64 = 1,
    ) -> None:
        self.words = words
        self.work = work
        self.reply = reply
        self.beyond = beyond
        self.counts = counts
        self.has_body = has_body
        self.least = least
