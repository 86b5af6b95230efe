"""Judges of leases and exactly-once writes: what batches hold, who may have a job.

A lease surely lives while less than its TTL has passed since the last renewing command was sent,
by the true clock; what is not sure is not judged.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from sim.engine.history import OK, Add, Ask

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster
    from sim.workload.publishers import Publication

Lease = tuple[str, bytes, int]  # node, group, epoch
Row = tuple[bytes, bytes, int]  # queue, body, deliveries
UNTOUCHABLE = ("COMMIT", "LEASE NACK")
SETTLED_US = 1_500_000  # without faults, the other holders know by then that a job is leased


class Pass:
    """One complete read of a part."""

    def __init__(
        self, node: str, group: bytes, epoch: int, seq: int, part: int, asked_us: int, columns: bool
    ) -> None:
        self.lease: Lease = (node, group, epoch)
        self.seq = seq
        self.part = part
        self.asked_us = asked_us
        self.columns = columns
        self.places: list[bytes] = []  # ids in order, if the reply has places
        self.rows: dict[bytes, Row] = {}  # live rows


class Held:
    """What is known of a lease."""

    def __init__(self, ttl_us: int, asked_us: int) -> None:
        self.span_us = ttl_us - ttl_us // 500 - 50_000
        self.asked_us = asked_us  # when the last renewing command was sent
        self.unsure_us = 0  # it may have ended at that time or before
        self.batches: dict[int, list[bytes]] = {}
        self.known: dict[int, dict[bytes, None]] = {}  # all jobs that were ever in a batch
        self.passes: dict[tuple[int, int], Pass] = {}
        self.committed = 0  # as replied
        self.asked_seq = 0  # highest COMMIT sent


class Commit:
    """A COMMIT in flight."""

    def __init__(self, lease: Lease, seq: int, is_publish: bool) -> None:
        self.lease = lease
        self.seq = seq
        self.is_publish = is_publish
        self.asks: list[tuple[Add, Ask]] = []
        self.sure: list[tuple[Add, Ask]] = []  # jobs that it must ack
        self.is_first = False
        self.was_committed = False
        self.was_fenced = False


class Leasing:
    """All leases of a seed, as clients know them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = cluster.history
        self.held: dict[Lease, Held] = {}
        self.epochs: dict[tuple[str, bytes], int] = {}  # the newest that a client knows
        self.owners: dict[tuple[str, bytes], bytes] = {}
        self.asking: dict[
            tuple[str, bytes], dict[bytes, None]
        ] = {}  # owners with an unanswered OPEN
        self.told_us: dict[tuple[str, bytes], int] = {}  # when a client learned the newest epoch
        self.claims: dict[tuple[str, bytes], tuple[Lease, int]] = {}  # node, id -> lease, when
        self.publications: list[Publication] = []

    # ---- leases

    def on_open_asked(self, node: str, group: bytes, owner: bytes) -> int:
        """OPEN by another owner ends the lease of the last one."""
        if self.owners.get((node, group)) != owner:
            self.on_release_asked(node, group)
            self.owners[node, group] = b""
        self.asking.setdefault((node, group), {})[owner] = None
        return self.world.now_us

    def on_opened(
        self, m: Machine, group: bytes, owner: bytes, ttl_ms: int, asked_us: int, epoch: object
    ) -> None:
        """The epoch of a group never decreases."""
        if not isinstance(epoch, int):
            return
        key = (m.name, group)
        newest = self.epochs.get(key, 0)
        self.asking.setdefault(key, {}).pop(owner, None)
        is_alone = not self.asking[key]
        self.history.count("LEASE OPEN ok")
        if epoch < newest and asked_us > self.told_us.get(key, 0):
            self.history.find("fence", f"{m.name} gave {group!r} epoch {epoch} after {newest}")
        if self.owners.get(key) == owner and is_alone and newest:
            self.history.count("groups opened again")
            if epoch != newest:
                self.history.find("lease", f"{group!r} has epoch {epoch}, it was {newest}")
        if epoch < newest:
            return
        self.epochs[key] = epoch
        self.told_us[key] = self.world.now_us
        self.owners[key] = owner if is_alone else b""
        held = self.held.get((m.name, group, epoch))
        if held is None:
            self.held[m.name, group, epoch] = Held(ttl_ms * 1000, asked_us)
        else:
            self.renewed(m.name, group, epoch, asked_us)

    def renewed(self, node: str, group: bytes, epoch: int, asked_us: int) -> None:
        """A command that renews the lease succeeded."""
        held = self.held.get((node, group, epoch))
        if held is None:
            return
        if self.world.now_us > held.asked_us + held.span_us:
            held.unsure_us = self.world.now_us
        held.asked_us = max(held.asked_us, asked_us)

    def is_sure(self, lease: Lease, since_us: int) -> bool:
        """Whether the lease surely lived all the time since then, and does now."""
        held = self.held.get(lease)
        if held is None or self.epochs.get(lease[:2]) != lease[2] or self.asking.get(lease[:2]):
            return False
        return held.unsure_us < since_us and self.world.now_us <= held.asked_us + held.span_us

    def on_release_asked(self, node: str, group: bytes) -> None:
        """The group's jobs may be released from now on."""
        held = self.held.get((node, group, self.epochs.get((node, group), 0)))
        if held is not None:
            held.unsure_us = self.world.now_us
            held.passes = {}

    def on_nack_asked(self, node: str, ids: list[bytes]) -> None:
        """Jobs leave their batch and go back."""
        for id in ids:
            self.claims.pop((node, id), None)
            add = self.history.by_id.get(id)
            if add is not None:
                add.asks.append(Ask("LEASE NACK", self.world.now_us, node))

    def on_next(
        self, m: Machine, group: bytes, epoch: int, seq: int, asked_us: int, reply: object
    ) -> None:
        """NEXT replied: check on the node which jobs it leased."""
        if not isinstance(reply, int) or reply == 0:
            return
        self.renewed(m.name, group, epoch, asked_us)
        self.history.count("batches")
        held = self.held.get((m.name, group, epoch))
        g = m.shell.n.leases.groups.get(group) if m.shell is not None else None
        b = g.batches.get(seq) if g is not None and g.epoch == epoch else None
        if b is None or held is None:
            return
        ids = list(b.ids) if b.is_expired else [job.id for job in b.jobs]
        if len(ids) != reply:
            self.history.find("lease", f"NEXT said {reply}, batch {seq} has {len(ids)} jobs")
        if held.batches.get(seq, ids) != ids:
            self.history.find("lease", f"batch {seq} of {group!r} is not what it was")
        held.batches[seq] = ids
        for id in ids:
            held.known.setdefault(seq, {})[id] = None
            add = self.history.by_id.get(id)
            if add is not None:
                add.was_leased = True

    def ids_of(self, node: str, group: bytes, epoch: int, seq: int) -> list[bytes]:
        """The jobs of a batch."""
        held = self.held.get((node, group, epoch))
        return held.batches.get(seq, []) if held is not None else []

    # ---- reading

    def on_rows(self, m: Machine, one: Pass, asked_us: int, reply: object) -> None:
        """Rows were sent: each is a delivery the first time."""
        if not isinstance(reply, list):
            return
        self.renewed(*one.lease, asked_us)
        held = self.held.get(one.lease)
        rows = from_columns(reply) if one.columns else cast(list[list[Any]], reply[2])
        for row in rows:
            one.places.append(row[0])
            if row[1] is None:
                continue
            id, queue, body, deliveries = row[0], row[1], row[2], row[5]
            one.rows[id] = (queue, body, deliveries)
            self.history.count("rows")
            if held is not None:
                held.known.setdefault(one.seq, {})[id] = None
            self.judge_others(m.name, id, one.lease)
            mark = b"%s %d %d %d" % (one.lease[1], one.lease[2], one.seq, deliveries)
            self.history.on_row(m.name, queue, id, body, mark)
            if self.claims.get((m.name, id), (None, 0))[0] != one.lease:
                self.history.by_id[id].leased_us = asked_us
            self.claims[m.name, id] = (one.lease, asked_us)

    def on_handed(self, node: str, id: bytes) -> None:
        """GETJOB delivered a job: it must not be leased, here or on another node."""
        self.judge_others(node, id, None)
        if not self.cluster.plan.is_faultless:
            return
        add = self.history.by_id[id]
        for m in self.cluster.machines:
            claim = self.claims.get((m.name, id)) if m.name != node else None
            if claim is None or add.asks or add.repl == 1:
                continue
            self.history.count("hand-outs beside leases elsewhere")
            since_us = add.leased_us + SETTLED_US + 80 * self.cluster.plan.sync_us
            if self.world.now_us > since_us and self.is_sure(claim[0], add.leased_us):
                self.history.find(
                    "leased", f"{add.token!r} was handed out at {node}, leased at {m.name}"
                )

    def judge_others(self, node: str, id: bytes, lease: Lease | None) -> None:
        """Nobody gets a job during another client's lease of it."""
        claim = self.claims.get((node, id))
        if claim is None or claim[0] == lease:
            return
        add = self.history.by_id.get(id)
        if add is None or add.asked_for(*UNTOUCHABLE):
            return
        self.history.count("hand-outs beside leases")
        if self.is_sure(claim[0], claim[1]):
            self.history.find("leased", f"{add.token!r} was handed out at {node} under its lease")

    def on_pass(self, one: Pass) -> None:
        """A part was read: the same as before, except for what ended meanwhile."""
        held = self.held.get(one.lease)
        if held is None:
            return
        before = held.passes.get((one.seq, one.part))
        held.passes[one.seq, one.part] = one
        if before is None or not self.is_sure(one.lease, before.asked_us):
            return
        self.history.count("second readings")
        if not one.columns and not before.columns and one.places != before.places:
            self.history.find("fetch", f"batch {one.seq} has its jobs in other places")
        for id, row in before.rows.items():
            add = self.history.by_id.get(id)
            if add is None or add.asks or self.cluster.watcher.is_over(add):
                continue
            if one.rows.get(id) != row:
                self.history.find(
                    "fetch", f"{add.token!r} of batch {one.seq} was {row!r}, "
                    f"now {one.rows.get(id)!r}",
                )  # fmt: skip
        if any(id not in before.rows for id in one.rows):
            self.history.find("fetch", f"batch {one.seq} has jobs that it had not")

    # ---- the commit

    def on_commit_asked(
        self, m: Machine, group: bytes, epoch: int, seq: int, is_publish: bool = False
    ) -> Commit:
        """COMMIT is about to be sent: the jobs may be acked from now on."""
        lease = (m.name, group, epoch)
        c = Commit(lease, seq, is_publish)
        held = self.held.get(lease)
        c.was_fenced = self.epochs.get(lease[:2], 0) > epoch
        if held is None:
            return c
        c.is_first = held.asked_seq < seq
        c.was_committed = held.committed >= seq
        held.asked_seq = max(held.asked_seq, seq)
        for number, ids in held.known.items():
            if number > seq:
                continue
            for id in ids:
                add = self.history.by_id.get(id)
                if add is not None:
                    self.note_ask(c, held, add, number)
        return c

    def note_ask(self, c: Commit, held: Held, add: Add, number: int) -> None:
        """A job that the COMMIT acks if it is still in the batch.

        If its ADDJOB got no id, all nodes may have to undo it (R5.2).
        """
        ask = Ask("COMMIT", self.world.now_us, c.lease[0])
        reads = [p for (seq, _), p in held.passes.items() if seq == number and add.id in p.rows]
        is_own = bool(reads) and not add.asks and add.outcome == OK
        is_own = is_own and not self.cluster.watcher.is_over(add)
        if is_own and self.is_sure(c.lease, reads[0].asked_us):
            c.sure.append((add, ask))
        add.asks.append(ask)
        c.asks.append((add, ask))

    def on_committed(self, c: Commit, reply: object) -> None:
        """COMMIT replied: all jobs that were surely leased are acked."""
        held = self.held.get(c.lease)
        if isinstance(reply, int) and c.was_fenced and not (c.is_publish and reply == -1):
            self.history.find("fence", f"epoch {c.lease[2]} of {c.lease[1]!r} committed: {reply}")
        if c.was_fenced:
            self.history.count("COMMITs of a fenced epoch")
        if held is None:
            return
        if c.was_committed and self.epochs.get(c.lease[:2]) == c.lease[2]:
            self.history.count("COMMITs said again")
            lost = not isinstance(reply, (int, Exception))
            no_disk = str(reply).startswith("MISCONF")  # any write is refused then (J6.1)
            if not lost and not no_disk and reply != 0 and not c.is_publish:
                self.history.find("commit", f"COMMIT {c.seq} again was answered by {reply!r}")
        if not isinstance(reply, int):
            return
        self.history.count("COMMIT ok")
        held.committed = max(held.committed, c.seq)
        still_sure = self.world.now_us <= held.asked_us + held.span_us
        self.renewed(*c.lease, held.asked_us)
        if not still_sure:
            return
        # Commands in flight at the same time may have run before: a COMMIT of a lease that ended
        # elsewhere acks the job, too (Y7.5).
        own = [(add, ask) for add, ask in c.sure if len(add.asks) == 1]
        if c.is_first and not c.is_publish and reply < len(own):
            self.history.find("commit", f"COMMIT {c.seq} acked {reply} of {len(own)} jobs")
        for add, ask in own:
            self.history.count("jobs committed")
            ask.done_us = self.world.now_us
            ask.reply = 1
            self.claims.pop((c.lease[0], add.id), None)

    # ---- what else happens

    def on_death(self, m: Machine, shell: Shell, is_kept: bool, is_strict: bool) -> None:
        """A process ended; `is_kept`: its disk has what clients know, except the window.

        `is_strict`: without a window.
        """
        self.find_ids(m, shell)
        if is_kept:
            window_us = -1
            if not is_strict and m.settings.policy == "everysec" and shell.thread is not None:
                window_us = shell.thread.window_us()
            self.lose_unsynced(m, window_us)
            return
        for lease, held in self.held.items():
            if lease[0] == m.name:
                held.unsure_us = 1 << 62
                held.batches = {}
                held.passes = {}
                held.committed = 0
        for key in [key for key in self.epochs if key[0] == m.name]:
            del self.epochs[key]
            self.owners.pop(key, None)
        for key in [key for key in self.claims if key[0] == m.name]:
            del self.claims[key]
        for add in self.history.adds.values():
            if add.is_once and add.node == m.name:
                add.once_excuse = f"{m.name} lost its memory"

    def lose_unsynced(self, m: Machine, window_us: int) -> None:
        """Unsynced publications and keyed adds may be repeated.

        No client got a reply, or at most `window_us` ago (Z6.5).
        """
        for add in self.history.adds.values():
            if not add.is_once or add.node != m.name or add.id in m.known:
                continue
            if add.done_us == 0 or self.world.now_us - add.done_us <= window_us:
                add.once_excuse = f"{m.name} had not synced it yet"

    def find_ids(self, ended: Machine | None = None, dead: Shell | None = None) -> None:
        """Find published rows, and adds without a reply, in all memories.

        Of an ended process only what its disk has, or what clients know, ever counted for anybody.
        """
        self.history.count(
            "rows and keys checked", sum(add.is_once for add in self.history.adds.values())
        )
        for shell in [dead, *(m.shell for m in self.cluster.machines)]:
            for job in shell.n.jobs.values() if shell is not None else ():
                add = self.history.adds.get(job.body[: job.body.find(b">") + 1])
                is_known = ended is None or job.id in ended.kept
                if shell is dead and not is_known and (add is None or not add.done_us):
                    continue
                if add is not None and add.is_once:
                    self.history.meet(add, job.id)

    def on_end(self) -> None:
        """Of each publication there is all or nothing."""
        self.find_ids()
        for p in self.publications:
            rows = [row for row in p.rows if row.id]
            if any(row.once_excuse or row.losses for row in p.rows):
                continue
            self.history.count("publications checked")
            done = p.rows[0].outcome == OK
            if len(rows) < len(p.rows) and (rows or done):
                self.history.find(
                    "publish-part", f"{len(rows)} of {len(p.rows)} rows of {p.txn!r} are there"
                )
            if rows and not p.asked_us:
                self.history.find("staged-seen", f"{p.txn!r} was never published")


def from_columns(reply: list[Any]) -> list[list[Any]]:
    """The rows of a FETCH with COLUMNS, in the form of those without."""
    _, _, count, _, ids, queues, index, ends, bodies = reply[:9]
    places = struct.unpack(f"<{count}i", index)
    stops = struct.unpack(f"<{count}i", ends)
    deliveries = struct.unpack(f"<{count}i", reply[11])
    rows: list[list[Any]] = []
    start = 0
    for i in range(count):
        body = bodies[start : stops[i]]
        start = stops[i]
        id = ids[40 * i : 40 * i + 40]
        rows.append([id, queues[places[i]], body, 0, 0, deliveries[i]])
    return rows
