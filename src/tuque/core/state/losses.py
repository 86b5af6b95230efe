"""What a node remembers while it looks for lost copies and makes them again (SPEC K5, K7).

Plain data: when a job is asked for or sent is core/repair/node_loss.py's and
core/repair/drain.py's.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

FAR: Final = (1 << 62) - 1  # the most that compiled code keeps without an object

# kinds of walks
STRIP: Final = 0  # the node has lost its copies
FORGET: Final = 1  # the node is out of the cluster
CHECK: Final = 2  # its copies, and those of the jobs' other holders, are to be asked for
DOUBT: Final = 3  # only its copies are to be asked for
COUNT: Final = 4  # jobs with too few holders are to be found
RECHECK: Final = 5  # what waits for repair is to be looked at again
SETTLE: Final = 6  # jobs that are queued here may be so there, too (Q12)


@final
class Walk:
    """A look at jobs, some at a time: at those that were there when it began."""

    def __init__(self, kind: i64, slot: i64, ids: list[bytes], is_late: bool) -> None:
        self.kind = kind
        self.slot = slot
        self.ids = ids
        self.is_late = is_late  # the ids are taken when the journal is loaded
        self.since_ms: i64 = 0  # SETTLE: jobs that were queued before are known there
        self.pos: i64 = 0
        self.spared: dict[bytes, None] = {}  # by job: the node became a holder after it began


@final
class Question:
    """A batch of ids that a peer was asked for."""

    def __init__(
        self, ids: list[bytes], is_short: bool, sent_ms: i64, is_claim: bool = False
    ) -> None:
        self.ids = ids
        self.is_short = is_short
        self.is_claim = is_claim  # of jobs that are queued or held here (Q12)
        self.sent_ms = sent_ms


@final
class Asking:
    """What one peer is to be asked, and was asked."""

    def __init__(self) -> None:
        self.ids: deque[bytes] = deque()
        self.short_ids: deque[bytes] = deque()  # with too few copies (K5.4)
        self.claims: deque[bytes] = deque()  # queued or held here (Q12), asked for before others
        self.questions: dict[int, Question] = {}  # by number, unanswered

    def has_claims(self) -> bool:
        """Whether some are asked about that are queued or held here."""
        for question in self.questions.values():
            if question.is_claim:
                return True
        return len(self.claims) > 0

    def left(self) -> i64:
        """Ids that wait for an answer."""
        count: i64 = len(self.ids) + len(self.short_ids) + len(self.claims)
        for question in self.questions.values():
            count += len(question.ids)
        return count


@final
class Short:
    """A job with too few copies. With `at_ms` 0 it stands in a bucket, else it rests."""

    def __init__(self, now_ms: i64) -> None:
        self.since_ms = now_ms
        self.at_ms: i64 = 0
        self.targets: i64 = 0  # set of nodes that got a copy and have not replied
        self.asked: i64 = 0  # those of them that were asked for it
        self.refused: i64 = 0  # set of nodes that did not keep one


@final
class Gone:
    """The nodes that said of a job, not long ago, that they have no copy (K5.7)."""

    def __init__(self, nodes: i64, until_ms: i64) -> None:
        self.nodes = nodes
        self.until_ms = until_ms


@final
class Leave:
    """A job that a leaving node gives away."""

    def __init__(self) -> None:
        self.kept: i64 = 0  # set of nodes that confirmed that they have it
        self.asked: i64 = 0  # set of nodes that are to say so
        self.refused: i64 = 0  # set of nodes that did not keep a copy


@final
class Losses:
    """All of it, for one node."""

    def __init__(self) -> None:
        self.walks: deque[Walk] = deque()
        self.unsure: i64 = 0  # set of nodes that may lack copies they are believed to have
        self.doubted: i64 = 0  # those of them that are being asked
        self.anew: i64 = 0  # set of nodes whose incarnation began without jobs
        self.renewed: i64 = 0  # set of nodes that others named in a newer incarnation (K2.3)
        self.must_count = False  # jobs with too few holders came from the journal
        self.reach: i64 = 0  # the reachable nodes when waiting jobs were last looked at
        self.asking: dict[int, Asking] = {}  # by slot
        self.question: i64 = 0  # number of the last one
        self.ask_ms: i64 = FAR  # when some may be sent
        self.short: dict[bytes, Short] = {}
        self.buckets: dict[int, deque[bytes]] = {}  # those to be looked at, by copies they have
        self.rests: list[tuple[int, bytes]] = []  # heap: when others are looked at again
        self.window_ms: i64 = 0  # start of the span that `budget` is for
        self.budget: i64 = 0  # copies that may still be sent in it
        self.budget_bytes: i64 = 0
        self.repaired: i64 = 0  # copies sent by repair since the start
        self.gone: dict[bytes, Gone] = {}  # by job, the latest news at the end
        # by slot and job: what the node may not have heard of a holder that left, which is the end
        # of the job: its holders, and the round in which that was said (K7)
        self.parted: dict[int, dict[bytes, tuple[int, int, int]]] = {}
        self.leaves: dict[bytes, Leave] = {}
        self.leave_ids: list[bytes] = []  # jobs of this round of leaving
        self.leave_pos: i64 = 0
        self.leave_rests: list[tuple[int, bytes]] = []  # heap
        self.round_ms: i64 = 0  # when the next round may begin
