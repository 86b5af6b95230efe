"""A world of nodes in the process of the test: all that ships but sockets, threads and clocks.

    world = World(3)
    id = world.wire(0).add(replicate=3)
    world.kill(0)
    world.until(lambda: world.wire(1).get())

Time stands until the test lets it pass, and what a node does takes none. Decides nothing of what
nodes do: they run on the simulator's machines (`world_machines`), their clients speak bytes
(`world_wires`) or are the shipped ones (`world_clients`). `world_strangers` plays other nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import combinations
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sim.engine.clock import START_MS
from sim.engine.network import Line
from told_events import Told
from tuque.core.life.dead_letters import Letters
from tuque.core.life.outcomes import outcome_of
from tuque.core.model.job import ACKED, Job
from tuque.core.msgs.bus import AnyMessage, Message, NeedJobs
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slot_for
from tuque.core.node.tables import set_time
from tuque.core.queues.procedures import check
from tuque.core.records.events import KIND_NAMES
from tuque.core.records.jobs import KIND_NAMES as RECORD_NAMES
from tuque.core.records.read import Record, decode
from tuque.server.bus.peers import Bus
from tuque.server.config.options import Config
from tuque.server.journal.committer import Committer
from tuque.server.log.log import say_all_again
from tuque.server.loop.pump import Pump
from tuque.server.state.server import Server
from tuque.tubes.log.leader import has_lease
from tuque.tubes.model.tube import RUNNING
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from world_disk import DiskAt
from world_machines import (
    NEVER,
    HandMachine,
    HandShell,
    Lab,
    conf_of,
    listen,
    options_of,
)
from world_strangers import Host, Stranger
from world_trace import QUIET, Trace
from world_wires import IprotoWire, Wire

if TYPE_CHECKING:
    from tuque.worker.app.app import App
    from world_clients import ClientAt, WorkerAt
    from world_loop import Shift, WorldLoop

FORMING_MS: Final = 20_000
LETTERS_MAX: Final = 1_000
FILLER: Final = 200_000  # bytes of a message that fills a link
Said = TypeVar("Said")


NO_WATCH: Final = {"disk-free-min": "0", "disk-reserve": "0"}  # unless a test wants it


class NodeAt:
    """One node: its process now, or that it has none."""

    def __init__(self, world: World, machine: HandMachine) -> None:
        self.world = world
        self.machine = machine
        self._logged = 0

    @property
    def is_up(self) -> bool:
        """Whether its process runs, or stands still."""
        return self.machine.shell is not None

    @property
    def shell(self) -> HandShell:
        """The process."""
        found = self.machine.shell
        assert isinstance(found, HandShell), f"{self.machine.name} is down"
        return found

    @property
    def core(self) -> Node:
        """Its core, at the time of its clock unless the process stands still."""
        shell = self.shell
        n, now_ms = shell.n, shell.clock.now_ms()
        if n.now_ms < now_ms and not shell.is_paused:
            set_time(n, now_ms)
        return n

    @property
    def tubes(self) -> Tubes:
        """Its tubes."""
        return tubes_of(self.shell.n)

    @property
    def server(self) -> Server:
        """Its server."""
        return self.shell.s

    @property
    def pump(self) -> Pump:
        """Its loop."""
        return self.shell.pump

    @property
    def committer(self) -> Committer:
        """Its journal."""
        found = self.server.committer
        assert found is not None, f"{self.machine.name} has no journal"
        return found

    @property
    def log(self) -> list[str]:
        """The lines that it logged, in all its lives."""
        return [record.getMessage() for record in self.machine.records]

    def info(self, section: str = "all") -> dict[str, str]:
        """A section of INFO."""
        return self.world.wire(self.machine.index).info(section)

    def records(self) -> list[Record]:
        """What it recorded in its journal since the last call."""
        payload, found, at = self.take_recorded(), [], 0
        while at < len(payload):
            record = Record()
            at = decode(payload, at, record)
            found.append(record)
        return found

    def recorded(self) -> list[str]:
        """The names of the same."""
        return [RECORD_NAMES[record.kind] for record in self.records()]

    def take_recorded(self) -> bytes:
        """The same as the bytes of the records."""
        shell = self.shell
        payload, shell.recorded = shell.recorded, b""
        return payload

    def events(self) -> list[tuple[str, bytes]]:
        """Kind and job of all its events; the world has `events=True`."""
        events = self.core.events
        assert events is not None
        events.cut()
        rows: list[tuple[str, bytes]] = []
        for told in map(Told, events.full):
            kinds = [KIND_NAMES[kind] for kind in told.kinds]
            rows += zip(kinds, told.job_ids, strict=True)
        return rows

    def kinds(self, job_id: bytes) -> list[str]:
        """The kinds of one job's events, in order."""
        return [kind for kind, of in self.events() if of == job_id]

    def turn(self) -> None:
        """One turn by hand, in the place of all that are due; the next one is not run yet."""
        self.shell.turn_us = -1
        self.shell.pump.turn_in(0)

    def jobs_now(self) -> list[bytes]:
        """The ids of its jobs; none if it is down."""
        return list(self.core.jobs) if self.is_up else []


