"""What operators do to a cluster: drain and stop nodes, restart them in turn, forget, pause.

Everything goes through commands, as do the checks before the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.machines.kernel import BUS_PORT, CLIENT_PORT
from sim.machines.session import LOST
from tuque.core.node.node import NODE_LEAVING
from tuque.core.queues.deliver import wake_all
from tuque.core.repair.drain import drain_left, set_leaving
from tuque.core.repair.node_loss import repair_left
from tuque.tubes.election.voters import set_willing
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.policy import tubes_of

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster

Args = dict[str, Any]
POLL_US: Final = 200_000
PATIENCE_US: Final = 60_000_000


def tell(cluster: Cluster, m: Machine, *words: bytes) -> None:
    """Send a command to a node, as an operator."""
    cluster.person("boss").session(m.name).ask(list(words), ignore)


def meet_all(cluster: Cluster) -> None:
    """CLUSTER MEET: the first node meets the others, which find each other by gossip."""
    first = cluster.machines[0].shell
    assert first is not None
    for m in cluster.machines[1:]:
        first.s.members.meet(m.name, CLIENT_PORT, BUS_PORT)
    first.wake()


def meet(cluster: Cluster, args: Args) -> None:
    """CLUSTER MEET: two nodes meet, with all that each of them knows; once both are up."""
    count = len(cluster.machines)
    at, other = cluster.machines[args["a"] % count], cluster.machines[args["b"] % count]
    if at.shell is None or other.shell is None:
        cluster.world.after(POLL_US, partial(meet, cluster, args))
    else:
        at.shell.s.members.meet(other.name, CLIENT_PORT, BUS_PORT)
        at.shell.wake()
        cluster.history.count("meetings")


def ignore(reply: object) -> None:
    """Ignore the reply."""


def machine_of(cluster: Cluster, args: Args) -> Machine:
    """The machine of the operation."""
    at: int = args["node"]
    return cluster.machines[at % len(cluster.machines)]


def queue_pause(cluster: Cluster, args: Args) -> None:
    """PAUSE."""
    m = machine_of(cluster, args)
    words = [word.encode() for word in args["words"]]
    tell(cluster, m, b"PAUSE", args["queue"].encode(), *words)
    cluster.watcher.on_fault("queue pause", [m])


def leave(cluster: Cluster, m: Machine, is_leaving: bool) -> None:
    """CLUSTER LEAVING yes|no, as the command does it."""
    shell = m.shell
    if shell is None:
        return
    if is_leaving:
        cluster.leaving.add(m.name)
        cluster.leaving_most = max(cluster.leaving_most, len(cluster.leaving))
    else:
        cluster.leaving.discard(m.name)
    set_leaving(shell.n, is_leaving)
    if is_leaving:
        wake_all(shell.n, NODE_LEAVING)
    shell.s.identity.is_leaving = is_leaving
    shell.s.identity.save(shell.s.members)
    shell.wake()


def away_and_back(cluster: Cluster, args: Args) -> None:
    """A node starts to leave, and then stays."""
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("leaving", [m])
    m.has_left = True
    leave(cluster, m, True)
    cluster.world.after(args["for_ms"] * 1000, partial(leave, cluster, m, False))


def set_writable(m: Machine, yes: bool) -> None:
    """CONFIG SET read-only no|yes, as the command does it (T19.5)."""
    if m.shell is not None:
        set_read_only(m.shell.n, tubes_of(m.shell.n), not yes)
        m.shell.wake()


def set_candidate(m: Machine, yes: bool) -> None:
    """CONFIG SET tube-failover no|yes, as the command does it (T23.2)."""
    m.settings.is_candidate = yes
    if m.shell is not None and m.settings.failover:
        set_willing(tubes_of(m.shell.n), yes)
        m.shell.wake()


def read_only(cluster: Cluster, args: Args) -> None:
    """A node is read-only for a while."""
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("read-only", [m])
    set_writable(m, False)
    cluster.world.after(args["for_ms"] * 1000, partial(set_writable, m, True))


def drain(cluster: Cluster, args: Args) -> None:
    """A node leaves; once it is safe to stop, it is stopped and its disk wiped."""
    if len(cluster.machines) < 2:
        return
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("drain", [m])
    m.has_left = True
    leave(cluster, m, True)
    Waiting(cluster, partial(is_drained, m), partial(wipe, cluster, m)).begin()


def is_drained(m: Machine) -> bool:
    """Whether the node reports that it is safe to stop."""
    shell = m.shell
    return shell is not None and shell.n.is_leaving and drain_left(shell.n) == 0


def wipe(cluster: Cluster, m: Machine) -> None:
    """Stop a drained node; it comes back empty, and stays."""
    cluster.watcher.on_safe_to_stop(m)
    m.is_drained = True
    m.die(how="kill", back="empty", down_ms=1_000)
    cluster.world.after(4_000_000, partial(leave, cluster, m, False))


class Waiting:
    """Check a condition repeatedly, then continue."""

    def __init__(
        self, cluster: Cluster, is_so: Callable[[], bool], then: Callable[[], None]
    ) -> None:
        self.cluster = cluster
        self.is_so = is_so
        self.then = then
        self.until_us = cluster.world.now_us + PATIENCE_US

    def begin(self) -> None:
        """Schedule the first check."""
        self.cluster.world.after(POLL_US, self.look)

    def look(self) -> None:
        """Check now."""
        world = self.cluster.world
        if self.cluster.phase != "chaos":
            return
        if self.is_so():
            self.then()
        elif world.now_us < self.until_us:
            world.after(POLL_US, self.look)


class Rolling:
    """A rolling restart: the next node follows when all report that repair is done."""

    def __init__(self, cluster: Cluster, args: Args) -> None:
        self.cluster = cluster
        self.back: str = args["back"]
        self.order = list(cluster.machines)
        if args.get("order"):
            self.order.reverse()

    def begin(self) -> None:
        """Restart the first node."""
        self.cluster.watcher.on_fault("rolling restart", self.order)
        self.next()

    def next(self) -> None:
        """Restart the next node."""
        if not self.order or self.cluster.phase != "chaos":
            return
        m = self.order.pop(0)
        if m.shell is not None:
            m.die(how="kill", back=self.back, down_ms=300)
        Waiting(self.cluster, self.is_repaired, self.on_repaired).begin()

    def is_repaired(self) -> bool:
        """Whether all nodes are linked and none has anything left to repair."""
        return self.cluster.is_whole() and all(
            repair_left(m.shell.n) == 0 for m in self.cluster.machines if m.shell is not None
        )

    def on_repaired(self) -> None:
        """Repair is done: every job must have its copies again."""
        self.cluster.watcher.on_repaired()
        self.cluster.world.sometimes("repair done in a rolling restart")
        self.next()


def rolling(cluster: Cluster, args: Args) -> None:
    """A rolling restart of all nodes."""
    Rolling(cluster, args).begin()


def hostile(cluster: Cluster, args: Args) -> None:
    """A client that tries to do harm."""
    m = machine_of(cluster, args)
    person = cluster.person(args["client"])
    session = person.session(m.name)
    cluster.watcher.on_fault("hostile client", [m])
    what = args["what"]
    forged = b"D-%08x-%024d-0005" % (person.chance.getrandbits(32), person.chance.getrandbits(60))
    if what == "forged":
        session.ask([b"ACKJOB", forged], partial(on_forged, cluster, [forged]))
    elif what == "many":
        ids = [forged[:11] + b"%024d" % i + forged[35:] for i in range(50)]
        verb = person.chance.choice([b"FASTACK", b"ACKJOB"])
        session.ask([verb, *ids], partial(on_forged, cluster, ids))
    elif what == "unknown":
        session.ask([b"NACK", forged], ignore)
        session.ask([b"SHOW", forged], ignore)
        session.ask([b"NOSUCHCOMMAND", b"x"], ignore)
    elif what == "half":
        session.say(b"*3\r\n$6\r\nACKJOB\r\n$40\r\n" + forged[:20], ignore)
    else:
        session.say(b"*1\r\n$-5\r\n\x00\xff", ignore)


def on_forged(cluster: Cluster, ids: list[bytes], reply: object) -> None:
    """A forged id: it is unknown, and nothing is kept for it."""
    if reply is LOST or isinstance(reply, Exception):
        return
    cluster.history.count("forged ids", len(ids))
    if reply != 0:
        cluster.history.find("false-error", f"a forged id was acked: {reply!r}")
    for m in cluster.machines:
        if m.shell is not None and any(id in m.shell.n.jobs or m.knows_ack(id) for id in ids):
            cluster.history.find("false-error", f"{m.name} keeps something for a forged id")


def forget(cluster: Cluster, args: Args) -> None:
    """The others forget a node that is down; it is met again when it is back."""
    m = machine_of(cluster, args)
    if len(cluster.machines) < 3:
        return
    cluster.watcher.on_fault("forget", [m])
    m.die(how="kill", back="empty", down_ms=args["for_ms"] + 7_000)
    cluster.world.after(2_500_000, partial(forget_everywhere, cluster, m))
    cluster.world.after((args["for_ms"] + 8_000) * 1000, partial(meet_again, cluster, m))


def meet_again(cluster: Cluster, m: Machine) -> None:
    """A node of the cluster meets a forgotten one."""
    for other in cluster.machines:
        if other is not m and other.shell is not None and not other.was_forgotten:
            other.shell.s.members.meet(m.name, CLIENT_PORT, BUS_PORT)
            other.shell.wake()
            return


def take_back(cluster: Cluster, m: Machine, times: int = 3) -> None:
    """A forgotten node joins again, which it may do only without old jobs.

    A node that also lost its memory counts as unknown until gossip says that it was forgotten: then
    the refusal says what to do, and it is repeated.
    """
    if m.shell is not None and m.shell.linked() < len(cluster.machines) - 1:
        m.die(how="kill", back="empty", down_ms=100)
        cluster.world.after(500_000, partial(meet_again, cluster, m))
    if times > 1:  # it may seem linked until it learns of the refusal
        cluster.world.after(3_000_000, partial(take_back, cluster, m, times - 1))


def forget_everywhere(cluster: Cluster, m: Machine) -> None:
    """CLUSTER FORGET on each node that is up."""
    if m.shell is None and cluster.phase == "chaos":
        for other in cluster.machines:
            if other is not m:
                if other.shell is not None:
                    other.shell.s.members.forget(m.node_id)
                    other.shell.wake()
        m.was_forgotten = True
        if cluster.plan.faults == ["forget"]:
            cluster.world.after(4_000_000, partial(look_for_acks, cluster, m))


def look_for_acks(cluster: Cluster, gone: Machine) -> None:
    """No acked job waits for a forgotten node."""
    now_us = cluster.world.now_us
    for m in cluster.machines:
        if m.shell is None or gone.shell is not None:
            continue
        for id in m.shell.n.acked:
            add = cluster.history.by_id.get(id)
            cluster.history.count("acks looked for after a FORGET")
            if add is not None and 0 < add.acked_us() < now_us - 3_500_000:
                cluster.history.find("leftover", f"{m.name} waits for a node that was forgotten")


ADMIN: Final[dict[str, Callable[[Cluster, Args], None]]] = {
    "queue_pause": queue_pause,
    "meet": meet,
    "away_and_back": away_and_back,
    "drain": drain,
    "rolling": rolling,
    "hostile": hostile,
    "forget": forget,
    "tube_read_only": read_only,
}
