"""State of the search for lost copies and their repair (SPEC K5, K7).

Plain data; core/repair/node_loss.py and core/repair/drain.py decide.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tuque.core.state.recent import Recent

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
GONE_MAX: Final = 100_000

# kinds of scans
STRIP: Final = 0  # the node has lost its copies
FORGET: Final = 1  # the node left the cluster
CHECK: Final = 2  # ask for its copies and those of the jobs' other holders
DOUBT: Final = 3  # ask only for its copies
COUNT: Final = 4  # find jobs with too few holders
RECHECK: Final = 5  # check again what waits for repair
SETTLE: Final = 6  # jobs queued here may be queued there, too (Q12)


@final
class Walk:
    """A scan, in slices, of the jobs that were there when it began."""

    def __init__(self, kind: i64, slot: i64, ids: list[bytes], is_late: bool) -> None:
        self.kind = kind
        self.slot = slot
        self.ids = ids
        self.is_late = is_late  # take the ids once the journal is loaded
        self.entered: i64 = -1  # jobs that had entered the node when `ids` was made; -1: unknown
        self.since_ms: i64 = 0  # SETTLE: the node knows of jobs queued before
        self.pos: i64 = 0
        self.spared: dict[bytes, None] = {}  # by job: the node became a holder after the scan began


@final
class Question:
    """A batch of ids sent to a peer in one ASK."""

    def __init__(
        self, ids: list[bytes], is_short: bool, sent_ms: i64, is_claim: bool = False
    ) -> None:
        self.ids = ids
        self.is_short = is_short
        self.is_claim = is_claim  # about jobs queued or held here (Q12)
        self.sent_ms = sent_ms


@final
class Asking:
    """Questions to one peer, waiting and sent."""

    def __init__(self) -> None:
        self.ids: deque[bytes] = deque()
        self.short_ids: deque[bytes] = deque()  # with too few copies (K5.4)
        self.claims: deque[bytes] = deque()  # queued or held here (Q12); sent before others
        self.questions: dict[int, Question] = {}  # by number, unanswered

    def has_claims(self) -> bool:
        """Whether any are about jobs queued or held here."""
        for question in self.questions.values():
            if question.is_claim:
                return True
        return len(self.claims) > 0

    def left(self) -> i64:
        """Number of ids without a reply."""
        count: i64 = len(self.ids) + len(self.short_ids) + len(self.claims)
        for question in self.questions.values():
            count += len(question.ids)
        return count


@final
class Short:
    """A job with too few copies. With `at_ms` 0 it is in a bucket, else it rests."""

    def __init__(self, now_ms: i64) -> None:
        self.since_ms = now_ms
        self.at_ms: i64 = 0
        self.targets: i64 = 0  # set of nodes that were sent a copy and have not replied
        self.asked: i64 = 0  # those of them that were asked for it
        self.refused: i64 = 0  # set of nodes that did not keep one


@final
class Leave:
    """A job that a leaving node hands over."""

    def __init__(self) -> None:
        self.kept: i64 = 0  # set of nodes that confirmed a copy
        self.asked: i64 = 0  # set of nodes that were asked
        self.refused: i64 = 0  # set of nodes that did not keep a copy


@final
class Losses:
    """The whole state, for one node."""

    def __init__(self) -> None:
        self.walks: deque[Walk] = deque()
        self.unsure: i64 = 0  # set of nodes that may lack copies they should have
        self.doubted: i64 = 0  # those of them being asked
        self.anew: i64 = 0  # set of nodes whose incarnation started without jobs
        self.renewed: i64 = 0  # set of nodes that others named in a newer incarnation (K2.3)
        self.must_count = False  # the journal held jobs with too few holders
        self.reach: i64 = 0  # the reachable nodes at the last check of waiting jobs
        self.asking: dict[int, Asking] = {}  # by slot
        self.question: i64 = 0  # number of the latest
        self.ask_ms: i64 = FAR  # when some can be sent
        self.short: dict[bytes, Short] = {}
        self.buckets: dict[int, deque[bytes]] = {}  # jobs to check, by number of copies
        self.rests: list[tuple[int, bytes]] = []  # heap: when resting jobs are checked
        self.window_ms: i64 = 0  # start of the span of `budget`
        self.budget: i64 = 0  # copies that can still be sent in it
        self.budget_bytes: i64 = 0
        self.repaired: i64 = 0  # copies sent by repair since the start
        self.gone = Recent(GONE_MAX)  # nodes that denied having a copy of a job (K5.7)
        # by slot and job, for nodes that may have missed that a holder left: expiry of the job, its
        # holders, and the heartbeat round of the message (K7)
        self.parted: dict[int, dict[bytes, tuple[int, int, int]]] = {}
        self.leaves: dict[bytes, Leave] = {}
        self.leave_ids: list[bytes] = []  # jobs of this pass of leaving
        self.leave_pos: i64 = 0
        self.leave_rests: list[tuple[int, bytes]] = []  # heap
        self.round_ms: i64 = 0  # when the next pass may begin