class World:
    """Nodes 0, 1, 2, ... on machines of their own, which know each other from the start."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        journal: str = "everysec",
        seed: int = 1,
        start: bool = True,
        events: bool = False,
        only: Mapping[int, Mapping[str, object]] | None = None,
        **options: object,
    ) -> None:
        """`journal`: off, no, everysec or always; `options` are those of the server, as words.

        `only` has more options for some of the nodes. With `start`, all run and are linked.
        """
        say_all_again()
        listen()
        self.seed = seed
        self.start_ms = START_MS
        self.lab = Lab(seed)
        self.time = self.lab.world
        self.workers: list[WorkerAt] = []
        self._loop: WorldLoop | None = None  # of workers at work
        self._ports = 40_000
        self._standing: dict[tuple[int, int], Wire] = {}
        self._bugs = 0
        words = {"appendonly": "no" if journal == "off" else "yes", **NO_WATCH}
        words |= {"appendfsync": journal} if journal != "off" else {}
        words |= worded(options)
        self.machines: list[HandMachine] = []
        for i in range(nodes):
            given = words | worded((only or {}).get(i, {}))
            cfg = options_of(tuple(sorted(given.items())))
            machine = HandMachine(self.lab, i, nodes, cfg, journal)
            machine.has_events = events
            self.machines.append(machine)
        self.lab.machines += self.machines
        for machine in self.machines:
            machine.conf = conf_of(machine, [m for m in self.machines if m is not machine])
        self.nodes = [NodeAt(self, machine) for machine in self.machines]
        self._disks = [DiskAt(machine) for machine in self.machines]
        if start:
            self.form()
        self._trace = Trace(self)
        self.lab.heard.clear()

    def form(self) -> None:
        """Start all nodes, and wait until they are linked."""
        for machine in self.machines:
            machine.start()
        self.settle()
        if len(self.machines) > 1:
            self.until(self.is_whole, FORMING_MS)
            self.settle()

    # ---- time

    @property
    def now_ms(self) -> int:
        """What the clocks show, in unix ms."""
        return self.start_ms + self.time.now_us // 1000

    def pass_ms(self, ms: int) -> None:
        """Let time pass; what becomes due runs at its own instant."""
        self.look()
        end_us = self.time.now_us + ms * 1000
        if self._loop is not None and not self._loop.is_running():
            self._loop.run_to(end_us, lambda: False)
        else:
            self.time.run(end_us)

    def jump_ms(self, ms: int) -> None:
        """Time has passed while no process ran; what is late runs when they go on."""
        self.time.now_us += ms * 1000

    def settle(self) -> None:
        """Run all that is to be done at this instant, also what the test did to a core."""
        self.look()
        self.time.run(self.time.now_us)

    def settle_wires(self) -> None:
        """The same, after bytes only."""
        self.time.run(self.time.now_us)

    def step(self) -> bool:
        """Run the next thing that is to be done at this instant; False if there is none.

        Does not look at the nodes, as that gives each of them a turn to run: there would be no end.
        """
        return self.time.step()

    def turn(self, i: int = 0) -> None:
        """Let node i take one turn, and all that it says arrive."""
        self.node(i).shell.take_one()

    def look(self) -> None:
        """Have each node run a turn."""
        for machine in self.machines:
            shell = machine.shell
            if isinstance(shell, HandShell) and not shell.is_paused:
                shell.look()

    def next_ms(self) -> int:
        """When something is due next, in unix ms."""
        at_us = self.time.next_us()
        return at_us if at_us == NEVER else self.start_ms + at_us // 1000

    def until(self, fact: Callable[[], Any], most_ms: int = 60_000) -> Any:
        """Let time pass until the fact is true; what it is then. Fails after `most_ms`."""
        self.settle()
        end_us = self.time.now_us + most_ms * 1000
        if self._loop is not None:
            self._loop.run_to(end_us, fact)
            found = fact()
            assert found, f"still {found!r} after {most_ms} ms\n{self.tail()}"
            return found
        while not (found := fact()):
            at_us = self.time.next_us()
            assert at_us <= end_us, f"still {found!r} after {most_ms} ms\n{self.tail()}"
            self.time.run(at_us)
        return found

    def tail(self) -> str:
        """The last lines of the nodes' logs, for the message of a failed test."""
        lines = []
        for i, node in enumerate(self.nodes):
            lines += [f"node {i}: {line}" for line in node.log[-5:]]
        return "\n".join(lines)

    # ---- nodes and who talks to them

    def numbers(self) -> range:
        """The numbers of the nodes."""
        return range(len(self.machines))

    def node(self, i: int = 0) -> NodeAt:
        """Node i."""
        return self.nodes[i]

    @property
    def cores(self) -> list[Node]:
        """The cores of the nodes that are up."""
        return [node.core for node in self.up()]

    def disk(self, i: int = 0) -> DiskAt:
        """Its disk."""
        return self._disks[i]

    def up(self) -> list[NodeAt]:
        """The nodes that run or stand still."""
        return [node for node in self.nodes if node.is_up]

    def is_whole(self) -> bool:
        """Whether all nodes that are up are linked, and may give copies to those that stay."""
        ups = self.up()
        return all(
            not node.server.is_loading
            and int(node.core.reachable_count)
            >= sum(not one.core.is_leaving for one in ups if one is not node)
            for node in ups
        )

    def wire(self, i: int = 0, address: str = "") -> Wire:
        """A new connection that speaks RESP; `address` is the client's."""
        return Wire(self, i, address)

    def at(self, i: int, number: int = 0) -> Wire:
        """The client of that number at node i; it connects when it is first asked for."""
        found = self._standing.get((i, number))
        if found is None or found.is_closed:
            found = self._standing[i, number] = self.wire(i)
        return found

    def user(self, name: str, i: int = 0) -> Wire:
        """A new connection that is logged in as a user of any password."""
        wire = self.wire(i)
        assert wire("AUTH", name, "x") == b"OK"
        return wire

    def iproto(self, i: int = 0, address: str = "") -> IprotoWire:
        """A new connection that speaks IPROTO."""
        return IprotoWire(self, i, address)

    def stranger(
        self, i: int = 0, *, secret: str | None = None, came: str = "127.0.0.1", **card: Any
    ) -> Stranger:
        """A new connection to the bus of node i, from that address: see `join`.

        `secret`: by default that of the node; `card` has what the stranger says of itself.
        """
        return Stranger(self, i, secret, came, card)

    def host(self, number: int = 99, secret: str = "") -> Host:
        """A machine that is no node; nodes may dial its address."""
        return Host(self, number, secret)

    def client(self, i: int = 0, *, others: bool = False) -> ClientAt:
        """The shipped client, at node i; `others`: it also turns to the others."""
        from world_clients import ClientAt  # few worlds have one, and to import it takes long

        return ClientAt(self, i, others=others)

    def worker(self, app: App, i: int = 0) -> WorkerAt:
        """The shipped worker of the app at node i; the app itself talks to it until `close`."""
        from world_clients import WorkerAt  # as above

        made = WorkerAt(self, app, i)
        made.__enter__()
        self.workers.append(made)
        return made

    @property
    def loop(self) -> WorldLoop:
        """Where workers are at work."""
        if self._loop is None:
            from world_loop import WorldLoop  # as above

            self._loop = WorldLoop(self)
        return self._loop

    def at_work(self, app: App, *at: int, **settings: Any) -> Shift:
        """A worker that goes on by itself while time passes, at one of these nodes (0).

        `settings` are those of WorkerSettings, by default as for `-c 1`. The app of a world's first
        one talks to its first node.
        """
        from world_loop import shift_of  # as above

        return shift_of(self, app, at or (0,), settings)

    def next_port(self) -> int:
        """The port of the next client."""
        self._ports += 1
        return self._ports

    # ---- processes

    def start(self, i: int, disk: str = "kept") -> None:
        """Start a node that is down; its disk is `kept`, `lost`, or the `old` one of a snapshot."""
        if disk == "lost":
            self.disk(i).lose()
        elif disk == "old":
            self.disk(i).restore()
        else:
            assert disk == "kept", disk
        self.machines[i].start()
        self.settle()

    def kill(self, i: int) -> None:
        """Kill a process: what it wrote is in the files, what it said is on its way."""
        self.machines[i].kill()
        self.settle()

    def cut_power(self, i: int) -> None:
        """The machine of a node loses its power: what was not synced is gone."""
        self.machines[i].cut_power()
        self.settle()

    def restart(
        self,
        i: int = 0,
        disk: str = "kept",
        *,
        how: str = "kill",
        off_ms: int = 0,
        jump_ms: int = 0,
    ) -> None:
        """End a node, and start it again from its disk: it reaches nobody until `link`.

        `how`: kill, stop or power. It is down that long, and its wall clock then set ahead.
        """
        self.isolate(i)
        {"kill": self.kill, "stop": self.stop, "power": self.cut_power}[how](i)
        self.pass_ms(off_ms)
        self.machines[i].clock.jump(jump_ms)
        self.start(i, disk)

    def stop(self, i: int) -> None:
        """Stop a node in order."""
        self.node(i).server.stop_requested = "signal"
        self.node(i).shell.wake()
        self.time.run(self.time.now_us)
        assert not self.node(i).is_up

    def stall(self, i: int, ms: int) -> None:
        """The process stands still for that long; others go on."""
        self.machines[i].pause(ms)

    def begin_rewrite(self, i: int = 0) -> None:
        """Begin to write the journal of a node anew, as BGREWRITEAOF does; no turn was yet."""
        node = self.node(i)
        assert node.committer.start_rewrite(node.core, node.core.now_ms)

    def rewrite(self, i: int = 0) -> None:
        """The same, to its end."""
        self.begin_rewrite(i)
        self.until(lambda: not self.node(i).committer.is_rewriting())

    # ---- links

    def lines(self, a: int, b: int) -> tuple[Line, Line]:
        """Both directions of the line between two nodes."""
        net, x, y = self.lab.net, f"n{a}", f"n{b}"
        return net.line(x, y), net.line(y, x)

    def cut(self, a: int, b: int) -> None:
        """Break the link of two nodes, who know it at once; it comes back after `heal`."""
        self.sever(a, b)
        self.settle()

    def isolate(self, i: int) -> None:
        """Cut all links of a node."""
        for b in self.numbers():
            if b != i:
                self.sever(i, b)
        self.settle()

    def sever(self, a: int, b: int) -> None:
        """The same as `cut`; nobody has noticed it yet."""
        lines = self.lines(a, b)
        for pipe in [pipe for line in lines for pipe in line.pipes]:
            pipe.flight.clear()
            pipe.flying = 0
            pipe.to.lose()
        for line in lines:
            line.is_cut = True

    def heal(self) -> None:
        """Nothing is cut or held any more; nodes dial each other when it is time to."""
        self.lab.net.heal()
        self.settle()

    def link(self, *pair: int) -> None:
        """Heal two nodes, or all: they dial each other now, and not when it is time to.

        Fails unless they link.
        """
        for a, b in combinations(sorted(set(pair or self.numbers())), 2):
            self.dial(a, b)
        self.until(lambda: self.linked(*(pair or self.numbers())))

    def join(self, a: int, b: int) -> None:
        """The same for two nodes; what they say on the new link is on its way."""
        self.dial(a, b)
        self.look()
        while not self.linked(a, b):
            assert self.step(), f"no link\n{self.tail()}"

    def dial(self, a: int, b: int) -> None:
        """Nothing is cut or held between two nodes; it is time for the first one to dial."""
        a, b = min(a, b), max(a, b)
        for line in self.lines(a, b):
            line.is_cut = False
            for pipe in line.pipes:
                pipe.pump()
        if self.node(a).is_up and self.node(b).is_up and not self.linked(a, b):
            members = self.node(a).server.members
            members.by_id[self.machines[b].node_id].dial_ms = members.beat_ms = self.now_ms

    def linked(self, *numbers: int) -> bool:
        """Whether those of these nodes that are up have links to each other."""
        ups = [self.node(i) for i in numbers if self.node(i).is_up]
        return all(
            not one.server.is_loading and other.server.members.by_id[one.machine.node_id].is_linked
            for one in ups
            for other in ups
            if one is not other
        )

    def beat(self) -> None:
        """All nodes say heartbeats now, and not when it is time to: the second ones answer.

        Those that vote send pulses.
        """
        for _ in range(2):
            for node in self.up():
                node.server.members.beat_ms = self.now_ms
                node.tubes.voter_state.beat_ms = 0
            self.settle()

    def hold(self, a: int, b: int) -> None:
        """Let nothing from a arrive at b until `release`."""
        self.lab.net.set_cut(f"n{a}", f"n{b}", True)

    def fill(self, a: int, b: int) -> None:
        """The same; so much waits there that the link has no room. `bus_buffer_limit` is small."""
        self.hold(a, b)
        slot = self.slot(a, b)
        while self.node(a).core.peers[slot].has_room:
            self.send(a, b, NeedJobs(b"-" * FILLER, 0, False))

    def release(self, a: int, b: int) -> None:
        """Let held messages arrive."""
        self.let_go(a, b)
        self.settle()

    def let_go(self, a: int, b: int) -> None:
        """The same; nothing has arrived yet."""
        self.lab.net.set_cut(f"n{a}", f"n{b}", False)

    def on_way(self, a: int, b: int) -> int:
        """The bytes on their way from a to b: those that `hold` keeps."""
        return sum(pipe.flying for pipe in self.lines(a, b)[0].pipes)

    def forget(self, a: int, b: int) -> None:
        """Node a forgets node b, as CLUSTER FORGET has it do; b may be a voter."""
        server = self.node(a).server
        assert server.members.forget(self.machines[b].node_id)
        assert server.bus is not None
        server.bus.close_stale()
        self.settle()

    def leave(self, i: int, is_leaving: bool = True) -> None:
        """CLUSTER LEAVING yes|no at node i."""
        reply = self.at(i)("CLUSTER", "LEAVING", "yes" if is_leaving else "no")
        assert reply == b"OK", reply

    def slot(self, a: int, b: int) -> int:
        """The slot of node b on node a."""
        return int(slot_for(self.node(a).core, self.machines[b].node_id))

    def send(self, a: int, b: int, message: AnyMessage) -> None:
        """Have node a send a message to node b, and carry out what follows."""
        say(self.node(a).core, self.slot(a, b), message)
        self.settle()

    # ---- what became of it

    def holders(self, id: bytes) -> list[int]:
        """The nodes that have a record of the job."""
        return [i for i in self.numbers() if id in self.node(i).jobs_now()]

    def copies(self, id: bytes) -> list[int]:
        """The nodes with an open copy."""
        return [i for i in self.holders(id) if self.node(i).core.jobs[id].state != ACKED]

    def believed(self, i: int, id: bytes) -> list[int]:
        """The nodes that have a copy according to node i."""
        return self.numbers_in(i, self.node(i).core.jobs[id].holders)

    def states(self, id: bytes) -> list[int]:
        """Its state on each node, -1 where it is unknown."""
        return [
            int(self.node(i).core.jobs[id].state) if id in self.node(i).jobs_now() else -1
            for i in self.numbers()
        ]

    def outcome(self, id: bytes) -> str:
        """How the job ended, as far as any node knows; empty: it has not."""
        cores = [node.core for node in self.up()]
        knowing = [n for n in cores if n.life.known(id) is not None]
        holding = [n for n in cores if id in n.jobs]
        found = [outcome_of(n, id).decode() for n in knowing or holding or cores]
        return next(filter(None, found), "")

    def dead(self, queue: str | bytes) -> list[bytes]:
        """The ids of the queue's dead letters on any node, oldest first."""
        name = queue.encode() if isinstance(queue, str) else queue
        found: dict[bytes, None] = {}
        for node in self.up():
            letters = Letters(name, b"").after(node.core, 0, LETTERS_MAX)
            found |= dict.fromkeys(letter.job.id for letter in letters)
        return list(found)

    def leader(self, tube: str | bytes) -> int | None:
        """The node at which the tube runs: never two. None: nobody leads it now."""
        name = tube.encode() if isinstance(tube, str) else tube
        found = []
        for i, node in enumerate(self.nodes):
            if not node.is_up or node.shell.is_paused:
                continue
            t = node.tubes
            known = t.by_name.get(name)
            if known is None or known.state != RUNNING:
                continue
            if has_lease(self.now_ms, t, known):
                found.append(i)
        assert len(found) < 2, f"{name!r} runs at {found}"
        return found[0] if found else None

    def numbers_in(self, a: int, slots: int) -> list[int]:
        """The nodes in a set of slots of node a."""
        n = self.node(a).core
        known = [machine.node_id for machine in self.machines]
        found = [known.index(n.peers[k].node_id) for k in range(len(n.peers)) if slots >> k & 1]
        return sorted(found)

    def heard(self, kind: type[Said] | UnionType = Message) -> list[tuple[int, int, Said]]:
        """Messages of that kind in the order of their arrival: from, to, what.

        Without those that nodes say whatever happens. All since `forget_heard` or `trace`.
        """
        return [
            (a, b, cast(Said, m))
            for _, a, b, m in self.lab.heard
            if isinstance(m, kind) and not isinstance(m, QUIET)
        ]

    def forget_heard(self) -> None:
        """What arrived up to now is not told any more."""
        self.lab.heard.clear()

    def trace(self) -> list[str]:
        """What nodes said since the last call, and what became of jobs, as in tests/golden."""
        self.settle()
        heard = list(self.lab.heard)
        self.lab.heard.clear()
        return self._trace.lines(heard)

    def check(self) -> None:
        """Check that the tables of each node agree, nothing is lost, and no bug was logged."""
        self.settle()
        for node in self.up():
            check(node.core)
            assert node.core.ledger.balance(len(node.core.jobs)) == 0, "the ledger is wrong"
        for node in self.nodes:
            bugs = [record for record in node.machine.records if record.exc_info]
            assert not bugs, "\n".join(logging.Formatter().format(record) for record in bugs)

    def close(self) -> None:
        """Workers end, and apps talk to their own servers again."""
        if self._loop is not None:
            self._loop.end()
            self._loop = None
        while self.workers:
            self.workers.pop().__exit__()

    # ---- the only node, and its first client

    @property
    def n(self) -> Node:
        """The core of node 0."""
        return self.nodes[0].core

    @property
    def server(self) -> Server:
        """The server of node 0."""
        return self.nodes[0].server

    @property
    def bus(self) -> Bus:
        """The bus of node 0."""
        found = self.server.bus
        assert found is not None, "it has no bus"
        return found

    @property
    def cfg(self) -> Config:
        """The options of node 0."""
        return self.nodes[0].server.cfg

    @property
    def pump(self) -> Pump:
        """The loop of node 0."""
        return self.nodes[0].pump

    @property
    def run(self) -> Wire:
        """The first client of node 0."""
        return self.at(0)

    def __call__(self, line: str, *words: str | bytes | int, by: Wire | None = None) -> bytes:
        """Send the words of `line` and then `words`; the bytes answered."""
        return (by or self.run).line(line, *words)

    def value(self, line: str, *words: str | bytes) -> Any:
        """The same; the reply as a value, a null as None."""
        return self.run.value(line, *words)

    def info(self, section: str = "all") -> dict[str, str]:
        """A section of INFO."""
        return self.run.info(section)

    def add(
        self, queue: str | bytes = "q", body: str | bytes = "body", *words: str, **options: Any
    ) -> bytes:
        """ADDJOB; the id."""
        return self.run.add(queue, body, *words, **options)

    def get(self, *queues: str | bytes, count: int = 1) -> list[bytes]:
        """GETJOB NOHANG; the ids."""
        return self.run.get(*queues, count=count)

    def show(self, job_id: str | bytes) -> dict[str, Any]:
        """SHOW, empty for an unknown job."""
        return self.run.show(job_id)

    def state(self, job_id: str | bytes) -> str:
        """The state that SHOW tells, `gone` for an unknown job."""
        return self.run.state(job_id)

    def qlen(self, queue: str | bytes = "q") -> int:
        """QLEN."""
        return self.run.qlen(queue)

    def job(self, job_id: bytes) -> Job:
        """The record of a job at node 0."""
        return self.n.jobs[job_id]


def worded(options: Mapping[str, object]) -> dict[str, str]:
    """Options as the words of a configuration."""
    found = {}
    for name, value in options.items():
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        found[name.replace("_", "-")] = text
    return found
