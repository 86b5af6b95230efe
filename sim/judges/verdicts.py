"""What must hold after the faults, after the drain, and at the end (S, L)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.engine.history import OK, OPEN, REFUSED, Add, Delivery
from sim.judges.checkers import ENDED, Watcher
from tuque.core.model.job import ACKED, DELIVERED
from tuque.core.model.task import Task
from tuque.core.model.tombstones import CUSTODY
from tuque.core.model.tombstones import OPEN as WAITS_FOR_DELJOB
from tuque.core.node.queue import PAUSE_OUT
from tuque.tubes.entries.group import ChildEntry, GroupEntry
from tuque.tubes.entries.schedule import HoldEntry
from tuque.tubes.model.tubes import Tubes

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster

GRACE_US: Final = 8_000_000  # after the heal: by then no node delivers an acked job again
SERVED_US: Final = 3_000_000  # within it a waiting client gets a job from another node
ANSWER_US: Final = 1_200_000  # beyond an ADDJOB's own timeout
NO_EFFECT: Final = ("MAXLEN", "PAUSED", "OOM", "BADID", "syntax")
# in seeds with no other faults, not even an at-most-once job may get lost
ROUTINE: Final = {
    "queue_pause", "rewrite", "leaving", "slow", "cut", "one_way", "break", "pause", "hostile",
    "poke", "memory",
}  # fmt: skip
GENTLE: Final = {"queue_pause", "rewrite", "leaving"}  # with these, an ack is final at once
IDLE_MESSAGES: Final = 40  # idle nodes may send so many messages in REST_MS


class Verdicts:
    """The judges of the late phases."""

    def __init__(self, cluster: Cluster, watcher: Watcher) -> None:
        self.cluster = cluster
        self.watcher = watcher
        self.history = cluster.history
        self.world = cluster.world
        self.unserved_us: dict[bytes, int] = {}  # queue -> since when a client waits in vain
        self.said = 0
        self.timed: set[tuple[bytes, int]] = set()  # at rest: see `timed_records`
        self.probes: list[Add] = []

    # ---- healed

    def on_healed(self) -> None:
        """All has been well for a while: nothing may be missing."""
        if not self.cluster.is_whole():
            self.history.find("add-fails", "the nodes do not see each other after the heal")
        self.cluster.leasing.find_ids()
        for add in self.history.adds.values():
            self.judge_loss(add)
            self.judge_answer(add)

    def judge_loss(self, add: Add) -> None:
        """A job that was added and has not ended must exist somewhere."""
        if add.outcome != OK or add.retry_s == 0 or add.is_async:
            return
        self.history.count("jobs checked for loss")
        if self.watcher.is_over(add) or self.watcher.copies(add) > 0:
            return
        copies = add.repl
        # A leaving node hands its copies to those that stay, however few they are (K7.2).
        if self.cluster.leaving_most:
            stay = sum(not m.was_forgotten for m in self.cluster.machines)
            copies = min(copies, max(1, stay - self.cluster.leaving_most))
        if add.losses <= copies - 1:
            self.history.find(
                "lost", f"{add.token!r} is gone: {add.losses} copies were lost, W = {add.repl}"
            )
        else:
            self.history.count("losses beyond the budget")

    def judge_answer(self, add: Add) -> None:
        """Every ADDJOB on an open connection must get a reply."""
        if add.outcome == OPEN and not add.is_lost:
            if add.timeout_ms == 0 or not self.cluster.plan.is_faultless:
                return
            self.history.find("no-answer", f"ADDJOB of {add.token!r} was never answered")
        elif self.cluster.plan.is_faultless and add.done_us and add.timeout_ms:
            took_us = add.done_us - add.asked_us
            self.history.count("answer times checked")
            if took_us > add.timeout_ms * 1000 + ANSWER_US and not self.is_behind(add):
                self.history.find(
                    "no-answer", f"{add.token!r} was answered after {took_us / 1e6:.3f} s"
                )

    def is_behind(self, add: Add) -> bool:
        """Whether a request that may wait longer came before it: replies keep their order.

        Such a request waits for a node with a paused queue; all pipelined behind it wait as well.
        """
        return any(
            (other.timeout_ms == 0 or other.timeout_ms > add.timeout_ms)
            and other.node == add.node
            and other.asked_us < add.asked_us
            and (other.done_us == 0 or other.done_us >= add.done_us)
            for other in self.history.adds.values()
        )

    # ---- while draining

    def look_for_waiting(self) -> None:
        """A waiting client must get a job that any node has."""
        now_us = self.world.now_us
        wanted: dict[bytes, bool] = {}
        there: dict[bytes, bool] = {}
        for m in self.cluster.machines:
            if m.shell is None or m.shell.n.is_leaving:
                continue
            for waiter in m.shell.n.waiters.values():
                for name in waiter.queues:
                    q = m.shell.n.queues.get(name)
                    if q is None or not q.pause & PAUSE_OUT:
                        wanted[name] = True
            for name, q in m.shell.n.queues.items():
                if q.policy is not None:
                    continue  # a tube: some tasks wait for others in it (judge.py)
                if q.length > 0 and not q.pause & PAUSE_OUT:
                    there[name] = True
        for name in list(self.unserved_us):
            if name not in wanted or name not in there:
                del self.unserved_us[name]
        for name in wanted:
            self.history.count("looks for waiting")
            if name in there:
                since_us = self.unserved_us.setdefault(name, now_us)
                if now_us - since_us > SERVED_US:
                    self.history.find("in-vain", f"clients wait on {name!r} though it has jobs")
                    self.unserved_us[name] = now_us

    # ---- drained

    def on_drained(self) -> None:
        """All jobs must have been delivered, and none again after its ack."""
        for add in self.probes:
            self.history.count("probes")
            if add.outcome != OK:
                self.history.find(
                    "add-fails", f"ADDJOB failed though all nodes are there: {add.error}"
                )
        for add in self.history.adds.values():
            self.judge_ack(add)
            self.judge_retry(add)
            self.judge_custody(add)
            if add.outcome == REFUSED and any(w in add.error for w in NO_EFFECT):
                self.history.count("refusals checked")
                if add.deliveries or (self.watcher.copies(add) and add.id):
                    self.history.find(
                        "false-error", f"{add.token!r} was refused and is there: {add.error}"
                    )
            if add.outcome == OK and add.retry_s > 0 and not self.watcher.is_over(add):
                due_us = add.asked_us + add.delay_s * 1_000_000
                if self.watcher.copies(add) > 0 and due_us < self.cluster.healed_us:
                    self.history.find("undelivered", f"{add.token!r} was not delivered and acked")

    def judge_ack(self, add: Add) -> None:
        """A successful ack is final once the faults are over."""
        acked_us = add.acked_us()
        if not acked_us or add.retry_s == 0 or add.ack_excuse or add.excuse:
            return
        if add.asked_for("DELJOB"):
            return  # it may have removed the record of the ack
        if any(m.evicted_acks(m.shell) for m in self.cluster.machines):
            return
        limit_us = self.cluster.healed_us + GRACE_US
        if set(self.cluster.plan.faults) <= GENTLE:
            limit_us = 1_000_000
        self.history.count("acks checked")
        for d in add.deliveries:
            if d.at_us > max(limit_us, acked_us + 1_000_000 + 20 * self.cluster.plan.delay_us):
                self.history.find(
                    "came-back",
                    f"{add.token!r} came again at {d.node} at {d.at_us / 1e6:.3f} s, "
                    f"acked at {acked_us / 1e6:.3f} s",
                )
                return

    def was_given(self, add: Add) -> bool:
        """Whether a node delivered the job, maybe into a broken connection."""
        shells = [m.shell for m in self.cluster.machines if m.shell is not None]
        jobs = [shell.n.jobs.get(add.id) for shell in shells]
        if not any(jobs) and any(m.evicted(m.shell) for m in self.cluster.machines):
            return True  # evicted: only delivered ones may be (M3.2)
        return any(job is not None and job.flags & DELIVERED for job in jobs)

    def judge_custody(self, add: Add) -> None:
        """Without a crash, an at-most-once job is delivered in the end."""
        if add.outcome != OK or add.retry_s > 0 or not set(self.cluster.plan.faults) <= ROUTINE:
            return
        if self.watcher.is_over(add) or add.asked_for("DEQUEUE") or add.was_leased:
            return
        if add.asked_us + add.delay_s * 1_000_000 < self.cluster.healed_us:
            self.history.count("custodies checked")
            if not add.deliveries and not self.was_given(add):
                self.history.find("custody", f"{add.token!r} was never handed out")

    def judge_retry(self, add: Add) -> None:
        """Without faults, two deliveries are at least RETRY apart."""
        if not self.cluster.plan.is_faultless or add.retry_s == 0:
            return
        if add.asked_for("NACK", "ENQUEUE", "DEQUEUE") or add.was_leased:
            return
        self.history.count("retries checked")
        slack_us = 50_000 + 2 * self.cluster.plan.delay_us
        if self.cluster.plan.policy != "off":
            # The message to the other holders may have waited for the disk, behind another sync.
            slack_us += 80 * self.cluster.plan.sync_us
        for before, after in zip(add.deliveries, add.deliveries[1:], strict=False):
            apart_us = after.at_us - before.at_us
            if apart_us < add.retry_s * 1_000_000 - slack_us and not self.is_unheard(before, after):
                self.history.find(
                    "early-retry",
                    f"{add.token!r} came again after {apart_us / 1e6:.3f} s, RETRY {add.retry_s}: "
                    f"{before.node} at {before.at_us / 1e6:.3f}, then {after.node}",
                )

    def is_unheard(self, one: Delivery, other: Delivery) -> bool:
        """Whether two nodes delivered a job before either could know of the other's delivery.

        Both were due, one J after the other; the first one's message and reply waited for its disk
        (C8.3) until after the second one had delivered the job.
        """
        first, second = (one, other) if one.made_us <= other.made_us else (other, one)
        return one.node != other.node and second.made_us < first.at_us

    # ---- the end

    def on_rest(self) -> None:
        """All is done: from here on nodes send nothing but heartbeats."""
        self.said = self.messages()
        self.timed = self.timed_records()

    def timed_records(self) -> set[tuple[bytes, int]]:
        """Tube and number of what leaders keep for a while, and then drop: no client asks for it.

        A group (T50.6); the record of a child, for a minute after its end; a key (T44.3).
        """
        return {
            (tube.name, int(task.number))
            for machine in self.cluster.machines
            if machine.shell is not None and isinstance(machine.shell.n.policy, Tubes)
            for tube in machine.shell.n.policy.by_name.values()
            for task in tube.tasks.values()
            if isinstance(task.entry, (GroupEntry, ChildEntry, HoldEntry))
        }

    def timed_messages(self) -> int:
        """Messages at rest about such records that are gone now: TUBE-COPY and TUBE-GOT."""
        gone = len(self.timed - self.timed_records())
        self.history.count("timed records that ended at rest", gone)
        return 2 * gone * (len(self.cluster.machines) - 1)

    def is_left_over(self, id: bytes, kind: int) -> bool:
        """Whether the tombstone should be gone by now; not if no node still has to end it.

        One that waits for DELJOB stays for its TTL if the node that would have sent that lost its
        memory (A4.1). An ack of an expired job leaves one for its own TTL of 2 minutes (A3.4): its
        collection may end before it has spread.
        """
        if kind == WAITS_FOR_DELJOB and any(m.has_lost_memory for m in self.cluster.machines):
            return False
        add = self.history.by_id.get(id)
        if kind == WAITS_FOR_DELJOB and add is not None and add.expiry_us() < self.world.now_us:
            return False
        return kind != CUSTODY and not (add is not None and add.asked_for("DELJOB"))

    def open_jobs(self, machine: Machine) -> int:
        """Jobs that the node would still deliver."""
        jobs = machine.shell.n.jobs.values() if machine.shell is not None else ()
        return sum(1 for job in jobs if job.state != ACKED and not isinstance(job, Task))

    def messages(self) -> int:
        """Messages of the core sent by all nodes so far."""
        return sum(m.messages() for m in self.cluster.machines)

    def on_end(self) -> None:
        """Nothing is left over, no node spins, and something was checked."""
        self.cluster.leasing.on_end()
        self.cluster.tubing.on_end()
        is_over = all(self.watcher.is_over(a) for a in self.history.adds.values() if a.id)
        # jobs of an old disk may be there, and their holders send messages about them
        is_over = is_over and not any(self.open_jobs(m) for m in self.cluster.machines)
        said = max(0, self.messages() - self.said - self.timed_messages())
        self.history.count("messages at rest", said)
        if is_over and said > IDLE_MESSAGES * len(self.cluster.machines):
            self.history.find("restless", f"nodes at rest said {said} things")
        for m in self.cluster.machines:
            if m.shell is None:
                continue
            self.watcher.check_tables(m, m.shell)
            n = m.shell.n
            for id, job in n.jobs.items():
                add = self.history.by_id.get(id)
                if job.state == ACKED and (add is None or add.asked_for(*ENDED)):
                    token = add.token if add is not None else id
                    self.history.find("leftover", f"{m.name} still keeps the ack of {token!r}")
            tombs = sum(1 for id, b in n.tombs.ids.items() if self.is_left_over(id, int(b.kind)))
            for what, left in (("tombstones", tombs), ("producers", len(n.adding)),
                               ("waiting clients", len(n.waiters)),
                               ("gates", len(m.shell.pump.gate.held))):  # fmt: skip
                self.history.count("looks for leftovers")
                if left:
                    self.history.find("leftover", f"{m.name} still has {left} {what}")
        if len(self.history.adds) == len(self.probes):
            self.history.find("empty", "no client did anything: this seed checks nothing")
        for what in ("adds ok", "deliveries", "ledgers", "table checks"):
            if self.history.counts.get(what, 0) == 0:
                self.history.find("empty", f"no {what}: this seed checks nothing")
