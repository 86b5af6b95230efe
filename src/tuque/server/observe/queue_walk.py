"""A walk over the queues each 5 s, in slices: sums of the node, and which queues have points.

A node watches a bounded number of queues: these have points, and labels in the metrics. All others
are one, called `other` there (SPEC O3.4).
"""

from heapq import heappush, heappushpop
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.stats import BOUNDS, Histogram, Tally
from tuque.core.node.node import Node
from tuque.core.node.queue import Queue
from tuque.core.tables.staged import FAIR
from tuque.server.observe.rings import (
    COUNTS,
    LONG_MS,
    NONE_WIDE,
    OF_NODE,
    OF_QUEUE,
    SHORT_MS,
    TIMES,
    Points,
    differences,
)
from tuque.tubes.model.tube import Tube

WALK: Final = 2_000  # queues looked at in one turn
PAUSE_MS: Final = 25  # between two slices of a walk
LATE_MS: Final = 1_000  # points do not wait longer for a walk
IDLE_MS: Final = 900_000  # an empty queue may lose its place (O3.4)
WANTED: Final = 50  # queues that want a place, looked at after one walk
STEP: Final = 500  # watched queues that lose their points, or get one, in one turn
NONE: Final = [0] * COUNTS


@final
class Level:
    """Jobs of a queue, or of the node, by state; `oldest_ms`: since the oldest was due."""

    def __init__(self) -> None:
        self.ready: i64 = 0
        self.delayed: i64 = 0
        self.at_work: i64 = 0
        self.oldest_ms: i64 = 0

    def row(self) -> list[int]:
        """In the order of O3.3."""
        return [int(self.ready), int(self.delayed), int(self.at_work), int(self.oldest_ms)]


@final
class Watched:
    """A queue that has points and a label."""

    def __init__(self, name: bytes, tally: Tally, is_new: bool) -> None:
        self.name = name
        self.tally = tally
        self.since = NONE if is_new else tally.counts()  # its counts when the watch began
        self.points = Points(OF_QUEUE, self.since)
        self.score: i64 = 0


