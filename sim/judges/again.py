"""Jobs that are delivered again: why, and whether that was necessary (SPEC Q11, Q12).

Two judges. After restarts, if no frame was lost or slow, a job is delivered before its RETRY
only if no node is left that knew it was out. When all faults have been over for a while, no job
is in the queues of two linked nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from sim.engine.history import OK, OLD_DISK, Add, Delivery
from tuque.core.model.job import ACTIVE, OUT_HERE, OUT_THERE, QUEUED, WILL_MS, Job
from tuque.core.model.task import Task

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster

RESTARTS: Final = {"kill", "power", "reformat", "rolling", "rewrite", "queue_pause"}
SETTLED_MS: Final = 2_000  # a link of that age has settled the jobs of its ends
LOOKS_MS: Final = 2_500  # between two checks of queues: a job may be in two for a moment
SLACK_MS: Final = 100
SLOWEST: Final = 17  # times the delay of a line, if one frame of the two is late (network.py)
TOLD_US: Final = 600_000  # after a delivery, until linked holders have received DELIVERED
ASKED: Final = ("NACK", "ENQUEUE", "DEQUEUE")
CAUSES: Final = (
    "asked for", "RETRY over", "at the same moment", "who knew was gone", "cut off or slow",
    "too early",
)  # fmt: skip


class Again:
    """Both judges of one seed, and their figures."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = cluster.history
        self.world = cluster.world
        self.history.on_again = self.on_again
        self.history.on_handed_out = self.note_told
        self.twice: dict[bytes, set[str]] = {}  # queued on several nodes at the last check

    # ---- too early

    def on_again(self, add: Add, now: Delivery) -> None:
        """A job was delivered again: count why."""
        cause = self.cause(add, now)
        self.history.count(f"again: {cause}")
        if cause != "too early":
            return
        before = add.deliveries[-2]
        self.history.find(
            "early-again",
            f"{add.token!r} came again at {now.node} after "
            f"{(now.at_us - before.at_us) / 1e6:.3f} s, RETRY {add.retry_s}, "
            f"while {before.node} had handed it out",
        )

    def cause(self, add: Add, now: Delivery) -> str:
        """Why a job was delivered again, one of CAUSES."""
        before = add.deliveries[-2]
        plan = self.cluster.plan
        if add.asked_for(*ASKED) or add.was_leased:
            return "asked for"
        slack_us = 50_000 + 2 * plan.delay_us + 80 * plan.sync_us
        if now.at_us - before.at_us >= add.retry_s * 1_000_000 - slack_us:
            return "RETRY over"
        is_odd = plan.rates_ppm or plan.memory_bytes or plan.bus_limit_bytes < 1 << 20
        if now.made_us - before.made_us < 5_000 + 4 * plan.delay_us:
            return "at the same moment"
        is_slow = SLOWEST * plan.delay_us > WILL_MS * 1000  # a question and its answer
        if not set(plan.faults) <= RESTARTS or is_odd or is_slow:
            return "cut off or slow"
        if add.is_once and add.once_excuse:
            return "asked for"  # it was written twice, and became two jobs
        self.history.count("early redeliveries looked at")
        giver = self.machine(now.node)
        if giver is None or giver.shell is None:
            return "who knew was gone"
        if self.was_told(giver, giver.shell, before):
            return "too early"
        if any(self.knew(giver, giver.shell, m, add, before) for m in self.cluster.machines):
            return "too early"
        return "who knew was gone"

    def note_told(self, add: Add, delivery: Delivery) -> None:
        """Note the nodes that must receive DELIVERED: holders linked to the node that delivers."""
        m = self.machine(delivery.node)
        if m is None or m.shell is None:
            return
        by_id = m.shell.s.members.by_id
        for other in m.others():
            one = by_id.get(other.node_id)
            if one is not None and one.is_linked and other.shell is not None:
                if add.id in other.shell.n.jobs:
                    delivery.told.append(other.name)
        delivery.from_life = m.shell

    def was_told(self, giver: Machine, at: Shell, before: Delivery) -> bool:
        """Whether the giver got DELIVERED before its sender died (V4.6)."""
        if giver.name not in before.told or at.born_us >= before.made_us:
            return False
        life = cast("Shell", before.from_life)
        ended_us = life.died_us if life.is_dead else self.world.now_us
        plan = self.cluster.plan
        return before.at_us + TOLD_US + 4 * plan.delay_us + 80 * plan.sync_us < ended_us

    def machine(self, name: str) -> Machine | None:
        """The machine with that name."""
        return next((m for m in self.cluster.machines if m.name == name), None)

    def knew(self, giver: Machine, at: Shell, m: Machine, add: Add, before: Delivery) -> bool:
        """Whether the machine could have told the delivering node that a worker has the job."""
        is_young = self.world.now_us - at.born_us < self.timeout_us() - SLACK_MS * 1000
        if m.shell is None:
            return m.name == before.node and is_young and self.is_coming(m)
        job = m.shell.n.jobs.get(add.id)
        if m.shell.n.is_loading or job is None:
            return False
        if m is giver:
            return m.name == before.node and at.born_us < before.made_us
        if not is_young and not self.has_settled(at, m):
            return False
        if m.name == before.node:  # it may have learned meanwhile that the other node has it
            age_ms = (self.world.now_us - before.made_us) // 1000
            return bool(m.shell.n.now_ms - job.last_ms < age_ms + SLACK_MS)
        is_told = at.born_us > before.at_us and m.shell.born_us < before.made_us
        return is_told and self.is_out(m.shell, job)

    def timeout_us(self) -> int:
        """How long a restarted node waits for others, in us."""
        return self.cluster.plan.node_timeout_ms * 1000

    def is_coming(self, m: Machine) -> bool:
        """Whether all must wait for the machine: it just went down, as everybody who is up."""
        if self.world.now_us - m.died_us > self.timeout_us():
            return False
        shells = [o.shell for o in self.cluster.machines if o.shell is not None]
        return all(shell.born_us >= m.died_us for shell in shells)

    def is_out(self, shell: Shell, job: Job) -> bool:
        """Whether the node knows that a worker has the job for some time to come."""
        is_out = job.state == ACTIVE and job.marks & (OUT_HERE | OUT_THERE) != 0
        return is_out and job.qtime_ms > shell.n.now_ms + SLACK_MS

    def has_settled(self, at: Shell, m: Machine) -> bool:
        """Whether the two have been linked for long enough."""
        one = at.s.members.by_id.get(m.node_id)
        if one is None or not one.is_linked:
            return False
        return bool(at.n.now_ms - one.linked_ms > SETTLED_MS)

    # ---- queued twice

    def look(self) -> dict[bytes, set[str]]:
        """The jobs queued on several linked nodes, and those nodes."""
        places: dict[bytes, list[Machine]] = {}
        for m in self.cluster.machines:
            if m.shell is None or m.shell.n.is_loading:
                continue
            for id, job in m.shell.n.jobs.items():
                if job.state == QUEUED and job.retry_s > 0 and not isinstance(job, Task):
                    self.history.count("queued jobs looked at")
                    places.setdefault(id, []).append(m)
        found: dict[bytes, set[str]] = {}
        for id, machines in places.items():
            pairs = [(m, o) for m in machines for o in machines if m is not o and is_linked(m, o)]
            linked = {m.name for m, o in pairs if is_holder(m, id, o) or is_holder(o, id, m)}
            add = self.history.by_id.get(id)
            if pairs and not linked and add is not None and add.excuse == OLD_DISK:
                self.history.count("queued at two holders that do not know each other")
            elif pairs:
                found[id] = linked or {m.name for m, _ in pairs}
        return found

    def judge_queues(self, is_last: bool) -> None:
        """The faults have been over for a while; what two checks find twice will stay so."""
        found = self.look()
        if is_last:
            for id, names in found.items():
                add = self.history.by_id.get(id)
                if names & self.twice.get(id, set()) and add is not None and add.outcome == OK:
                    self.history.find("queued-twice", f"{add.token!r} is queued at {sorted(names)}")
        self.twice = found


def is_holder(m: Machine, id: bytes, other: Machine) -> bool:
    """Whether the first node counts the other one as a holder of the job.

    Two holders that do not know each other cannot settle. This takes a copy of an old disk: the
    holders that it names are gone, and the current ones do not know it.
    """
    if m.shell is None:
        return False
    slot = m.shell.n.slot_of.get(other.node_id)
    return slot is not None and bool(m.shell.n.jobs[id].holders >> slot & 1)


def is_linked(m: Machine, other: Machine) -> bool:
    """Whether the first has had a link to the other for a while."""
    if m.shell is None:
        return False
    one = m.shell.s.members.by_id.get(other.node_id)
    if one is None or not one.is_linked:
        return False
    return bool(m.shell.n.now_ms - one.linked_ms > SETTLED_MS)
