"""A machine: its clock, its disk, and the process on it, which starts and ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sim.engine.clock import MachineClock
from sim.engine.disk import PATH, SimDisk
from sim.engine.network import End
from sim.engine.plan import Plan
from sim.machines.session import Session
from sim.machines.shell import Crash, Shell, config_of
from sim.tube_judges.disk import KeptTube, ident_of, tubes_on
from tuque.core.model.job import ACKED, EXTERNAL, IN_TRANSIT, WAIT_REPL
from tuque.core.node.node import Node
from tuque.core.node.peers import slots_of
from tuque.store.disk import PowerCut
from tuque.store.frames import JournalError
from tuque.store.replay import Loader

if TYPE_CHECKING:
    from sim.machines.ground import Ground


def holders_of(n: Node, id: bytes) -> list[bytes]:
    """The other nodes that may have the job, as far as this node knows."""
    job = n.jobs.get(id)
    return [n.peers[slot].node_id for slot in slots_of(job.holders)] if job is not None else []


class Settings:
    """The configuration of the nodes of a seed."""

    def __init__(self, plan: Plan, at: int) -> None:
        self.policy = plan.policy
        self.sync_us = plan.sync_us
        self.memory_bytes = plan.memory_bytes
        self.may_evict = True
        self.queue_idle_ms = plan.queue_idle_ms
        self.node_timeout_ms = plan.timeouts_ms[at] if plan.timeouts_ms else plan.node_timeout_ms
        self.lease_ms = plan.lease_ms or self.node_timeout_ms
        self.opens_early = plan.opens_early
        self.bus_limit_bytes = plan.bus_limit_bytes
        self.sealed = plan.sealed
        self.failover = plan.failover
        self.is_candidate = True  # `tube-failover`, where votes choose the leaders
        self.asks_all = plan.asks_all
        self.voters = plan.voters
        self.silent_ms = plan.silent_ms


class Machine:
    """A place where a node runs."""

    def __init__(self, cluster: Ground, index: int, plan: Plan) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.index = index
        self.name = f"n{index}"
        self.chance = self.world.stream(f"machine {index}")
        self.lots = self.chance.random
        self.node_id = b"%08x" % self.chance.getrandbits(32) + b"%032d" % index
        rate = plan.rates_ppm[index] if index < len(plan.rates_ppm) else 0
        self.clock = MachineClock(self.world, self.name, rate)
        self.disk = SimDisk(self.world.stream(f"disk {index}"))
        self.old_disk: SimDisk | None = None
        self.settings = Settings(plan, index)
        self.holes = plan.holes
        self.cpu_us = plan.cpu_us
        self.load_us = plan.load_us
        self.shell: Shell | None = None
        self.lives = 0
        self.died_us = 0  # when the last process ended
        self.conf = b""  # nodes.conf
        self.old_conf = b""
        self.fuse = 0  # effects until the process ends; 0: unlimited
        self.fuse_args: dict[str, object] = {}
        self.kept: dict[bytes, bool] = {}  # jobs on the disk of an ended process
        self.known: dict[bytes, bool] = {}  # its jobs that came with a key
        self.kept_tubes: dict[bytes, KeptTube] = {}  # its tubes
        self.kept_holders: dict[bytes, list[bytes]] = {}  # the holders of its jobs
        self.kept_tokens = 0  # reserved tokens on the disk
        self.kept_token = 0  # the newest token of any take on the disk
        self.said = 0  # messages of ended processes
        self.disk_since_us = 0  # since when this disk and its data are the node's
        self.has_new_disk = False  # and no process has started with it yet
        self.has_evicted_acks = False  # in an ended process
        self.has_evicted = False  # in an ended process
        self.had_disk_fault = False
        self.is_drained = False
        self.is_off = False  # off, or started but not at work yet: its clocks mean nothing
        self.has_left = False  # was told to leave at least once
        self.was_forgotten = False
        self.has_lost_memory = False  # it knew something that it lost
        self.has_lost_disk = False  # the disk was lost, or replaced by an old one
        self.had_power_cut = False
        self.woke_us = 0  # when it continued after a standstill (G8.4); 0: never

    def others(self) -> list[Machine]:
        """The machines that this one knows."""
        return [m for m in self.cluster.machines if m is not self]

    # ---- the process

    def new_shell(self) -> Shell:
        """A process that is to start."""
        return Shell(self, self.lives, config_of(self.settings))

    def start(self, is_empty: bool = False) -> None:
        """Start a process from the disk."""
        if self.shell is not None:
            return
        if is_empty:
            self.disk = self.disk.empty()
        if is_empty or self.has_new_disk:
            self.disk_since_us = self.world.now_us  # no client or node told it anything before
        self.has_new_disk = False
        self.disk.before_step = self.disk.on_fsync = None
        self.lives += 1
        self.woke_us = 0
        self.fuse = 0
        shell = self.new_shell()
        try:
            shell.start()
        except JournalError as error:
            shell.is_dead, shell.died_us = True, self.world.now_us
            self.disk.process_crash()
            self.on_bad_journal(error)
            self.world.after(500_000, self.start)
            return
        if not shell.n.is_loading:
            self.kept = {}
            self.is_off = False
        self.shell = shell
        self.cluster.net.listeners[self.name] = shell
        self.disk.before_step = partial(self.burn, "disk")
        self.world.note(f"{self.name} starts, life {self.lives}, {len(shell.n.jobs)} jobs")

    def tubes_known(self) -> list[tuple[bytes, int]]:
        """The tubes of the process, or of its disk."""
        if self.shell is None or self.shell.s.is_loading:
            return [kept.ident for kept in self.kept_tubes.values()]
        t = tubes_on(self.shell.n)
        return [ident_of(tube) for tube in t.by_name.values()] if t is not None else []

    def newest_token(self) -> int:
        """An upper bound of the tokens known to the process, or on the disk of an ended one."""
        if self.shell is None or self.shell.s.is_loading:
            return self.kept_token
        t = tubes_on(self.shell.n)
        return int(t.token) if t is not None else 0

    def guard(self, step: Callable[[], None]) -> None:
        """Run a step of the process; the process may end in it."""
        try:
            step()
        except (Crash, PowerCut):
            self.world.sometimes("crash between two effects of a turn")
            self.die(**self.fuse_args)  # type: ignore[arg-type] # from a plan's op
        except JournalError as error:
            self.on_bad_journal(error)
            self.die(down_ms=500)

    def on_bad_journal(self, error: JournalError) -> None:
        """The journal cannot be loaded: a bad disk, repaired some day, or a bug."""
        self.world.note(f"{self.name} cannot start: {error}")
        if self.had_disk_fault and "cannot write" in str(error):
            return
        if not (self.disk.has_lied and "is damaged" in str(error)):  # J5.2: it must say so
            self.cluster.on_bad_journal(self, str(error))
        self.disk = self.disk.empty()

    def burn(self, what: str) -> None:
        """Count an effect before it happens; end the process if the fuse is used up."""
        if self.fuse > 0:
            self.fuse -= 1
            if self.fuse == 0:
                self.world.note(f"{self.name} ends before {what}")
                raise Crash

    def die(self, how: str = "kill", back: str = "disk", down_ms: int = 1000) -> None:
        """The process ends; only its disk remains."""
        shell = self.shell
        if shell is None:
            return
        self.fuse = 0
        self.disk.before_step = self.disk.on_fsync = None
        is_power = how == "power"
        shell.is_dead, shell.died_us = True, self.world.now_us
        self.shell, self.died_us = None, self.world.now_us
        self.cluster.net.listeners.pop(self.name, None)
        self.cluster.net.crash(shell, is_power)
        if is_power:
            self.had_power_cut = True
            self.disk.lose_power(self.holes)
            self.is_off = True
            if self.clock.jumps:
                self.cluster.on_times_off()
            self.clock.reboot()
        else:
            self.disk.process_crash()
        if back == "old" and self.old_disk is not None:
            self.disk = self.old_disk.copy()
            self.disk.locks = {}
            self.conf = self.old_conf
        elif back == "empty" or self.settings.policy == "off":
            self.disk = self.disk.empty()
        if back != "disk" or self.settings.policy == "off":
            self.has_lost_disk = True
        if back != "disk":
            self.disk_since_us = self.world.now_us
            self.has_new_disk = True
        if back != "disk" or self.settings.policy != "always":
            self.has_lost_memory = True
        self.cluster.on_death(self, shell, how, back)
        self.said += shell.said()
        self.has_evicted_acks = self.evicted_acks(shell)
        self.has_evicted = self.evicted(shell)
        self.is_drained = False
        if down_ms >= 0:
            self.world.after(down_ms * 1000, self.start)

    def set_clock(self, by_ms: int) -> None:
        """The wall clock jumps; while the machine is off that looks like time passing (J5.8)."""
        self.clock.jump(by_ms)
        if self.is_off:
            self.cluster.on_times_off()

    def look_at_disk(self) -> dict[bytes, bool]:
        """The unacked jobs that a start would restore."""
        self.known = {}
        self.kept_tubes = {}
        self.kept_holders = {}
        self.kept_tokens = self.kept_token = 0
        if self.settings.policy == "off":
            return {}
        disk = self.disk.copy()
        n = Node(self.node_id, b"look", self.clock.wall_ms())
        try:
            disk.makedirs(PATH)
            loader = Loader(disk, PATH, self.clock.boot_record(), True)
            while not loader.step(n, 10_000):
                pass
        except JournalError:
            return {}
        t = tubes_on(n)
        if t is not None:
            self.kept_tubes = {name: KeptTube(tube) for name, tube in t.by_name.items()}
            self.kept_tokens = int(loader.tubes.token_reserved)
            self.kept_token = max(self.kept_tokens, int(loader.tubes.token))
        self.known = {kept.id: True for kept in n.keys.kept.values()}
        self.known.update((id, True) for id in n.jobs)
        self.kept_holders = {id: holders_of(n, id) for id in n.jobs}
        return {id: True for id, job in n.jobs.items() if job.state != ACKED}

    def pause(self, for_ms: int) -> None:
        """The process stands still (SIGSTOP) for a while."""
        shell = self.shell
        if shell is None or shell.is_paused:
            return
        shell.is_paused = True
        shell.paused_us = self.world.now_us
        self.world.note(f"{self.name} stands still for {for_ms} ms")
        self.world.after(for_ms * 1000, partial(self.go_on, shell))

    def go_on(self, shell: Shell) -> None:
        """The process continues."""
        shell.is_paused = False
        shell.turn_us = -1
        if not shell.is_dead:
            # its clock may be a little slow, and its last turn was earlier
            if self.world.now_us - shell.paused_us > self.settings.node_timeout_ms * 1100:
                self.woke_us = self.world.now_us
            shell.wake()
            if shell.thread is not None:
                shell.thread.resume()

    # ---- the view of the judges

    def told(self, offset: int, end: End | None, replies: list[object]) -> None:
        """A client got a reply at its end of the connection."""
        if end is not None and isinstance(end.owner, Session):
            end.owner.on_given(end, offset, replies)

    def watch(self, shell: Shell) -> None:
        """A turn ended."""
        self.cluster.on_turn(self, shell)

    def evicted_acks(self, shell: Shell | None) -> bool:
        """Whether acks were ever evicted here before all holders confirmed (M3.1)."""
        return self.has_evicted_acks or (shell is not None and shell.n.acks_evicted > 0)

    def evicted(self, shell: Shell | None) -> bool:
        """Whether jobs were ever evicted here (M3.1)."""
        return self.has_evicted or (shell is not None and shell.n.ledger.evicted > 0)

    def messages(self) -> int:
        """Messages of the core sent from here so far."""
        return self.said + (self.shell.said() if self.shell is not None else 0)

    def lost_holders(self, n: Node, id: bytes) -> bool:
        """Whether the disk knows fewer holders of the job than the process did."""
        return not set(holders_of(n, id)) <= set(self.kept_holders.get(id, []))

    def record(self, id: bytes) -> object:
        """The process's record of the job, or None."""
        return self.shell.n.jobs.get(id) if self.shell is not None else None

    def gave_away(self, id: bytes) -> bool:
        """Whether only other nodes got the job that a client added here (R6.1)."""
        job = self.shell.n.jobs.get(id) if self.shell is not None else None
        return job is None or bool(job.flags & EXTERNAL)

    def has_copy(self, id: bytes) -> bool:
        """Whether an unacked copy is here, in memory or on the disk of an ended process."""
        if self.shell is None or self.shell.n.is_loading:
            return id in self.kept
        job = self.shell.n.jobs.get(id)
        if job is None or job.state == ACKED:
            return False
        return not (job.state == WAIT_REPL and job.flags & EXTERNAL)

    def may_hand_out(self, id: bytes) -> bool:
        """False for a copy of an at-most-once job without the right to deliver it."""
        job = self.shell.n.jobs.get(id) if self.shell is not None else None
        return job is None or job.retry_s > 0 or not job.flags & IN_TRANSIT

    def has_weak_disk(self) -> bool:
        """Whether the disk of an ended process may be older than its messages."""
        return self.shell is None and self.settings.policy != "always"

    def knows_ack(self, id: bytes) -> bool:
        """Whether the process knows that the job is acked."""
        return self.shell is not None and self.shell.knows_ack(id)
