"""State of repair: lost copies, held jobs, notes about ids; demand of queues (SPEC K5, K7, Q11, F).

Plain data; core/repair/ and core/copies/ decide.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job import Job

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

SOURCE_MS: Final = 5_000  # how long a node that sent jobs is a source (F1.3)
BUCKET_MS: Final = 1_000  # the import rate covers the last one to two of these
DEMAND_BYTES: Final = 900  # of a demand, without its name
KEPT_MAX_MS: Final = 600_000  # how long jobs that came for a poll wait for the next one here
STANDING_MS: Final = 500  # a request for a poll that stands as long is one of who polls often
LINGER_MS: Final = 200  # how long a request outlives the last waiting client
GAP_MAX_MS: Final = 4_000  # clients that poll at longer intervals are not waited for
COUNT_LOW: Final = 5
COUNT_HIGH: Final = 100


# ---- Jobs that wait until it is clear which node serves them (SPEC Q11, Q12)
#
# Plain data; core/repair/claims.py decides when jobs are held, asked about and released.


@final
class Held:
    """Jobs waiting for replies of other holders, and the nodes that may reply."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []  # held jobs, and some no longer held
        self.starting: i64 = 0  # set of nodes that may still connect after the start
        self.until_ms: i64 = 0  # until then
        self.able: i64 = 0  # set of nodes that could reply at the last check
        self.feeds: dict[int, int] = {}  # by slot: the position in `jobs` to continue asking from
        self.sweep_pos: i64 = -1  # position in `jobs` to check from; -1: nothing to check
        self.unasked: i64 = 0  # set of nodes that checked jobs wait for
        self.kept: i64 = 0  # of the checked ones, how many are still held
        self.sweep_ms: i64 = 0  # when to check `jobs` again


# ---- A bounded table of what was noted about ids lately (SPEC R2.7, K5.7)
#
# Plain data. An entry leaves in constant time: searching a dict for its oldest entry takes as many
# steps as were removed before it.


@final
class Entry:
    """A set of nodes, and until when it counts, in ms on the node's clock."""

    def __init__(self, nodes: i64, until_ms: i64) -> None:
        self.nodes = nodes
        self.until_ms = until_ms


@final
class Recent:
    """The latest note about each id; at most `most`, then the oldest leave."""

    def __init__(self, most: i64) -> None:
        self.most = most
        self.entries: dict[bytes, Entry] = {}
        self.order: deque[tuple[bytes, Entry]] = deque()  # some are no longer in the table

    def note(self, id: bytes, nodes: i64, until_ms: i64, now_ms: i64) -> None:
        """Keep that about the id; up to two old entries leave. Later calls have later times."""
        entry = Entry(nodes, until_ms)
        self.entries[id] = entry
        self.order.append((id, entry))
        for _ in range(2):
            old_id, old = self.order[0]
            if old.until_ms > now_ms and i64(len(self.order)) <= self.most:
                return
            self.order.popleft()
            if self.entries.get(old_id) is old:
                del self.entries[old_id]

    def nodes_of(self, id: bytes, now_ms: i64) -> i64:
        """The set noted for the id; empty if there is none, or its time is over."""
        entry = self.entries.get(id)
        return entry.nodes if entry is not None and entry.until_ms > now_ms else 0

    def remove(self, id: bytes, nodes: i64) -> None:
        """Take nodes out of the set of the id."""
        entry = self.entries.get(id)
        if entry is not None:
            entry.nodes &= ~nodes

    def pop(self, id: bytes, now_ms: i64) -> bool:
        """Forget the id; whether it was noted, and its time is not over."""
        entry = self.entries.pop(id, None)
        return entry is not None and entry.until_ms > now_ms

    def count(self) -> i64:
        """Number of ids."""
        return len(self.entries)


# ---- Lost copies and their repair (SPEC K5, K7)


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
        self.named: dict[bytes, None] = {}  # by job: others had named the new incarnation before


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
class Passing:
    """A kept outcome that a leaving node passes on (K7.10)."""

    def __init__(self) -> None:
        self.again_ms: i64 = 0  # when it is sent again
        self.refused: i64 = 0  # set of nodes that did not keep it
        self.tries: i64 = 0  # how often all of them refused


@final
class Losses:
    """The whole state, for one node."""

    def __init__(self) -> None:
        self.walks: deque[Walk] = deque()
        self.unsure: i64 = 0  # set of nodes that may lack copies they should have
        self.doubted: i64 = 0  # those of them being asked
        self.anew: i64 = 0  # set of nodes whose incarnation started without jobs
        self.renewed: i64 = 0  # set of nodes that others named in a newer incarnation (K2.3)
        # by slot and job: others named the node as a holder, in a newer incarnation (K5.1)
        self.named: dict[int, dict[bytes, None]] = {}
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
        self.passing: dict[bytes, Passing] = {}  # outcomes that are on their way
        self.pass_ids: list[bytes] = []  # those kept when this pass began
        self.pass_pos: i64 = 0
        self.pass_ms: i64 = 0  # when the next pass may begin
        self.sweep_ms: i64 = 0  # when `passing` is looked at again


