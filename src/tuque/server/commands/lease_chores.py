"""LEASE NEXT, COMMIT, OPEN and RELEASE of large batches, one slice per turn (SPEC L2, Y)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.leases.expiry import give_back_some, renew
from tuque.core.leases.leases import (
    BATCH_MAX,
    ack_some,
    begin_fill,
    begin_next,
    check,
    commit,
    end_next,
    find,
    no_batch,
    on_open,
    on_release,
    take_jobs,
)
from tuque.core.model.errors import Refusal
from tuque.core.model.timers import TURN_WORK
from tuque.core.tables.leases import Batch, Group
from tuque.server.replies.core_words import core_words
from tuque.server.state.chore import Chore
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.commands.arguments import ArgError
from tuque.wire.proto.resp import int_reply

COMMIT: Final = 0
RELEASE: Final = 1
OPEN: Final = 2


@final
class Next(Chore):
    """[Y2] LEASE NEXT: fill the batch."""

    def __init__(
        self,
        s: Server,
        c: Client,
        g: Group,
        seq: i64,
        count: i64,
        size: i64,
        parts: i64,
        ttl_ms: i64,
    ) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.group = g
        self.epoch = g.epoch
        self.seq = seq
        self.most: i64 = min(count, BATCH_MAX)
        self.size = size
        self.parts = parts
        self.ttl_ms = ttl_ms
        self.is_new_ttl = False
        self.batch: Batch | None = None
        self.taken: i64 = 0

    def step(self, room: i64) -> bool:
        """Take the next jobs."""
        n = self.s.n
        g = self.group
        error = find(n, g.name, self.epoch)
        if error is not None:
            raise ArgError(core_words(error))  # whoever ended the lease has requeued its jobs
        b = self.batch
        if b is None:
            if g.filling is not None:
                n.work += 1
                return False  # for another connection (Y2.7)
            self.taken, error = begin_next(n, g, self.seq)
            if error is not None:
                raise ArgError(core_words(error))
            if self.taken >= 0:
                return True
            self.is_new_ttl = begin_fill(n, g, self.ttl_ms)
            b = Batch(self.seq, self.parts)
            self.batch = b
            g.filling = b
            self.goes_on = True
        elif g.filling is not b:
            raise ArgError(core_words(no_batch(g, self.seq)))
        before: i64 = len(b.jobs)
        passed = n.passed
        end: i64 = min(self.most, before + room)
        is_over = take_jobs(n, self.client.number, g, b, end, self.size)
        n.work += len(b.jobs) - before + n.passed - passed
        renew(n, g)
        if not is_over and len(b.jobs) < self.most:
            if n.passed >= TURN_WORK:
                n.work = max(n.work, TURN_WORK)  # V2.3
            return False
        g.filling = None
        self.taken = end_next(n, g, b, self.most, self.is_new_ttl)
        return True

    def tell(self) -> None:
        """Reply with the size of the batch."""
        self.client.out.append(int_reply(self.taken))


@final
class Ending(Chore):
    """[Y1, Y4, Y5] COMMIT, RELEASE, and OPEN with takeover: process most jobs in slices first."""

    def __init__(self, s: Server, c: Client, what: i64, name: bytes, epoch: i64, seq: i64) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.what = what
        self.named = name
        self.epoch = epoch
        self.seq = seq  # for COMMIT
        self.owner = b""  # for OPEN
        self.queues: list[bytes] = []
        self.done: i64 = 0
        self.goes_on = True

    def step(self, room: i64) -> bool:
        """Ack or requeue the next jobs; at the end run the command itself."""
        n = self.s.n
        self.refuse()
        g = n.leases.groups.get(self.named)
        freed: i64 = 0
        done: i64 = 0
        if g is not None and not (self.what == OPEN and self.is_same(g)):
            if self.what == COMMIT:
                renew(n, g)
                done = ack_some(n, g, self.seq, room)
                freed = done
            else:
                freed, done = give_back_some(n, g, room)
        n.work += freed
        self.done += done
        if freed >= room:
            return False
        if self.what == COMMIT:
            self.done += commit(n, self.named, self.epoch, self.seq, self.done)
        elif self.what == RELEASE:
            assert g is not None
            self.done += on_release(n, g)
        else:
            self.done, error = on_open(n, self.named, self.owner, self.queues)
            if error is not None:
                raise ArgError(core_words(error))
        return True

    def refuse(self) -> None:
        """Raise ArgError when the command is not allowed (any more)."""
        error: Refusal | None = None
        if self.what == COMMIT:
            error = check(self.s.n, self.named, self.epoch, self.seq)
        elif self.what == RELEASE:
            error = find(self.s.n, self.named, self.epoch)
        if error is not None:
            raise ArgError(core_words(error))

    def is_same(self, g: Group) -> bool:
        """Whether the OPEN only renews the present owner (Y1.1)."""
        return g.owner == self.owner and g.queues == self.queues

    def tell(self) -> None:
        """Reply with the number of jobs; for OPEN, the epoch."""
        self.client.out.append(int_reply(self.done))
