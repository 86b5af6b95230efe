"""Clients that write exactly once: stage and publish as a driver with tasks, or add with a key.

Tasks are retried and run twice at the same time, drivers end after PUBLISH and repeat it,
producers repeat an ADDJOB without a reply. The body of a row stays the same: so a row that was
written twice is a body with two ids.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from sim.engine.history import OK, Add
from sim.machines.session import LOST
from sim.workload.programs import Args, number
from sim.workload.scripts import IDLE_US, Say, Script, Steps, failed, says

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster


class Publication:
    """One version of an app: its rows, whichever attempt stages them."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        app: bytes,
        version: int,
        args: Args,
        count: int,
    ) -> None:
        self.cluster = cluster
        self.app = app
        self.version = version
        self.txn = app + b" %d" % version
        self.tries = 0  # attempts begun
        self.asked_us = 0
        self.is_done = False
        self.rows: list[Add] = []
        for _ in range(count):
            row = cluster.history.new_add(args["out"].encode(), 30, machine.name)
            row.is_once = row.is_staged = True
            row.repl, row.retry_s, row.ttl_s = args["repl"], args["retry"], 120
            self.rows.append(row)
        cluster.leasing.publications.append(self)

    def on_asked(self) -> None:
        """PUBLISH is sent: the rows may become visible from now on."""
        if not self.asked_us:
            self.asked_us = self.cluster.world.now_us
            for row in self.rows:
                row.asked_us = self.asked_us
                row.is_staged = False

    def words(self, names: list[bytes], ack: list[bytes]) -> list[bytes]:
        """PUBLISH."""
        return [b"PUBLISH", self.app, number(self.version), *ack, self.txn, *names]

    def on_answer(self, reply: object) -> None:
        """A number means: all rows are jobs now, or were before."""
        history = self.cluster.history
        if not isinstance(reply, int):
            return
        history.count("PUBLISH ok")
        if reply not in (-1, len(self.rows)):
            history.find("publish-part", f"{self.txn!r} has {len(self.rows)} rows, added {reply}")
        if reply >= 0 and self.is_done and not self.rows[0].once_excuse:
            history.find("once", f"{self.txn!r} was published again: {reply}")
        if not self.is_done:
            self.is_done = True
            for row in self.rows:
                if reply == -1:
                    row.repl = 1  # it may have been published with fewer copies (Z3.3)
                row.outcome = OK
                row.done_us = self.cluster.world.now_us


def stage_rows(client: Script, p: Publication) -> Generator[Say | int, object, list[bytes]]:
    """STAGE all rows in one or two tasks; returns the attempts to name, none if incomplete."""
    names: list[bytes] = []
    split = len(p.rows) if len(p.rows) < 3 or client.sometimes("p_one") else len(p.rows) // 2
    for rows in (p.rows[:split], p.rows[split:]):
        if rows:
            name = yield from stage_task(client, p, rows)
            if not name:
                return []
            names.append(name)
    return names


def stage_task(
    client: Script, p: Publication, rows: list[Add]
) -> Generator[Say | int, object, bytes]:
    """One task: attempts may fail half-way or run twice; returns a complete one's name, or none."""
    for _ in range(3):
        p.tries += 1
        name = b"%s %d" % (client.name.encode(), p.tries)
        is_whole = True
        for i, row in enumerate(rows):
            if client.sometimes("p_retry"):
                is_whole = False
                break
            words = [b"STAGE", p.txn, name, b"60000", row.queue, row.body, b"REPLICATE"]
            words += [number(row.repl), b"RETRY", number(row.retry_s), b"TTL", b"120"]
            reply = yield Say(words)
            if reply != i + 1:
                is_whole = False
                break
            client.history.count("STAGE ok")
        if is_whole and client.sometimes("p_double"):
            client.history.count("attempts that nobody names")
            continue
        if is_whole:
            return name
    return b""


class Publisher(Script):
    """A driver that publishes one version after the other; its plan is in its checkpoint."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.version = 0  # the last one known to be published
        self.plans: dict[int, Publication] = {}

    def steps(self) -> Steps:
        """Stage and publish; a restarted driver repeats its last version."""
        while True:
            version = max(1, self.version + (0 if self.sometimes("p_replay") else 1))
            p = self.plans.get(version)
            if p is None:
                app = b"app %s" % self.name.encode()
                count = 1 + self.chance.randrange(self.args["rows"])
                p = Publication(self.cluster, self.machine, app, version, self.args, count)
                self.plans[version] = p
            names = yield from stage_rows(self, p)
            if not names:
                yield IDLE_US
                continue
            p.on_asked()
            reply = yield Say(p.words(names, []), p.on_answer)
            if isinstance(reply, int):
                self.version = max(self.version, version)
            yield self.chance.randrange(self.args["idle_ms"] * 1000)


class Repeater(Script):
    """A producer with keys that repeats an ADDJOB without a reply."""

    def steps(self) -> Steps:
        """Add one job after the other."""
        while True:
            row = self.history.new_add(self.args["out"].encode(), 25, self.node)
            row.is_once = True
            row.repl, row.retry_s, row.ttl_s = self.args["repl"], self.args["retry"], 120
            words = [b"ADDJOB", row.queue, row.body, b"1000", b"REPLICATE", number(row.repl)]
            words += [b"RETRY", number(row.retry_s), b"TTL", b"120", b"DEDUPE", row.token]
            for _ in range(4):
                shell = self.machine.shell
                reply = yield Say(words, partial(self.on_sent, row))
                has_crashed = reply is LOST and self.machine.shell is not shell  # Z4.8
                may_leave = row.repl > 1 and not has_crashed
                if failed(reply) and (may_leave or self.may_be_external()):
                    # It may have copies elsewhere, for which nothing is promised (Z4.5).
                    row.once_excuse = row.once_excuse or "a failed ADDJOB may leave copies"
                if says(reply, "OOM"):
                    break
                if not failed(reply) and not self.sometimes("p_repeat"):
                    break
                self.history.count("ADDJOBs with a key said again")
                yield self.chance.randrange(600_000)
            yield self.chance.randrange(self.args["idle_ms"] * 1000)

    def may_be_external(self) -> bool:
        """Whether the node may have asked other nodes to take its own copy (R1.5)."""
        return self.machine.has_left or "memory" in self.cluster.plan.faults

    def on_sent(self, row: Add, reply: object) -> None:
        """The id that the node sent, read or not."""
        if isinstance(reply, bytes):
            self.history.count("DEDUPE ok")
            if row.outcome != OK:
                row.outcome = OK
                row.done_us = self.world.now_us
                row.is_external = self.machine.gave_away(reply)
            self.history.meet(row, reply)
