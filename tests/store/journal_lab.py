"""A node, its journal on a disk in memory, and what a restart makes of the files."""

from __future__ import annotations

import base64
import random
import zlib
from pathlib import Path

from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.timers import tick
from tuque.core.leases.fetch import on_fetch
from tuque.core.leases.leases import (
    commit,
    on_lease_nack,
    on_next,
    on_open,
    on_release,
    on_touch,
)
from tuque.core.model.job import PLAIN, Job
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob, set_pause
from tuque.core.queues.procedures import check
from tuque.core.queues.requeue import on_nack
from tuque.core.records import read as back
from tuque.core.records.jobs import Records
from tuque.core.tables.leases import Batch, is_leased
from tuque.server.journal.committer import Committer
from tuque.store.disk import Disk, MemoryDisk
from tuque.store.frames import Boot
from tuque.store.replay import Loader

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
PATH = "/data/journal"
START_MS = 1_700_000_000_000
BOOT_ID = b"boot of the test"


class Lab:
    """A node whose journal is written at once, without a thread, into a MemoryDisk."""

    def __init__(
        self,
        disk: Disk | None = None,
        policy: str = "always",
        now_ms: int = START_MS,
        seed: int = 0,
        boot_id: bytes = BOOT_ID,
    ) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.n = Node(NODE_ID, b"seed%d" % seed, now_ms)
        self.n.records = Records()
        self.committer = Committer(self.disk, PATH, NODE_ID, now_ms, policy, threaded=False)
        self.committer.boot = Boot(now_ms, boot_id, now_ms - START_MS)
        self.committer.journal.boot = self.committer.boot
        self.log: list[str] = []

    def start(self) -> Loader:
        """Lock, load and write on, as the server does."""
        self.committer.lock()
        loader = self.committer.loader()
        while not loader.step(self.n, 7):
            pass
        assert self.n.records is not None
        self.n.records.take()
        self.committer.start(self.n.now_ms)
        return loader

    def turn(self, budget: int = 2) -> None:
        """End a turn: commit, and go on with a rewrite that runs."""
        assert self.n.records is not None
        self.committer.commit(self.n.records, self.n.now_ms)
        self.committer.on_turn(self.n, self.n.now_ms, budget)

    def add(
        self, queue: bytes = b"q", body: bytes = b"body", *, retry: int = 60, delay: int = 0
    ) -> bytes:
        spec = settle(self.n, PLAIN)
        spec.retry_s = retry
        spec.delay_s = delay
        spec.delay_ms = 1000 * delay
        spec.ttl_s = 86_400
        job = on_addjob(self.n, queue, body, spec)
        self.turn()
        return job.id

    def get(self, queue: bytes = b"q") -> bytes:
        jobs = on_getjob(self.n, 1, [queue], 1)
        self.turn()
        return jobs[0].id if jobs else b""

    def ack(self, job_id: bytes) -> None:
        on_ackjob(self.n, job_id)
        self.turn()

    def delete(self, job_id: bytes) -> None:
        on_deljob(self.n, job_id)
        self.turn()

    def nack(self, job_id: bytes, delay_ms: int = 0) -> None:
        on_nack(self.n, job_id, delay_ms)
        self.turn()

    def pause(self, queue: bytes, bits: int) -> None:
        set_pause(self.n, queue, bits)
        self.turn()

    def lease(self, rng: random.Random) -> None:
        """A command of a group of leases, chosen by chance."""
        n = self.n
        name = rng.choice((b"g", b"h"))
        g = n.leases.groups.get(name)
        choice = rng.randrange(10)
        if g is None or choice == 0:
            on_open(n, name, rng.choice((b"me", b"you")), [b"q", b"r"])
        elif choice < 5:
            parts = rng.randrange(1, 4)
            count = rng.randrange(1, 9)
            on_next(n, 1, g, g.last_seq + 1, count, 1 << 20, parts, rng.choice((1000, 9000)))
        elif choice == 5:
            on_release(n, g)
        elif g.batches:
            b = g.batches[rng.choice(list(g.batches))]
            if choice == 6:
                commit(n, name, g.epoch, b.seq)
            elif choice == 7:
                on_fetch(n, 1, g, b.seq, 0, 0, 10, 1 << 20, False)
            elif choice == 8:
                on_lease_nack(n, g, b.seq, [job.id for job in b.jobs][:1])
            else:
                on_touch(n, g, 2000)
        self.turn()

    def pass_ms(self, ms: int) -> None:
        self.n.now_ms += ms
        tick(self.n)
        self.turn()

    def rewrite(self, budget: int = 2) -> None:
        """A whole rewrite in the background way."""
        assert self.committer.start_rewrite(self.n, self.n.now_ms)
        for _ in range(len(self.n.jobs) + len(self.n.life.kept) + 5):
            if not self.committer.is_rewriting():
                return
            self.turn(budget)
        raise AssertionError("the rewrite does not end")

    def state(self) -> dict[bytes, tuple[object, ...]]:
        """All that a restart must bring back."""
        check(self.n)
        return state_of(self.n)


