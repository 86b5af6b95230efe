"""One seed: machines, network, clients and checkers, run through its phases.

1 setup: all nodes are up and linked. 2 chaos: the plan's operations. 3 heal: all faults end, all
nodes are up. 4 drain: consumers on every node take and ack all jobs. 5 rest: nothing may be left
over.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from sim.engine.history import History
from sim.engine.network import Network
from sim.engine.plan import Op, Plan
from sim.engine.world import World
from sim.judges.again import LOOKS_MS, Again
from sim.judges.checkers import Watcher
from sim.judges.leasing import Leasing
from sim.judges.lives import Living
from sim.judges.verdicts import Verdicts
from sim.machines.ground import Ground
from sim.machines.machine import Machine
from sim.machines.session import LOST
from sim.machines.shell import Shell
from sim.plans.life_swarm import last_workers
from sim.plans.task_swarm import last_tasks
from sim.plans.tube_swarm import last_clients
from sim.task_judges.keys import Tasking
from sim.tube_judges.homes import look_for_home
from sim.tube_judges.judge import Tubing
from sim.workload.admin import (
    ADMIN,
    leave,
    meet_all,
    set_candidate,
    set_writable,
    take_back,
)
from sim.workload.faults import apply
from sim.workload.group_clients import (
    ChildWorker,
    GroupMaker,
    TaskScheduler,
    TopicKeeper,
    TopicPublisher,
    TopicWorker,
)
from sim.workload.lessees import Lessee
from sim.workload.life_clients import (
    LifeBoss,
    LifeEditor,
    LifeProducer,
    LifeReplayer,
    LifeWorker,
)
from sim.workload.programs import Person, Worker
from sim.workload.publishers import Publisher, Repeater
from sim.workload.scripts import Script
from sim.workload.task_clients import TaskBoss, TaskProducer, TaskWorker
from sim.workload.tube_clients import TubeMeddler, TubeProducer, TubeWorker
from sim.workload.tube_movers import (
    TubeForcer,
    TubeMover,
    TubePauser,
    TubeRescuer,
    TubeSpoiler,
)
from sim.workload.voters import VoterKeeper

SETUP_MS: Final = 8_000
HEAL_MS: Final = 12_000  # until all are linked again and repairs are done
DRAIN_MS: Final = 25_000
REST_MS: Final = 12_000
NARROW_BYTES: Final = 1 << 16  # a link with a smaller limit sometimes has no room for a job
# what is sent may arrive that much later; the time to live of a copy counts from its arrival
TRAVEL: Final = {"slow", "cut", "one_way", "pause", "meddle"}
TRAVEL_US: Final = 20_000_000
LATE_FRAME: Final = 20  # times the usual delay: one frame that was late, and some hops besides
QUICK_LOAD_US: Final = 5_000  # after the heal: a slow load of a long journal outlasts HEAL_MS
SLOW_DISK_US: Final = 3_000_000  # a frame waits for the fsync of its turn, and one before it
SCRIPTS: Final[dict[str, type[Script]]] = {
    "lessee": Lessee,
    "publisher": Publisher,
    "repeater": Repeater,
    "tube_producer": TubeProducer,
    "tube_worker": TubeWorker,
    "tube_meddler": TubeMeddler,
    "tube_mover": TubeMover,
    "tube_pauser": TubePauser,
    "tube_forcer": TubeForcer,
    "tube_rescuer": TubeRescuer,
    "tube_spoiler": TubeSpoiler,
    "voter_keeper": VoterKeeper,
    "life_producer": LifeProducer,
    "life_worker": LifeWorker,
    "life_boss": LifeBoss,
    "life_editor": LifeEditor,
    "life_replayer": LifeReplayer,
    "task_producer": TaskProducer,
    "task_worker": TaskWorker,
    "task_boss": TaskBoss,
    "task_scheduler": TaskScheduler,
    "group_maker": GroupMaker,
    "child_worker": ChildWorker,
    "topic_keeper": TopicKeeper,
    "topic_publisher": TopicPublisher,
    "topic_worker": TopicWorker,
}


class Cluster(Ground):
    """All objects of one seed."""

    def __init__(self, plan: Plan, trace: bool = False) -> None:
        self.plan = plan
        world = World(plan.seed)
        super().__init__(world, Network(world, plan.split_rate, plan.delay_us))
        if trace:
            self.world.trace = []
        self.history = History(self.world)
        self.history.clock_slack_us = 60_000 if plan.rates_ppm else 0
        late = bool(TRAVEL & set(plan.faults))
        self.history.travel_slack_us = TRAVEL_US if late else LATE_FRAME * plan.delay_us
        if "disk" in plan.faults:
            self.history.travel_slack_us += SLOW_DISK_US
        self.net.has_meddlers = plan.sealed
        self.machines = [Machine(self, i, plan) for i in range(plan.nodes)]
        self.people: dict[str, Person] = {}
        self.watcher = Watcher(self)
        self.leasing = Leasing(self)
        self.tubing = Tubing(self)
        self.tasking = Tasking(self)
        self.living = Living(self)
        self.verdicts = Verdicts(self, self.watcher)
        self.again = Again(self)
        self.healed_us = 0
        self.phase = "setup"
        self.leaving: set[str] = set()  # machines told to leave and not yet to stay
        self.leaving_most = 0  # most of them at the same time

    # ---- what nodes did, for the judges

    def on_loaded(self, m: Machine, shell: Shell, arrived: dict[bytes, bool]) -> None:
        self.watcher.on_loaded(m, shell, arrived)

    def on_run(self, m: Machine, shell: Shell) -> None:
        self.tubing.on_turn(m, shell)
        self.tasking.on_turn(m, shell)

    def on_turn(self, m: Machine, shell: Shell) -> None:
        self.watcher.on_turn(m, shell)

    def on_reply(self, made_us: int) -> None:
        self.history.made_us = made_us

    def on_closed(self, m: Machine, shell: Shell, number: int) -> None:
        self.tubing.on_closed(m, shell, number)

    def on_death(self, m: Machine, shell: Shell, how: str, back: str) -> None:
        unread = m.kept if shell.n.is_loading else {}
        m.kept = m.look_at_disk()
        for id in unread:
            add = self.history.by_id.get(id)
            if add is not None and id not in m.kept and id not in shell.n.jobs:
                add.losses += 1  # it died before it had loaded the copy, and its disk is gone
        self.world.note(f"{m.name} is down ({how}), {len(m.kept)} jobs on disk")
        self.watcher.on_death(m, shell, how, back)

    def on_bad_journal(self, m: Machine, text: str) -> None:
        self.history.find("not-on-disk", f"{m.name} cannot load its journal: {text}")

    def on_times_off(self) -> None:
        self.history.are_times_off = True

    # ---- the seed

    def person(self, name: str) -> Person:
        """The client with that name."""
        found = self.people.get(name)
        if found is None:
            found = Person(self, name)
            self.people[name] = found
        return found

    def run(self) -> None:
        """Run the seed; findings go to its history."""
        for machine in self.machines:
            machine.start()
        if not self.plan.starts_alone:
            meet_all(self)
        self.wait_ms(SETUP_MS)
        if not self.plan.starts_alone and not self.is_whole():
            self.history.find("add-fails", "the nodes did not find each other")
        self.phase = "chaos"
        start_ms = SETUP_MS
        for op in self.plan.ops:
            self.world.at((start_ms + op.at_ms) * 1000, partial(self.apply, op))
        self.wait_ms(self.plan.chaos_ms)
        self.heal()
        noticed_ms = self.plan.node_timeout_ms  # a link that is open at one end only ends by then
        self.wait_ms(max(HEAL_MS, noticed_ms + 2_000) - LOOKS_MS)
        self.again.judge_queues(False)
        self.wait_ms(LOOKS_MS)
        self.again.judge_queues(True)
        self.history.note_most("settling", max(0, self.watcher.settled_us - self.healed_us))
        self.verdicts.on_healed()
        self.phase = "drain"
        self.drain()
        self.verdicts.on_drained()
        self.living.on_drained()
        self.tasking.on_drained()
        self.phase = "rest"
        self.wait_ms(REST_MS // 2)
        self.verdicts.on_rest()
        self.wait_ms(REST_MS // 2)
        self.verdicts.on_end()

    def wait_ms(self, span_ms: int) -> None:
        """Let simulated time pass."""
        self.world.run(self.world.now_us + span_ms * 1000)

    def apply(self, op: Op) -> None:
        """Run an operation of the plan."""
        self.living.on_op(op)
        self.world.note(f"op {op.kind} {op.args}")
        if op.kind == "add":
            self.person(op.args["client"]).add(op.args)
        elif op.kind == "worker":
            name = op.args["client"]
            worker = Worker(self, name, op.args)
            self.people[name] = worker
            worker.begin()
        elif op.kind in ("tube", "task_tube"):
            pass  # its clients know it, and create it
        elif op.kind in SCRIPTS:
            self.begin(op.kind, op.args)
        elif op.kind == "poke":
            self.person(op.args["client"]).poke(op.args)
        elif self.phase == "chaos":
            if op.kind in ADMIN:
                ADMIN[op.kind](self, op.args)
            else:
                apply(self, op)

    def begin(self, kind: str, args: dict[str, Any]) -> None:
        """A client starts its script."""
        script = SCRIPTS[kind](self, args["client"], args)
        self.people[script.name] = script
        script.begin()

    def is_whole(self) -> bool:
        """Whether every node is up and linked to every other."""
        count = len(self.machines) - 1
        return all(m.shell is not None and m.shell.linked() == count for m in self.machines)

    def heal(self) -> None:
        """End all faults; all nodes stay up from now on."""
        self.phase = "heal"
        self.world.note("heal")
        self.net.heal()
        for machine in self.machines:
            machine.fuse = 0
            machine.disk.capacity = 1 << 60
            machine.disk.write_errors = machine.disk.fsync_errors = 0
            machine.settings.sync_us = self.plan.sync_us
            machine.load_us = min(machine.load_us, QUICK_LOAD_US)
            shell = machine.shell
            if shell is not None and shell.thread is not None:
                shell.thread.sync_us = self.plan.sync_us
            if shell is None:
                machine.start()
            elif shell.is_paused:
                machine.go_on(shell)
            self.set_right(machine)
        if self.plan.starts_alone:
            meet_all(self)  # a node that ended meanwhile has forgotten whom it was to meet
        for machine in self.machines:
            if machine.was_forgotten:
                self.world.after(1_000_000, partial(take_back, self, machine))
        self.healed_us = self.world.now_us
        if "clock" in self.plan.faults and any(
            "bcast" in op.args.get("words", ()) for op in self.plan.ops
        ):
            # Clocks order broadcasts (P3.2). One from a clock that was set may arrive after the
            # `none` that a node got, and be newer: all have it once all are linked.
            self.world.after(HEAL_MS * 500, self.unpause_all)

    def set_right(self, machine: Machine) -> None:
        """Undo operators' changes: no node leaves, no queue is paused, memory limits are reset."""
        machine.settings.memory_bytes = 0
        set_candidate(machine, True)
        self.person("boss").session(machine.name).close()
        if machine.shell is not None:
            machine.shell.n.limits.memory_bytes = 0
            leave(self, machine, False)
            set_writable(machine, True)
            for queue in self.queues():
                self.unpause(machine, queue)

    def unpause_all(self) -> None:
        """PAUSE none for all queues on all nodes."""
        for machine in self.machines:
            for queue in self.queues():
                self.unpause(machine, queue)

    def unpause(self, machine: Machine, queue: str) -> None:
        """PAUSE none, repeated until the node accepts it: it may still be loading."""

        def on_reply(reply: object) -> None:
            if reply is LOST or isinstance(reply, Exception):
                self.world.after(200_000, partial(self.unpause, machine, queue))

        boss = self.person("boss").session(machine.name)
        boss.ask([b"PAUSE", queue.encode(), b"none"], on_reply)

    def queues(self) -> list[str]:
        """All queues ever used."""
        return sorted({add.queue.decode() for add in self.history.adds.values()} | {"probe"})

    def probe(self, machine: Machine) -> None:
        """All is well: a job with as many copies as there are nodes can be added."""
        person = self.person("probe")
        person.session(machine.name).close()
        wait_ms = 2_000
        if self.plan.bus_limit_bytes < NARROW_BYTES:
            wait_ms = 10_000  # B2.4: it waits until all links have room
        args = {
            "node": machine.index, "queue": "probe", "retry": 60, "ttl": 120,
            "timeout": wait_ms, "repl": len(self.machines),
        }  # fmt: skip
        self.verdicts.probes.append(person.add(args))

    def drain(self) -> None:
        """Consumers on every node take and ack all jobs; every node accepts new ones."""
        for machine in self.machines:
            args = {
                "node": machine.index, "queues": self.queues(), "for_ms": DRAIN_MS, "count": 5,
                "timeout": 1000, "work_ms": 20, "p_else": 0.3,
            }  # fmt: skip
            worker = Worker(self, f"drain{machine.index}", args)
            self.people[worker.name] = worker
            worker.begin()
            self.probe(machine)
        for draw in (last_clients, last_workers, last_tasks):
            for kind, last in draw(self.plan, DRAIN_MS):
                self.begin(kind, last)
        end_us = self.world.now_us + DRAIN_MS * 1000
        while self.world.now_us < end_us:
            self.wait_ms(500)
            self.verdicts.look_for_waiting()
            for facts in self.tubing.facts.values():
                look_for_home(self, facts)
