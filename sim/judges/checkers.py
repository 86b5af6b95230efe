"""Judges that watch a running seed: tables after turns, copies at every death.

They see what no node sees: all memories, all disks and all replies to clients. verdicts.py
judges what must hold at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.engine.history import OK, OLD_DISK, Add
from sim.judges.rare import look_at_death, look_at_node
from tuque.core.copies.federation import is_in_transit
from tuque.core.model.job import ACKED, WAIT_REPL, Job
from tuque.core.model.tombstones import OVER
from tuque.core.queues.procedures import memory_level
from tuque.core.repair.node_loss import repair_left

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster
    from tuque.core.node.node import Node

ENDED: Final = ("ACKJOB", "ACKJOB2", "FASTACK", "DELJOB", "DEADLETTER", "COMMIT")


def transits_over(n: Node) -> dict[bytes, bool]:
    """At-most-once jobs of a loading node that other nodes have confirmed."""
    return {id: True for slot, m in n.late_answers for id in m.ids if is_on_way(n, id, slot)}


def is_on_way(n: Node, id: bytes, slot: int) -> bool:
    """Whether the job is here and in transit to that node."""
    job = n.jobs.get(id)
    return job is not None and is_in_transit(n, job, slot)


class Watcher:
    """Watches all nodes of a seed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = cluster.history
        self.world = cluster.world
        self.chance = self.world.stream("checks")
        self.next_check = 1
        self.settled_us = 0  # after the heal: the last instant at which something was missing

    def on_fault(self, kind: str, machines: list[Machine]) -> None:
        """Count a fault; it is effective if there is work that it can hit."""
        self.history.count(f"fault {kind}")
        for m in machines:
            if m.shell is not None and (m.shell.n.jobs or m.shell.n.adding):
                self.history.count(f"effective {kind}")
                return

    # ---- every turn

    def on_turn(self, machine: Machine, shell: Shell) -> None:
        """A node finished a turn."""
        n = shell.n
        if self.cluster.phase == "heal" and not self.is_settled(n):
            self.settled_us = self.world.now_us
        self.history.count("ledgers")
        if n.ledger.balance(len(n.jobs)) != 0:
            self.history.find("ledger", f"{machine.name}: the ledger is off {n.ledger.counts()}")
        if len(n.tombs.ids) > 0:
            self.look_at_tombs(machine, shell)
        self.next_check -= 1
        if self.next_check <= 0:
            self.next_check = 1 + self.chance.randrange(self.cluster.plan.check_every)
            self.check_tables(machine, shell)

    def is_settled(self, n: Node) -> bool:
        """Whether the node is loaded, linked to all others and has nothing to repair."""
        return not n.is_loading and n.linked == n.others & ~n.forgotten and repair_left(n) == 0

    def look_at_tombs(self, machine: Machine, shell: Shell) -> None:
        """A tombstone that says that a job has ended everywhere must be right."""
        ids = shell.n.tombs.ids
        newest = next(reversed(ids))
        if newest == shell.newest_tomb:
            return
        for id in reversed(ids):
            if id == shell.newest_tomb:
                break
            add = self.history.by_id.get(id)
            if add is None or ids[id].kind != OVER or add.outcome != OK:
                continue
            if add.asked_for("FASTACK", "DELJOB") or add.excuse or add.ack_excuse:
                continue
            if any(m.evicted_acks(m.shell) for m in self.cluster.machines):
                continue
            self.history.count("ends looked at")
            for m in self.cluster.machines:
                if not m.may_hand_out(id) or m.was_forgotten or m.has_weak_disk():
                    continue
                if m.has_copy(id):
                    self.history.find(
                        "unsafe-end",
                        f"{machine.name} says {add.token!r} is over, {m.name} has it unacked",
                    )
        shell.newest_tomb = newest

    def check_tables(self, machine: Machine, shell: Shell) -> None:
        """Run the node's own check of its tables; note rare states."""
        self.history.count("table checks")
        try:
            shell.check()
        except AssertionError as error:
            self.history.find("ledger", f"{machine.name}: {error!r}")
        look_at_node(shell)

    # ---- the death of a process

    def on_death(self, machine: Machine, shell: Shell, how: str, back: str) -> None:
        """A process ended: count the copies and acks lost with its memory."""
        look_at_death(machine, shell)
        policy = machine.settings.policy
        is_kept = back == "disk" and policy in ("always", "everysec")
        is_kept = is_kept and not machine.had_disk_fault and not machine.clock.jumps
        is_strict = policy == "always" or (how == "kill" and not machine.had_disk_fault)
        self.cluster.leasing.on_death(machine, shell, is_kept, is_strict)
        self.cluster.tubing.on_death(machine, shell, how, back)
        self.cluster.living.on_death(machine.name)
        for id, job in shell.n.jobs.items():
            add = self.add_of(id, job)
            if add is None:
                continue
            if job.state != ACKED and id not in machine.kept and not machine.is_drained:
                self.lose_copy(machine, shell, add, job, back, is_strict)
        for add in self.history.adds.values():
            if add.id and add.asked_for(*ENDED):
                self.lose_ack(machine, add, back, is_strict)
            if back == "old" and add.id:
                add.excuse = OLD_DISK
            if machine.settings.policy != "always" and add.id in machine.kept:
                if add.id not in shell.n.jobs:
                    add.ack_excuse = f"{machine.name} had given it away, which was not synced yet"
                elif machine.lost_holders(shell.n, add.id):
                    add.ack_excuse = f"{machine.name} lost the record of who else has it"
            if machine.settings.policy == "no" and add.id in machine.kept and add.retry_s == 0:
                add.excuse = "a hand-out was not synced, as the policy says"

    def on_loaded(self, machine: Machine, shell: Shell, arrived: dict[bytes, bool]) -> None:
        """A journal is loaded: all that was on the disk is there, except what has expired.

        `arrived` was on the disk too, and left at the end of the load: another node had
        confirmed it meanwhile (F3.5).
        """
        if machine.is_off and machine.clock.jumps:
            self.end_acks(machine, shell)
        machine.is_off = False
        if shell.n.jobs:
            self.world.sometimes("restart with jobs from the disk")
        self.cluster.tubing.on_loaded(machine, shell)
        for id in machine.kept:
            add = self.history.by_id.get(id)
            if add is None or id in shell.n.jobs or id in arrived or self.is_over(add):
                continue
            if machine.clock.jumps or shell.n.tombs.has(id):
                add.excuse = "the clock was set while the node was down"
            else:
                self.history.find("not-on-disk", f"{add.token!r} was not loaded from the disk")

    def end_acks(self, machine: Machine, shell: Shell) -> None:
        """Acks expire as jobs do: setting a clock may have ended the last record (J5.8)."""
        for add in self.history.adds.values():
            if add.id and add.asked_for(*ENDED):
                knows = shell.knows_ack(add.id)
                if not knows and not any(m.knows_ack(add.id) for m in self.cluster.machines):
                    add.ack_excuse = f"{machine.name} was the last to know, and its clock was set"

    def add_of(self, id: bytes, job: Job) -> Add | None:
        """The ADDJOB that made this job."""
        add = self.history.by_id.get(id)
        if add is None and job.body:
            add = self.history.adds.get(job.body[: job.body.find(b">") + 1])
        return add

    def lose_copy(
        self, machine: Machine, shell: Shell, add: Add, job: Job, back: str, is_strict: bool
    ) -> None:
        """A copy was lost with a memory; W - 1 may be lost before there are W copies again.

        `is_strict`: all that was answered must be on the disk, as a kill of a process keeps what
        it had written.
        """
        others = sum(1 for m in self.cluster.machines if m.has_copy(job.id))
        if others + 1 >= add.repl:
            add.losses = 0
        add.losses += 1
        self.history.count("copies lost")
        came_again = machine.name in add.lost_by
        add.lost_by.add(machine.name)
        if back != "disk" or machine.had_disk_fault or machine.clock.jumps:
            return
        is_origin = add.node == machine.name and add.outcome == OK and job.state != WAIT_REPL
        if not is_origin or machine.has_left or add.asked_for(*ENDED) or add.is_async:
            return
        if add.is_external:
            return  # it was added to others, and arrived here maybe a moment ago (F2)
        if machine.disk_since_us > add.done_us:
            return  # the disk is new: another node sent the copy
        if came_again:
            return  # it was judged at the first loss; this copy is a repair (K5.3)
        if job.retry_s == 0 and (job.holders != 1 or job.id in shell.n.custody):
            return  # it moved to another node, and returned maybe a moment ago
        thread = shell.thread
        if thread is None or self.world.now_us > add.expiry_us() - 5_000_000:
            return
        age_us = self.world.now_us - add.done_us
        if is_strict and machine.settings.policy != "off":
            self.history.find("not-on-disk", f"{add.token!r} was not on the disk of {machine.name}")
        elif machine.settings.policy == "everysec":
            self.history.count("everysec losses")
            self.history.note_most("everysec loss", age_us - thread.stall_us)
            if age_us > thread.window_us():
                self.history.find("window", f"{add.token!r} was lost, {age_us / 1e6:.3f} s old")

    def lose_ack(self, machine: Machine, add: Add, back: str, is_strict: bool) -> None:
        """An ack can be lost with the only memory that has it, or with unsynced records."""
        is_strict = is_strict and machine.settings.policy != "off"
        if add.id in machine.kept and (not is_strict or back == "old"):
            add.ack_excuse = f"{machine.name} lost the record of the ack"
        elif back != "disk" or not is_strict:
            if not any(m.knows_ack(add.id) for m in self.cluster.machines):
                add.ack_excuse = f"{machine.name} was the last to know"

    # ---- admin

    def on_safe_to_stop(self, machine: Machine) -> None:
        """A leaving node is safe to stop: it must hold nothing that matters."""
        self.history.count("drains")
        self.world.sometimes("a node is drained")
        for id in machine.shell.n.jobs if machine.shell is not None else ():
            add = self.history.by_id.get(id)
            if add is not None and machine.has_copy(id) and not self.is_over(add):
                self.history.find("drain", f"{machine.name} still has {add.token!r}")
        self.judge_copies("drain", machine)

    def on_repaired(self) -> None:
        """All nodes report that repair is done: each job has its copies."""
        self.history.count("repairs done")
        self.judge_copies("repair", None)

    def judge_copies(self, rule: str, leaver: Machine | None) -> None:
        """Each job that was not lost has W copies, or as many as there are nodes for them."""
        able = [
            m for m in self.cluster.machines
            if m.shell is not None and m is not leaver and not m.shell.n.is_leaving
            and not m.shell.is_paused and memory_level(m.shell.n) == 0
        ]  # fmt: skip
        if len(able) < len(self.cluster.machines) - (leaver is not None):
            return
        if leaver is not None and any(m.was_forgotten for m in self.cluster.machines):
            return  # a node that is up may not be a member again yet
        for add in self.history.adds.values():
            if add.outcome != OK or add.retry_s == 0 or add.is_async or self.is_over(add):
                continue
            copies = self.copies(add, leaver)
            wanted = min(add.repl, len(able))
            if leaver is not None:
                # Losses of others are repaired, and do not make a leaver unsafe; it handed over to
                # the nodes that stayed while it left, maybe not to all that stay now (K7.2).
                wanted -= add.losses
                wanted = min(wanted, len(self.cluster.machines) - self.cluster.leaving_most)
            if 0 < copies < wanted and self.is_quiet(add):
                self.history.find(rule, f"{add.token!r} has {copies} copies of {wanted}")
            self.history.count(f"{rule} copies checked")

    def is_quiet(self, add: Add) -> bool:
        """Whether no message about the job is in flight."""
        return self.world.now_us - add.done_us > 500_000

    def is_over(self, add: Add) -> bool:
        """Whether the job may rightly be gone."""
        if add.asked_for(*ENDED) or add.excuse or self.history.are_times_off:
            return True
        return self.world.now_us > add.asked_us + add.ttl_s * 1_000_000 - 2_000_000

    def copies(self, add: Add, leaver: Machine | None = None) -> int:
        """Number of nodes with a copy that could be delivered."""
        return sum(1 for m in self.cluster.machines if m is not leaver and m.has_copy(add.id))