def state_of(n: Node) -> dict[bytes, tuple[object, ...]]:
    """Jobs by id, and pauses."""
    found: dict[bytes, tuple[object, ...]] = {job.id: facts(job) for job in n.jobs.values()}
    for name, q in n.queues.items():
        if q.pause:
            found[name] = (q.pause,)
    for g in n.leases.groups.values():
        found[b"lease " + g.name] = (
            g.owner,
            list(g.queues),
            g.epoch,
            g.last_seq,
            g.acked_seq,
            g.floor_seq,
            g.ttl_ms,
            [lease_facts(b) for b in g.batches.values()],
        )
    return found


def lease_facts(b: Batch) -> tuple[object, ...]:
    return (
        b.seq,
        b.parts,
        b.count,
        b.is_expired,
        b.drop_ms,
        [(job.id, is_leased(job)) for job in b.jobs],
        list(b.ids),
        list(b.marks),
    )


def facts(job: Job) -> tuple[object, ...]:
    return (
        job.queue,
        job.body,
        job.state,
        job.flags,
        job.qtime_ms,
        job.expire_ms,
        job.ctime_ns,
        job.retry_s,
        job.delay_s,
        job.repl,
        job.level,
        job.nacks,
        job.deliveries,
        job.delivered_count,
        job.first_ms,
        job.last_ms,
    )


def restarted(disk: Disk, now_ms: int, seed: int = 1) -> Lab:
    """A new process on what the disk holds; its node has loaded everything."""
    lab = Lab(disk, now_ms=now_ms, seed=seed)
    lab.start()
    return lab


def segment(disk: MemoryDisk) -> str:
    """Path of the newest segment."""
    return f"{PATH}/" + max(name for name in disk.listdir(PATH) if name.endswith(".log"))


def cut(disk: MemoryDisk, keep: int) -> MemoryDisk:
    """The disk after the power went, as a copy."""
    copy = MemoryDisk()
    copy.dirs = dict(disk.dirs)
    for path, file in disk.durable_names.items():
        handle = copy.open_append(path)
        copy.write(handle, bytes(file.data))
        copy.names[path].durable = file.durable
    copy.durable_names = dict(copy.names)
    copy.salts = disk.salts + 1000
    copy.power_cut(keep)
    copy.ops = 0
    return copy


def recorded(name: str) -> MemoryDisk:
    """A disk with the files of a journal that an older version wrote: paths, then base85 lines."""
    files: dict[str, str] = {}
    path = ""
    for line in Path(__file__).with_name(name).read_text().splitlines():
        if line.startswith(" "):
            files[path] += line.strip()
        else:
            files[path := line] = ""
    disk = MemoryDisk()
    disk.makedirs(PATH)
    for path, text in files.items():
        disk.write(disk.open_append(path), zlib.decompress(base64.b85decode(text)))
    return disk


def decode_all(payload: bytes) -> list[back.Record]:
    """The records in these bytes."""
    found = []
    pos = 0
    while pos < len(payload):
        r = back.Record()
        pos = back.decode(payload, pos, r)
        found.append(r)
    return found
