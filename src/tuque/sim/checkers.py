"""Judges that look from above: tables at every turn, copies at every death, all at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuque.core.job import ACKED
from tuque.sim.history import OK, Add

if TYPE_CHECKING:
    from tuque.sim.cluster import Cluster
    from tuque.sim.machine import Machine
    from tuque.sim.shell import Shell

GRACE_US = 8_000_000


class Watcher:
    """Sees all nodes of a seed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = cluster.history
        self.world = cluster.world
        self.chance = self.world.stream("checks")
        self.next_check = 1

    def on_fault(self, kind: str) -> None:
        """A fault happens; it counts as effective when work is in flight."""
        self.history.count(f"fault {kind}")

    def on_turn(self, machine: Machine, shell: Shell) -> None:
        """A node ended a turn (S9)."""
        n = shell.n
        self.history.count("ledgers")
        if n.ledger.balance(len(n.jobs)) != 0:
            self.history.find("S9", f"{machine.name}: the ledger is off {n.ledger.counts()}")
        self.next_check -= 1
        if self.next_check <= 0:
            self.next_check = 1 + self.chance.randrange(self.cluster.plan.check_every)
            self.check_tables(machine, shell)

    def check_tables(self, machine: Machine, shell: Shell) -> None:
        """The node's own check of its tables."""
        self.history.count("table checks")
        try:
            shell.check()
        except AssertionError as error:
            self.history.find("S9", f"{machine.name}: {error!r}")

    def on_death(self, machine: Machine, shell: Shell, how: str, back: str) -> None:
        """A process ended: count the copies and acks that went with its memory (S1, S4)."""
        for id, job in shell.n.jobs.items():
            add = self.history.by_id.get(id) or self.history.adds.get(
                job.body[: job.body.find(b">") + 1]
            )
            if add is None:
                continue
            if job.state == ACKED:
                if not any(m.knows_ack(id) for m in self.cluster.machines):
                    add.ack_excuse = f"{machine.name} was the only one to know"
                continue
            if id in machine.kept:
                continue
            others = sum(1 for m in self.cluster.machines if m.has_copy(id))
            if others + 1 >= add.repl:
                add.losses = 0
            add.losses += 1
            add.losses_ever += 1

    def copies(self, add: Add) -> int:
        """Nodes with a copy that could be delivered."""
        return sum(1 for m in self.cluster.machines if m.has_copy(add.id))

    def on_healed(self) -> None:
        """All is well for a while: nothing may be missing (S1)."""
        now_us = self.world.now_us
        for add in self.history.adds.values():
            if add.outcome != OK or add.retry_s == 0 or add.is_async:
                continue
            self.history.count("jobs checked for loss")
            if add.asked_for("ACKJOB", "ACKJOB2", "FASTACK", "DELJOB", "DEADLETTER"):
                continue
            if now_us > add.asked_us + add.ttl_s * 1_000_000 - 2_000_000:
                continue
            if self.copies(add) == 0:
                if add.losses <= add.repl - 1:
                    self.history.find(
                        "S1", f"{add.token!r} {add.id!r} is gone; {add.losses} losses, W={add.repl}"
                    )
                else:
                    self.history.count("losses beyond the budget")

    def on_drained(self) -> None:
        """Everything there was must have been delivered (L1), nothing acked again (S4)."""
        healed_us = self.cluster.healed_us
        for add in self.history.adds.values():
            acked_us = add.acked_us()
            if acked_us and acked_us <= healed_us:
                self.history.count("acks checked")
                for d in add.deliveries:
                    if d.at_us > healed_us + GRACE_US and not add.ack_excuse:
                        self.history.find("S4", f"{add.token!r} came again after its ack")
            if add.outcome == OK and add.retry_s > 0 and not add.deliveries:
                if self.copies(add) and self.world.now_us < add.expiry_us() - 2_000_000:
                    if add.asked_us + add.delay_s * 1_000_000 < healed_us:
                        self.history.find("L1", f"{add.token!r} was never delivered")

    def on_end(self) -> None:
        """Nothing may be left (L2)."""
        for machine in self.cluster.machines:
            shell = machine.shell
            if shell is None:
                continue
            self.check_tables(machine, shell)
            for id, job in shell.n.jobs.items():
                add = self.history.by_id.get(id)
                if add is not None and add.acked_us() and job.state == ACKED:
                    self.history.find("L2", f"{machine.name} still keeps acked {add.token!r}")
        if self.history.counts.get("adds ok", 0) == 0:
            self.history.find("EMPTY", "no job was added: this seed checks nothing")
        if self.history.counts.get("deliveries", 0) == 0:
            self.history.find("EMPTY", "no job was delivered: this seed checks nothing")
