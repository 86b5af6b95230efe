"""Tombstones: ids that must not be accepted again, and for how long (SPEC A8).

Links are FIFO: once a node has answered a heartbeat begun after a tombstone was made, none of
its earlier messages can still arrive. Tombstones of one heartbeat round and one set of nodes
share a bucket, so that they are cheap and end together. A tombstone made before the collection
was complete (`keep`) stays until DELJOB ends it (`bury`) or it expires.
core/copies/ack_gc.py decides what is sent again.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from mypy_extensions import i64

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
TOMB_BYTES: Final = 140  # the id, its place in the table and in a bucket, measured
SLOT_BITS: Final = 15  # expiries are rounded up to 33 s, so that many share a bucket
ROUNDED_MS: Final = 1 << SLOT_BITS
SLOTS: Final = 62  # numbers of nodes, bits of a set, including this node's

# what a bucket waits for
OVER: Final = 0  # the job has ended everywhere: until all nodes of the set answered a round
PASSING: Final = 1  # the same, but the job may live on elsewhere
OPEN: Final = 2  # until DELJOB
CUSTODY: Final = 3  # until the node that sent the at-most-once job has dropped it


@final
class Bucket:
    """Tombstones that end together."""

    def __init__(self, kind: i64, round: i64, waits: i64, end_ms: i64) -> None:
        self.kind = kind
        self.round = round  # the latest heartbeat before it
        self.nodes = waits  # the other holders
        self.waits = waits  # those that have not answered a later round yet
        self.end_ms = end_ms
        self.ids: list[bytes] = []  # some may be in a later bucket by now
        self.is_gone = False


@final
class Tombs:
    """The tombstones of one node. Sets are bit sets of slots, without this node."""

    def __init__(self) -> None:
        self.ids: dict[bytes, Bucket] = {}
        self.filling: dict[tuple[int, int, int], Bucket] = {}  # by kind, set and end
        self.filling_round: i64 = -1
        self.last = Bucket(OVER, -1, 0, 0)
        self.waiting: dict[int, deque[Bucket]] = {}  # by slot, in order of rounds
        self.ends: list[tuple[int, int, Bucket]] = []  # heap of (instant, serial, bucket)
        self.serial: i64 = 0
        self.sweeping: list[Bucket] = []  # dropped, their ids still in the table
        self.behind: dict[bytes, int] = {}  # nodes that may have an outcome that fell (W14.17)

    def has(self, id: bytes) -> bool:
        """Whether the id has a tombstone (A8.2)."""
        return id in self.ids

    def is_over(self, id: bytes) -> bool:
        """Whether the job is known to have ended everywhere."""
        bucket = self.ids.get(id)
        return bucket is not None and bucket.kind == OVER

    def is_acked(self, id: bytes) -> bool:
        """Whether a holder has ended the job, not only somebody who has no copy of it."""
        bucket = self.ids.get(id)
        return bucket is not None and (bucket.kind == OVER or bucket.kind == OPEN)

    def is_empty(self) -> bool:
        """Whether `tick` will never have work."""
        return len(self.ids) == 0 and len(self.sweeping) == 0

    def count(self) -> i64:
        """Number of tombstones."""
        return len(self.ids)

    def lasting(self) -> list[bytes]:
        """Ids that a new snapshot of the journal needs: those that a message ends."""
        return [id for id, bucket in self.ids.items() if bucket.kind >= OPEN]

    def bytes_used(self) -> i64:
        """Memory used, in bytes (A8.3)."""
        return len(self.ids) * TOMB_BYTES

    def bury(self, id: bytes, expire_ms: i64, others: i64, round: i64) -> None:
        """The job has ended everywhere; keep until all `others` answered a heartbeat after `round`.

        Without others nothing is kept (A8.1).
        """
        self.put(id, OVER, round, others, expire_ms)

    def add(self, id: bytes, expire_ms: i64, holders: i64, round: i64) -> None:
        """Refuse copies in flight from other holders; ends as with `bury`."""
        self.put(id, PASSING, round, holders & ~1, expire_ms)

    def keep(self, id: bytes, expire_ms: i64) -> None:
        """Refuse copies for the other nodes, until DELJOB or expiry.

        Not if the job has ended everywhere: its DELJOB has arrived, and no other follows. A node
        that still asks had not received it yet, and will have when it gets the reply.
        """
        bucket = self.ids.get(id)
        if bucket is not None and bucket.kind == OVER and not bucket.is_gone:
            return
        self.put(id, OPEN, 0, 0, expire_ms)

    def keep_custody(self, id: bytes, expire_ms: i64) -> None:
        """The at-most-once job was here; keep until `let_go` or expiry."""
        self.put(id, CUSTODY, 0, 0, expire_ms)

    def let_go(self, id: bytes) -> None:
        """No node will resend the at-most-once job."""
        bucket = self.ids.get(id)
        if bucket is not None and bucket.kind == CUSTODY:
            del self.ids[id]

    def put(self, id: bytes, kind: i64, round: i64, waits: i64, expire_ms: i64) -> None:
        """Put the id into the matching bucket, a new one if there is none."""
        before = self.ids.get(id)
        if before is not None and before.kind == CUSTODY:
            return
        if kind <= PASSING and waits == 0:
            self.ids.pop(id, None)
            return
        end_ms: i64 = ((expire_ms >> SLOT_BITS) + 1) << SLOT_BITS
        last = self.last
        is_other = last.kind != kind or last.round != round or last.nodes != waits
        if is_other or last.end_ms != end_ms or last.is_gone:
            last = self.bucket_for(kind, round, waits, end_ms)
        last.ids.append(id)
        self.ids[id] = last

    def bucket_for(self, kind: i64, round: i64, waits: i64, end_ms: i64) -> Bucket:
        """The bucket that such tombstones now go to; becomes `last`."""
        if round > self.filling_round:  # 0, for those that wait for no round, is never later
            self.filling_round = round
            kept: dict[tuple[int, int, int], Bucket] = {}
            for key, old in self.filling.items():
                if old.kind > PASSING and not old.is_gone:
                    kept[key] = old
            self.filling = kept
        place = (int(kind), int(waits), int(end_ms))
        bucket = self.filling.get(place)
        if bucket is None or bucket.is_gone or bucket.round != round:
            bucket = Bucket(kind, round, waits, end_ms)
            self.filling[place] = bucket
            self.serial += 1
            heappush(self.ends, (end_ms, self.serial, bucket))
            self.wait_for(bucket)
        self.last = bucket
        return bucket

    def wait_for(self, bucket: Bucket) -> None:
        """Queue the bucket for each node it waits for."""
        slot: i64 = 0
        rest = bucket.waits
        while rest > 0:
            if rest & 1:
                queue = self.waiting.get(slot)
                if queue is None:
                    queue = deque()
                    self.waiting[slot] = queue
                queue.append(bucket)
            rest >>= 1
            slot += 1

    # ---- how they end

    def on_echo(self, slot: i64, round: i64) -> None:
        """[A8] The node answered that heartbeat: nothing older of it can still arrive (A8.1)."""
        queue = self.waiting.get(slot)
        if queue is None:
            return
        bit: i64 = 1 << slot
        while len(queue) > 0:
            bucket = queue[0]
            if not bucket.is_gone:
                if bucket.round >= round:
                    return
                bucket.waits &= ~bit
                if bucket.waits == 0:
                    self.drop(bucket)
            queue.popleft()
        del self.waiting[slot]

    def is_heard(self, slot: i64, round: i64) -> bool:
        """Whether `on_echo` has work."""
        queue = self.waiting.get(slot)
        return queue is not None and (queue[0].is_gone or queue[0].round < round)

    def owed_to(self, slot: i64) -> list[bytes]:
        """Ids of jobs whose end the node may have missed."""
        owed: list[bytes] = []
        queue = self.waiting.get(slot)
        if queue is None:
            return owed
        for bucket in queue:
            if not bucket.is_gone and bucket.kind == OVER:
                owed.extend(bucket.ids)
        return owed

    def drop(self, bucket: Bucket) -> None:
        """Drop a bucket; `sweep` removes its ids."""
        bucket.is_gone = True
        self.sweeping.append(bucket)

    def tick(self, now_ms: i64, most: i64) -> None:
        """Drop what has ended; sweep up to `most` ids out of the table."""
        while len(self.ends) > 0:
            end_ms, _, bucket = self.ends[0]
            if end_ms > now_ms and not bucket.is_gone:
                break
            heappop(self.ends)
            if not bucket.is_gone:
                self.drop(bucket)
        self.sweep(most)

    def sweep(self, most: i64) -> i64:
        """Remove up to `most` ids of dropped buckets from the table; returns how many."""
        done: i64 = 0
        while len(self.sweeping) > 0 and done < most:
            bucket = self.sweeping[len(self.sweeping) - 1]
            ids = bucket.ids
            while len(ids) > 0 and done < most:
                id = ids.pop()
                if self.ids.get(id) is bucket:
                    del self.ids[id]
                done += 1
            if len(ids) == 0:
                self.sweeping.pop()
        if len(self.ids) == 0 and done > 0:
            self.ids = {}  # frees the table
        return done

    def next_ms(self) -> i64:
        """The instant at which `tick` next has work; 0: now."""
        if len(self.sweeping) > 0:
            return 0
        while len(self.ends) > 0 and self.ends[0][2].is_gone:
            heappop(self.ends)
        return self.ends[0][0] if len(self.ends) > 0 else FAR

    def evict(self, reachable: i64, most: i64) -> i64:
        """[M3] Drop up to `most` ids that only unreachable nodes have not confirmed (M3.1)."""
        slot: i64 = 1
        while slot < SLOTS:
            queue = self.waiting.get(slot)
            if queue is not None and reachable >> slot & 1 == 0:
                while len(queue) > 0 and (queue[0].is_gone or queue[0].waits & reachable == 0):
                    bucket = queue.popleft()
                    if not bucket.is_gone:
                        self.drop(bucket)
                        if len(queue) == 0:
                            del self.waiting[slot]  # never left empty: `is_heard` reads the first
                        return self.sweep(most)
                if len(queue) == 0:
                    del self.waiting[slot]
            slot += 1
        return self.sweep(most)
