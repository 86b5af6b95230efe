"""Worlds of several nodes whose tests call the functions of tubes themselves (SPEC T17 to T29)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from raw_resp import Err
from sim.machines.kernel import CLIENT_PORT, host_of
from tuque.core.model.task import Task, carried_by
from tuque.core.msgs.bus import AnyMessage, StandAt, TubesTold, VoteAt
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check
from tuque.server.commands.tube_leaders import await_home
from tuque.server.state.client import Client
from tuque.store.writer import Journal
from tuque.tubes.election.candidate import vote_at
from tuque.tubes.election.voters import may_vouch
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.leadership.switchover import move_home, take_home
from tuque.tubes.log.catalog import KNOWS_VOTES
from tuque.tubes.log.leader import state_of_tube, synced
from tuque.tubes.log.vote_state import seat_of
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import Seat, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import Voters
from tuque.tubes.tasks import operations
from world import World
from world_wires import Wire

TIMEOUT_MS = 5_000
FAR_MS = 1 << 40
GONE = 1 << 30  # the number of no client
TOLD = "%(text)s"  # how the server logs what tubes have to tell
CLIENTS = 2  # of each node, which may wait at once
FIRST_WORD = re.compile("^[A-Z]+ ")


class TubesWorld(World):
    """Nodes with tubes; what a test does to one is carried out by `settle`.

    They do not vote: test_claims_*.py are about such tubes.
    """

    def __init__(
        self,
        count: int,
        has_journal: bool = False,
        shift_tasks: int = 2000,
        old: int = -1,
        **options: Any,
    ) -> None:
        """`shift_tasks`: that go in and out in one turn (T19.6).

        `old`: others take this node for one that does not know the messages of votes.
        """
        self.shift_tasks = shift_tasks
        self.held: set[tuple[int, int]] = set()
        timeouts = {"cluster_node_timeout": TIMEOUT_MS, "tube_lease_timeout": TIMEOUT_MS}
        options = {"tube_failover": False, **timeouts, **options}
        journal = "everysec" if has_journal else "off"
        super().__init__(count, journal=journal, start=False, **options)
        if old >= 0:
            self.lab.editor = partial(hide_votes, old)
        self.form()
        self.asking: list[list[Wire]] = [[] for _ in range(count)]  # clients of each node
        for i in range(count):
            self.prepare(i)

    # ---- nodes

    def id(self, i: int) -> bytes:
        """The id of node i."""
        return self.machines[i].node_id

    def t(self, i: int) -> Tubes:
        """The tubes of node i."""
        return self.node(i).tubes

    def tube(self, i: int, name: bytes = b"t") -> Tube:
        """The tube as node i knows it."""
        return self.t(i).by_name[name]

    def restart(self, i: int) -> None:
        """The process of node i ends, and another one begins without a link, until there is one."""
        self.end(i)
        self.begin(i)

    def end(self, i: int) -> None:
        """The process of node i ends at once: what it would have said now is lost."""
        self.machines[i].kill()
        self.split_off(i)

    def split_off(self, i: int) -> None:
        """Cut all links of node i; nobody has noticed it yet."""
        for b in self.numbers():
            if b != i:
                self.sever(i, b)

    def begin(self, i: int) -> None:
        """Start a node that is down."""
        self.start(i)
        self.prepare(i)

    def prepare(self, i: int) -> None:
        """Set what the test wants of a node that has started, and connect its clients."""
        self.t(i).shift_tasks = self.shift_tasks
        self.asking[i] = [self.wire(i) for _ in range(CLIENTS)]

    def rejoin(self, i: int) -> None:
        """Link a node to all others."""
        for b in self.numbers():
            if b != i:
                self.link(i, b)

    def may_vote(self, i: int, yes: bool) -> None:
        """`tube-failover` at node i from its next start on."""
        cfg = copy(self.machines[i].cfg)
        cfg.tube_failover = yes
        self.machines[i].cfg = cfg

    def lose_journal(self, i: int) -> None:
        """Node i starts on an empty disk."""
        self.end(i)
        self.disk(i).lose()
        self.begin(i)
        self.rejoin(i)

    def stand_still(self, i: int) -> None:
        """The process of node i stands still until `go_on`."""
        self.stall(i, FAR_MS)

    def go_on(self, i: int) -> None:
        """It goes on; nothing was read or run yet."""
        self.machines[i].go_on(self.node(i).shell)

    def stands_still(self, i: int) -> bool:
        return self.node(i).shell.is_paused

    def journal(self, i: int) -> Journal:
        """The journal of node i; its thread is at rest."""
        return self.node(i).committer.journal

    # ---- what they say

    def warnings(self, i: int) -> list[str]:
        """What node i logged of tubes as warnings."""
        return self.lines_of(i, logging.WARNING)

    def news(self, i: int) -> list[str]:
        """What node i logged of tubes as information."""
        return self.lines_of(i, logging.INFO)

    def lines_of(self, i: int, level: int) -> list[str]:
        """The lines of a level about tubes."""
        records = self.machines[i].records
        return [one.getMessage() for one in records if one.levelno == level and one.msg == TOLD]

    def step_until(self, fact: Callable[[], object], most_ms: int = 60_000) -> None:
        """Let nodes do one thing after another until the fact is true; look after each of them."""
        self.look()
        end_us = self.time.now_us + most_ms * 1000
        while not fact():
            if not self.time.step():
                self.time.now_us = self.time.next_us()
                assert self.time.now_us <= end_us, f"not after {most_ms} ms\n{self.tail()}"

    def carry(self) -> None:
        """Run what nodes have to do at this instant, but not what follows from it."""
        self.look()
        for _ in range(self.time.count_now()):
            self.time.step()

    def hold(self, a: int, b: int) -> None:
        self.held.add((a, b))
        super().hold(a, b)

    def sever(self, a: int, b: int) -> None:
        self.held -= {(a, b), (b, a)}
        super().sever(a, b)

    def release_all(self) -> None:
        """Nothing is held any more; what is cut stays so."""
        for a, b in sorted(self.held):
            self.release(a, b)
        self.held.clear()

    def stick(self, *numbers: int) -> None:
        """The disks of these nodes do nothing, those of others work."""
        for i in self.numbers():
            self.disk(i).stick(i in numbers)
        self.settle()

    def break_disk(self, i: int) -> None:
        """The journal of node i cannot be written, and the node knows.

        No reply and no message waits for what it has to write.
        """
        self.disk(i).full()
        records = self.node(i).core.records
        assert records is not None
        records.pause(b"another", 0, 0)
        self.until(lambda: self.node(i).server.journal_error)
        self.settle()

    def mend_disk(self, i: int) -> None:
        """It can be written again, and the node knows."""
        self.disk(i).well()
        self.until(lambda: not self.node(i).server.journal_error)
        self.settle()

    # ---- the state of tubes

    def state_at(self, i: int, name: bytes = b"t") -> str:
        """The tube's state there."""
        return state_of_tube(self.tube(i, name)).decode()

    def states_at(self, name: bytes = b"t") -> list[str]:
        """Its state at each node."""
        return [self.state_at(i, name) for i in self.numbers()]

    def runs_at(self, name: bytes = b"t") -> list[int]:
        """The node at which the tube runs: never two."""
        at = self.leader(name)
        if at is None:
            return []
        check(self.node(at).core)
        return [at]

    def may_vouch(self, i: int) -> bool:
        """Whether the votes of node i count under its list."""
        return may_vouch(self.nodes[i].core, self.t(i), self.t(i).voter_state.in_force())

    def leads(self, name: bytes = b"t") -> int:
        """The node that leads, after as long as it takes."""
        return int(self.until(lambda: self.runs_at(name))[0])

    def leading(self) -> Node:
        """Its core."""
        return self.node(self.leads()).core

    def lose_leader(self) -> None:
        """The leader is lost, and back when another node leads."""
        (gone,) = self.runs_at()
        self.restart(gone)
        self.pass_ms(4 * TIMEOUT_MS)
        self.leads()
        self.rejoin(gone)
        self.pass_ms(2_000)

    def watch(self, span_ms: int) -> list[int]:
        """Let time pass in small steps; where the tube runs then. It never runs twice."""
        for _ in range(span_ms // 250):
            self.pass_ms(250)
            self.runs_at()
        return self.runs_at()

    def picture(self, i: int, name: bytes = b"t") -> dict[int, tuple[object, ...]]:
        """All tasks of the tube as node i has them, as home or as copies."""
        tube = self.tube(i, name)
        found: dict[int, tuple[object, ...]] = {}
        for number, task in sorted({**tube.tasks, **tube.copies}.items()):
            found[number] = (
                task.id, chr(task.status), task.body, task.pri, carried_by(task), task.ttl_ms,
                task.ttr_ms, task.created_ms, task.qtime_ms, task.token, task.deliveries,
                task.delivered_count, task.form,
            )  # fmt: skip
        return found

    def answered(self, i: int) -> int:
        """The last change that would be answered at node i (T18.5)."""
        return int(synced(self.node(i).core, self.t(i), self.tube(i)))

    # ---- commands that may have to wait

    def client_of(self, i: int) -> Client | None:
        """A client of node i that waits for nothing, if there is one."""
        clients = [wire.c for wire in self.asking[i] if not wire.is_closed]
        return next((c for c in clients if not c.is_homing), None)

    def answers(self, i: int) -> list[bytes | dict[bytes, bytes]]:
        """What clients of node i were answered since the last call: empty for OK, or an error."""
        found: list[bytes | dict[bytes, bytes]] = []
        for wire in self.asking[i]:
            for value in wire.values():
                if isinstance(value, Err):
                    found.append(FIRST_WORD.sub("", value).encode())
                elif isinstance(value, list):
                    found.append(dict(zip(value[::2], value[1::2], strict=True)))
                else:
                    assert value == b"OK", value
                    found.append(b"")
        return found

    def told(self, i: int) -> dict[bytes, bytes]:
        """What a client of node i was answered about what was done."""
        (one,) = self.answers(i)
        assert isinstance(one, dict), one
        return one

    def said_last(self, i: int) -> bytes:
        """The same of the last one who was answered."""
        one = self.answers(i)[-1]
        return b"" if isinstance(one, dict) else one

    def said(self, i: int) -> bytes:
        """The error that a client of node i was answered; empty: it was done."""
        (one,) = self.answers(i)
        return b"" if isinstance(one, dict) else one

    def leads_elsewhere(self, i: int, name: bytes = b"t") -> bytes:
        """What a client is answered elsewhere when node i leads the tube (T17.3)."""
        place = host_of(self.machines[i].name).encode(), CLIENT_PORT
        return b"%s:%d Tube '%s' has its leader there" % (*place, name)

    def ask(self, i: int, call: Callable[..., Any], *words: Any) -> Any:
        """Call a function of tubes for a client of node i, who waits unless it was done at once.

        What follows is not carried out yet. Where all clients wait, it is one that has gone.
        """
        c = self.client_of(i)
        if c is None:
            return call(self.node(i).core, self.t(i), *words, GONE, 1)
        done = call(self.node(i).core, self.t(i), *words, c.number, c.put_serial + 1)
        if not done:
            await_home(self.node(i).server, c)
        return done

    def make(self, i: int, type: bytes = b"fifottl", name: bytes = b"t", **options: object) -> Tube:
        """CREATE at node i, carried out to its end."""
        tube = self.ask(i, claim_tube, name, type, options_of(options), b"user")
        self.settle()
        if tube is None:
            why = self.said(i)
            assert why == b"", why
        return self.tube(i, name)

    def claim(self, i: int, type: bytes = b"fifo", name: bytes = b"t", **options: object) -> None:
        """CREATE at node i, which has to ask others; what follows is not carried out yet."""
        assert self.ask(i, claim_tube, name, type, options_of(options), b"user") is None

    def move(self, a: int, b: int, name: bytes = b"t") -> bool:
        """TUBE HOME at node a, to node b; what follows is not carried out yet."""
        return bool(self.ask(a, move_home, self.tube(a, name), self.machines[b].node_id))

    def begin_move(self, a: int, b: int, name: bytes = b"t") -> None:
        """TUBE HOME at node a, until node b has said that it could serve the tube (T20.1)."""
        assert not self.move(a, b, name)
        self.step_until(lambda: self.tube(a, name).move is not None)

    def force(self, i: int, name: bytes = b"t") -> None:
        """TUBE HOME FORCE at node i."""
        self.ask(i, take_home, self.tube(i, name))
        self.settle()

    # ---- tasks

    def put(self, i: int, body: bytes = b"body", name: bytes = b"t", **options: object) -> Task:
        """PUT at node i; what follows is not carried yet."""
        spec = PutSpec()
        for word, value in options.items():
            assert hasattr(spec, word), word
            setattr(spec, word, value)
        n = self.node(i).core
        task = operations.put(n, self.t(i), self.tube(i, name), body, 0, spec, 1, 1)
        assert task is not None
        return task

    def take(self, i: int, client: int = 1, name: bytes = b"t") -> Task | None:
        """TAKE at node i."""
        return operations.take(self.node(i).core, self.t(i), self.tube(i, name), client)

    def ack(self, i: int, number: int, client: int = 1, name: bytes = b"t") -> Task:
        """ACK at node i."""
        return operations.ack(self.node(i).core, self.t(i), self.tube(i, name), client, number)


class VotesWorld(TubesWorld):
    """Nodes that vote about the leaders of their tubes, and one tube that a majority has."""

    def __init__(self, count: int = 3, makes: bool = True, off: int = -1, **options: Any) -> None:
        """`off`: it has `tube-failover no`. All others vote, if `tube_voters` is not said."""
        only = {off: {"tube_failover": False}} if off >= 0 else {}
        options.setdefault("tube_voters", max(3, count))
        super().__init__(count, True, tube_failover=True, only=only, **options)
        if makes:
            self.pass_ms(TIMEOUT_MS + 1_000)  # what each promised at its start is over
            assert self.until(self.are_listed)
            assert all(self.in_force(i) for i in range(count))
            self.make(0, sync=count // 2 + 1)
            self.pass_ms(1_000)
            assert self.runs_at() == [0]

    def in_force(self, i: int) -> bool:
        """Whether node i uses a list of voters that no node made of itself alone."""
        voters = self.t(i).voter_state.voters
        return voters is not None and not voters.is_solo

    def voting_list(self, i: int) -> Voters:
        """The list of voters that node i uses."""
        voters = self.t(i).voter_state.voters
        assert voters is not None
        return voters

    def are_listed(self) -> bool:
        """Whether all nodes use a list with as many voters as there can be."""
        lists = [self.t(i).voter_state.voters for i in range(len(self.nodes))]
        votes = [len(v.rights) if v is not None else 0 for v in lists]
        willing = [i for i in range(len(self.nodes)) if self.t(i).voter_state.is_on]
        return min(votes) >= min(len(willing), self.t(0).voter_state.wanted)

    def seat(self, i: int) -> Seat:
        """Where node i stands."""
        return seat_of(self.tube(i))

    def vote_at(self, i: int, epoch: int) -> VoteAt:
        """What node i would say of the tube when it asks for votes."""
        return vote_at(self.tube(i), epoch)


def voting(count: int = 3, **options: Any) -> VotesWorld:
    """Nodes that vote, without a tube; what each promised at its start is over."""
    world = VotesWorld(count, makes=False, **options)
    world.pass_ms(TIMEOUT_MS + 1_000)
    assert all(world.in_force(i) for i in world.numbers())
    return world


def word_of(tube: Tube, epoch: int, node_id: bytes) -> StandAt:
    """What a node sends that votes for that one, and neither leads nor asks for votes."""
    who = (tube.name, tube.maker, tube.made_ns, epoch, node_id)
    return StandAt(*who, False, 0, tube.family, tube.moves, tube.from_number)


def hide_votes(old: int, a: int, _b: int, message: AnyMessage) -> None:
    """That node does not say that it knows the messages of votes."""
    if a == old and isinstance(message, TubesTold):
        message.flags &= ~KNOWS_VOTES


def options_of(given: dict[str, object]) -> TubeOptions:
    """Options of CREATE."""
    o = TubeOptions()
    o.is_alone = True
    for word, value in given.items():
        assert hasattr(o, word), word
        setattr(o, word, value)
    return o