@final
class QueueWalk:
    """What is known of the queues, the watched ones first."""

    def __init__(self, now_ms: i64) -> None:
        self.limit: i64 = 200  # queues watched at most
        self.due_ms: i64 = now_ms // SHORT_MS * SHORT_MS + SHORT_MS  # end of the interval
        self.late_ms: i64 = 0  # end of an interval whose points wait for the walk; 0: none
        self.at: i64 = 0  # of the walk: so many queues are left
        self.watched: dict[bytes, Watched] = {}
        self.past = NONE  # what queues counted while they were watched that no longer are
        self.sums = Level()  # of the last whole walk, tasks of tubes among them
        self.walked = Level()  # of this one
        self.is_over = True  # the walk, and what follows it
        self.waiting: list[Watched] = []  # for their point of the last interval
        self.point_ms: i64 = 0  # its end
        self.is_minute = False  # it was the last of a minute
        # heaps of (score, name): the most that want a place, of tenants with much and of others
        self.best: list[tuple[int, bytes]] = []
        self.modest: list[tuple[int, bytes]] = []
        self.shares: dict[bytes, int] = {}  # places of each tenant
        self.points = Points(OF_NODE, NONE)
        self.waits = Points(TIMES, Histogram().buckets(), NONE_WIDE)  # O3.7
        self.works = Points(TIMES, Histogram().buckets(), NONE_WIDE)
        self.short_turns: list[int] = Histogram().buckets()  # at the end of the last interval
        self.long_turns = self.short_turns
        self.turns = Histogram()  # lengths of the loop's turns, in 0.1 ms
        self.turn_us_max: i64 = 0  # the longest since the last scrape
        self.turned_ns: i64 = 0  # when the last one ended, by the clock that measures work

    def bytes_used(self) -> i64:
        """Memory of all points."""
        used = self.points.bytes_used() + self.waits.bytes_used() + self.works.bytes_used()
        for w in self.watched.values():
            used += w.points.bytes_used()
        return used

    def note_turn(self, spent_ns: i64, now_ns: i64) -> None:
        """Count a turn of the loop, without its sleep."""
        self.turned_ns = now_ns
        self.turns.add((spent_ns + 99_999) // 100_000)
        spent_us = spent_ns // 1000
        if spent_us > self.turn_us_max:
            self.turn_us_max = spent_us

    def look(self, n: Node) -> i64:
        """[O3] The time has come: go on with the walk, and make points (O3.1).

        Returns when to look next.
        """
        if self.due_ms <= n.now_ms:
            self.late_ms = n.now_ms // SHORT_MS * SHORT_MS
            self.due_ms = self.late_ms + SHORT_MS
            if self.is_over:
                self.begin(n)
        if not self.is_over:
            self.walk(n)
        if self.late_ms > 0 and (self.is_over or self.late_ms + LATE_MS <= n.now_ms):
            self.record(n, self.late_ms)
            self.late_ms = 0
        elif len(self.waiting) > 0:
            self.record_some(n)
        is_done = self.is_over and len(self.waiting) == 0
        return self.due_ms if is_done else min(self.due_ms, n.now_ms + PAUSE_MS)

    # ---- the walk

    def begin(self, n: Node) -> None:
        """Start at the end of the table; what stays in it is met (core/node/tables.py)."""
        self.at = len(n.queue_list)
        self.walked = Level()
        self.best = []
        self.modest = []
        self.is_over = False

    def walk(self, n: Node) -> None:
        """Look at some queues; after the last one some that are watched no longer go."""
        if self.at > len(n.queue_list):
            self.at = len(n.queue_list)
        stop = max(self.at - WALK, 0)
        while self.at > stop:
            self.at -= 1
            self.meet(n, n.queue_list[self.at])
        if self.at == 0 and self.thin(n):
            self.is_over = True
            self.end(n)

    def thin(self, n: Node) -> bool:
        """[O3] Queues that are gone, or too many, lose their place; True: all of them (O3.8)."""
        left = STEP
        for w in list(self.watched.values()):
            if n.book.tallies.get(w.name) is not w.tally:
                if left == 0:
                    return False
                left -= 1
                self.leave(w)
        while len(self.watched) > self.limit:
            if left == 0:
                return False
            left -= 1
            self.leave(next(reversed(self.watched.values())))
        return True

    def meet(self, n: Node, q: Queue) -> None:
        """Add the queue to the sums, and to those that want a place."""
        sums = self.walked
        tally = q.tally
        is_new = tally.seen < 0
        moved = tally.added + tally.delivered
        score = moved - max(tally.seen, 0) + q.length
        tally.seen = moved
        tally.look(n.now_ms)
        sums.ready += q.length
        if isinstance(q, Tube):
            sums.delayed += q.delayed_count()
            sums.at_work += q.taken
        if q.length > 0:
            sums.oldest_ms = max(sums.oldest_ms, oldest_ms(n, q))
        w = self.watched.get(q.name)
        if w is not None and w.tally is tally:
            w.score = score
        elif w is None and len(self.watched) < self.limit:
            self.enter(Watched(q.name, tally, is_new), score)
        elif w is None and score > 0:
            entry = (int(score), q.name)
            heap = self.best if self.is_greedy(tally, 1) else self.modest
            if len(heap) < WANTED:
                heappush(heap, entry)
            elif heap[0] < entry:
                heappushpop(heap, entry)

    def end(self, n: Node) -> None:
        """The walk is over: give free places to the queues that want them most."""
        self.sums = self.walked
        for heap in (self.modest, self.best):
            heap.sort(reverse=True)
            for score, name in heap:
                tally = n.book.tallies.get(name)
                if tally is None or name in self.watched:
                    continue
                if len(self.watched) >= self.limit and not self.make_room(n, i64(score), tally):
                    break
                self.enter(Watched(name, tally, False), i64(score))
            heap.clear()

    def is_greedy(self, tally: Tally, more: i64) -> bool:
        """[N11] Whether its tenant has more than a quarter of the places, with these (N11.8)."""
        tenant = tally.owner.name
        return len(tenant) > 0 and (self.shares.get(tenant, 0) + more) * FAIR > self.limit

    def make_room(self, n: Node, score: i64, tally: Tally) -> bool:
        """[O3] Take its place from a queue that was idle long, or is far quieter (O3.4); first from
        those of a tenant with more than its share (N11.8)."""
        least: Watched | None = None
        spare: Watched | None = None
        is_greedy = self.is_greedy(tally, 1)
        for w in self.watched.values():
            q = n.queues.get(w.name)
            if w.tally.at_work + w.tally.delayed == 0 and (q is None or q.length == 0):
                if q is None or q.atime_ms + IDLE_MS <= n.now_ms:
                    self.leave(w)
                    return True
            if self.is_greedy(w.tally, 0):
                if spare is None or w.score < spare.score:
                    spare = w
            elif is_greedy and w.tally.owner.name != tally.owner.name:
                continue
            if least is None or w.score < least.score:
                least = w
        if spare is not None and not is_greedy:
            self.leave(spare)
            return True
        if least is None or score < 4 * least.score + 100:
            return False
        self.leave(least)
        return True

    def enter(self, w: Watched, score: i64) -> None:
        """The queue is watched; it has that score until the next walk."""
        w.score = score
        tenant = w.tally.owner.name
        self.shares[tenant] = self.shares.get(tenant, 0) + 1
        self.watched[w.name] = w

    def leave(self, w: Watched) -> None:
        """The queue is watched no more; what it counted stays out of `other`."""
        tenant = w.tally.owner.name
        self.shares[tenant] -= 1
        if self.shares[tenant] == 0:
            del self.shares[tenant]
        grown = differences(w.tally.counts(), w.since)
        self.past = [count + grown[i] for i, count in enumerate(self.past)]
        del self.watched[w.name]

    # ---- points

    def record(self, n: Node, at_ms: i64) -> None:
        """[O3] An interval has ended: points for the node and for each watched queue (O3.1)."""
        is_minute = at_ms % LONG_MS < SHORT_MS and at_ms // LONG_MS * LONG_MS > self.minute_ms()
        counts = n.book.total.counts()
        level = self.node_level(n)
        buckets = self.turns.buckets()
        used = int(n.used_bytes())
        lag = p99_us(differences(buckets, self.short_turns))
        self.short_turns = buckets
        self.points.add(at_ms, counts, [*level, lag, used])
        if is_minute:
            minute_ms = at_ms // LONG_MS * LONG_MS
            lag = p99_us(differences(buckets, self.long_turns))
            self.long_turns = buckets
            self.points.add_long(minute_ms, counts, [*level, lag, used])
        self.record_times(n, at_ms, is_minute)
        self.waiting = list(self.watched.values())
        self.waiting.reverse()
        self.point_ms = at_ms
        self.is_minute = is_minute
        self.record_some(n)

    def record_some(self, n: Node) -> None:
        """[O3] Points for some of the watched queues (O3.8)."""
        at_ms = self.point_ms
        for w in self.waiting[-STEP:]:
            row = level_of(n, w.name, w.tally).row()
            counts = w.tally.counts()
            w.points.add(at_ms, counts, row)
            if self.is_minute:
                w.points.add_long(at_ms // LONG_MS * LONG_MS, counts, row)
        del self.waiting[-STEP:]

    def record_times(self, n: Node, at_ms: i64, is_minute: bool) -> None:
        """[O3] How long jobs waited and ran in the interval (O3.7)."""
        waits, works = n.book.waits.buckets(), n.book.works.buckets()
        self.waits.add(at_ms, waits, [])
        self.works.add(at_ms, works, [])
        if is_minute:
            minute_ms = at_ms // LONG_MS * LONG_MS
            self.waits.add_long(minute_ms, waits, [])
            self.works.add_long(minute_ms, works, [])

    def minute_ms(self) -> i64:
        """The time of the node's newest point of a minute."""
        return self.points.long.last_ms()

    def node_level(self, n: Node) -> list[int]:
        """The node's jobs by state, as O3.3 has them."""
        total = n.book.total
        sums = self.sums
        delayed = int(total.delayed + sums.delayed)
        return [int(sums.ready), delayed, int(total.at_work + sums.at_work), int(sums.oldest_ms)]

    # ---- the rest, for the metrics

    def other_counts(self, n: Node, first: i64) -> list[int]:
        """What all queues counted but for the first watched ones; it never falls."""
        rest = differences(n.book.total.counts(), self.past)
        for i, w in enumerate(self.watched.values()):
            if i < first:
                rest = differences(rest, differences(w.tally.counts(), w.since))
        return rest


def level_of(n: Node, name: bytes, tally: Tally) -> Level:
    """The queue's jobs by state."""
    level = Level()
    level.delayed = tally.delayed
    level.at_work = tally.at_work
    q = n.queues.get(name)
    if q is not None:
        level.ready = q.length
        if isinstance(q, Tube):
            level.delayed += q.delayed_count()
            level.at_work += q.taken
        if q.length > 0:
            level.oldest_ms = oldest_ms(n, q)
    return level


def oldest_ms(n: Node, q: Queue) -> i64:
    """[O3] Since when the next job is due, in ms; at least 1 if there is one (O3.3)."""
    found: i64 = 0
    for job in q.next_ones():
        due_for_ms = n.now_ms - job.ctime_ns // 1_000_000 - i64(job.delay_s) * 1000
        found = max(found, max(due_for_ms, 1))
    return found


def p99_us(buckets: list[int]) -> int:
    """Within how many us 99 of 100 turns ended, as the bound of a bucket; 0: there were none."""
    most = sum(buckets) * 99
    seen = 0
    for i, count in enumerate(buckets):
        seen += count
        if seen > 0 and seen * 100 >= most:
            return (BOUNDS[i] if i < len(BOUNDS) else 2 * BOUNDS[-1]) * 100
    return 0