# ---- What is known of a queue beyond this node: who sends its jobs, who wants them (SPEC F)
#
# Plain data with its arithmetic. A queue has such a record only while other nodes matter to it;
# core/copies/federation.py decides when to ask or give.


@final
class Wish:
    """A pending request of one node for jobs, at its sender or its receiver."""

    def __init__(self, count: i64, until_ms: i64, is_waiting: bool) -> None:
        self.count = count
        self.until_ms = until_ms
        self.is_waiting = is_waiting  # clients wait; else the queue ran empty


@final
class Demand:
    """Sources, wishes and imports of one queue. Nodes are given as slots."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.wishes: dict[int, Wish] = {}  # of other nodes, kept here
        self.asked: dict[int, Wish] = {}  # of this node, kept there
        self.sources: dict[int, int] = {}  # when they last sent jobs, ms
        self.new_ms: i64 = 0  # start of the current bucket
        self.new_count: i64 = 0
        self.old_ms: i64 = 0
        self.old_count: i64 = 0
        self.asked_ms: i64 = 0  # when nodes were last asked
        self.step_ms: i64 = 0  # pause before they are asked again
        self.idle_ms: i64 = 0  # since when no client waits here; 0: one does
        self.poll_ms: i64 = 0  # when a client last polled in vain
        self.lack: i64 = 1  # how many jobs it lacked
        self.seen_ms: i64 = 0  # when a client here last polled, or got a job
        self.gap_ms: i64 = 0  # the longest time between two of these lately; 0: too long
        self.gap_at_ms: i64 = 0  # when that was
        self.was_empty = False  # the last one left nothing
        self.imported_ms: i64 = 0  # when jobs last came from other nodes
        self.looks: dict[int, int] = {}  # how often other nodes' clients polled since `seen_ms`
        self.look_ms: i64 = 0  # its next instant in n.looks; 0: none

    def note_seen(self, now_ms: i64, is_empty: bool) -> None:
        """A client here polled, or got a job; `is_empty`: and left nothing."""
        self.was_empty = is_empty
        gap = now_ms - self.seen_ms
        if gap > GAP_MAX_MS:
            self.gap_ms = 0
        elif 8 * gap >= 7 * self.gap_ms or self.gap_at_ms + 4 * self.gap_ms < now_ms:
            self.gap_ms = gap
            self.gap_at_ms = now_ms
        self.seen_ms = now_ms
        if len(self.looks) > 0:
            self.looks = {}

    def kept_until_ms(self, slot: i64, asked_ms: i64, now_ms: i64) -> i64:
        """[F2.1] Until when jobs are kept from that node, whose clients only polled; 0: not at all.

        `asked_ms`: since when it asks.
        """
        until_ms = self.seen_ms + LINGER_MS if self.rate(now_ms) > 0 else 0
        if 0 < self.seen_ms <= self.imported_ms and self.looks.get(slot, 0) < 2:
            until_ms = max(until_ms, min(self.seen_ms + KEPT_MAX_MS, asked_ms + STANDING_MS))
        return max(until_ms, self.polled_until_ms())

    def polled_until_ms(self) -> i64:
        """[F2.1] Until when the next poll here is awaited, if the last one left nothing."""
        if not self.was_empty:
            return 0  # what is left is more than clients here take
        return self.seen_ms + self.gap_ms + self.gap_ms // 2

    def count_imports(self, now_ms: i64, count: i64) -> None:
        """Count imported jobs (F3.4)."""
        self.imported_ms = now_ms
        if now_ms - self.new_ms > BUCKET_MS:
            self.old_ms = self.new_ms
            self.old_count = self.new_count
            self.new_ms = now_ms
            self.new_count = 0
        self.new_count += count

    def rate(self, now_ms: i64) -> i64:
        """Jobs imported per second; 0 if none came for 5 s."""
        if self.new_ms == 0 or now_ms - self.new_ms > SOURCE_MS:
            return 0
        count = self.new_count
        start_ms = self.new_ms
        if self.old_ms > 0 and now_ms - self.old_ms <= SOURCE_MS:
            count += self.old_count
            start_ms = self.old_ms
        span_ms = now_ms - start_ms
        if span_ms < 50:
            span_ms = 50
        return (count * 1000 + span_ms - 1) // span_ms

    def drop_sources(self, now_ms: i64) -> None:
        """Forget nodes that sent nothing for 5 s."""
        for slot, last_ms in list(self.sources.items()):
            if now_ms - last_ms > SOURCE_MS:
                del self.sources[slot]

    def share(self, now_ms: i64, wanted: i64) -> i64:
        """Jobs to ask of each source: rate / sources, within 5..100 (F1.3)."""
        count: i64 = len(self.sources)
        count = self.rate(now_ms) // count if count > 0 else 0
        if count < wanted:
            count = wanted
        if count < COUNT_LOW:
            return COUNT_LOW
        return count if count < COUNT_HIGH else COUNT_HIGH

    def is_over(self, now_ms: i64) -> bool:
        """Whether the record can be dropped."""
        if self.polled_until_ms() > now_ms:
            return False
        return len(self.wishes) == 0 and len(self.asked) == 0 and self.rate(now_ms) == 0
