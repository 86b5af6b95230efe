"""Judges of tubes: replies must match what the leader did, in the leader's order.

After each turn of a node its tubes' changes are replayed (mirror.py); a reply is judged when the
node sends it. disk.py judges what a disk must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.engine.history import OK, REFUSED
from sim.tube_judges.disk import (
    ident_of,
    judge_disk,
    judge_load,
    judge_tokens,
    look_again,
    tubes_on,
)
from sim.tube_judges.facts import Call, Facts, Line, Put, State
from sim.tube_judges.forces import is_outdated
from sim.tube_judges.homes import (
    count_takes,
    is_up,
    judge_alone,
    judge_awake,
    judge_epoch,
    judge_start,
    judge_state,
    note_sessions,
)
from sim.tube_judges.mirror import Mirror, Seen
from sim.tube_judges.turns import (
    forget_pauses,
    is_paused_since,
    judge_home,
    judge_overtaken,
    judge_pause,
    look_at_turn,
    note_pause,
)
from tuque.core.model.task import READY, STATUS_NAMES, TAKEN, Task
from tuque.core.node.queue import PAUSE_OUT
from tuque.tubes.model.tube import STARTUP

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster
    from tuque.tubes.model.tube import Tube
    from tuque.tubes.model.tubes import Tubes

VAIN_MS: Final = 20  # within it a free task and a client that waits for it meet
MASS_US: Final = 10_000_000  # within it a call about all tasks has run, or never will
# the event that ends a take, by verb; None: any may have
ENDS: Final = {
    "ack": b"ack", "ACKJOB": b"ack", "release": b"release", "NACK": b"release", "bury": b"bury",
    "touch": b"touch", "WORKING": b"touch",
}  # fmt: skip


class Tubing:
    """All tubes of a seed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = cluster.history
        self.facts: dict[bytes, Facts] = {}
        for op in cluster.plan.ops:
            if op.kind == "tube":
                name: str = op.args["tube"]
                self.facts[name.encode()] = Facts(name, op.args)
        self.mirrors: dict[tuple[str, bytes], Mirror] = {}  # node, tube
        self.idle: dict[tuple[str, bytes], int] = {}  # changes at the last check
        self.states: dict[tuple[str, bytes], int] = {}  # T19, at the last check
        self.uuids: dict[str, bytes] = {}  # of clients' sessions, by name
        self.groups: dict[object, object] = {}  # a connection -> its shared uuid
        self.closed: dict[tuple[str, int], tuple[int, int]] = {}  # node, session: (ms, ttr)

    def find(self, rule: str, text: str) -> None:
        """A promise about tubes is broken."""
        self.history.find(rule, text)

    def who(self, connection: object) -> object:
        """The client behind a connection: its session."""
        return self.groups.get(connection, connection)

    def mirror_of(self, node: str, name: bytes) -> Mirror | None:
        """The tube on that node, as replayed from its changes."""
        return self.mirrors.get((node, name))

    # ---- after each turn, before its replies leave

    def on_turn(self, machine: Machine, shell: Shell) -> None:
        """Replay the changes of this turn."""
        if not self.facts:
            return
        t = tubes_on(shell.n)
        if t is not None:
            t.shift_tasks = self.cluster.plan.shift_tasks
        if t is None or shell.s.is_loading or is_outdated(machine):
            return
        for name, facts in self.facts.items():
            tube = t.by_name.get(name)
            key = (machine.name, name)
            mirror = self.mirrors.get(key)
            if mirror is not None and mirror.tube is not tube:
                if mirror.is_up:  # nobody drops tubes
                    self.find("tube-home", f"{facts.name} is gone from its home {machine.name}")
                del self.mirrors[key]
                mirror = None
            if tube is None:
                continue
            if is_up(tube):
                if mirror is None or not mirror.is_up:
                    mirror = self.begin(machine, shell, facts, tube)
                if mirror.seq != tube.change_seq:
                    self.play(machine, t, mirror)
                    judge_epoch(self.cluster, machine, facts, mirror.line, int(tube.epoch))
                    judge_alone(self.cluster, machine, facts, mirror.line)
                self.look(shell, tube, mirror)
                look_at_turn(self, shell, mirror)
            elif mirror is not None and mirror.is_up:
                self.cease(machine, t, mirror)
            self.idle[key] = int(tube.change_seq)
            if tube.is_mine and tube.state == STARTUP:  # sessions of the last leader start here
                note_sessions(self.cluster, machine, shell)
            if self.states.get(key) != tube.state:
                self.states[key] = int(tube.state)
                judge_state(self.cluster, machine, facts, tube)
        if self.closed:
            self.look_at_sessions(machine, shell, t)

    def begin(self, machine: Machine, shell: Shell, facts: Facts, tube: Tube) -> Mirror:
        """This node starts to run the tube."""
        line = facts.lines.get(ident_of(tube))
        is_fresh = line is None
        if line is None:
            line = Line()
            if facts.lines and self.cluster.plan.is_faultless:
                self.find("tube-home", f"{facts.name} was made again at {machine.name} (T17.5)")
            facts.lines[ident_of(tube)] = line
            # All had forgotten it, except an old disk or a message in flight: it does not start
            # here. The node that creates a tube is its first leader (T17.1).
            is_fresh = tube.epoch == 1 and ident_of(tube) not in facts.loaded
        mirror = Mirror(facts, line, tube, self.world.now_us, self.find, is_fresh)
        mirror.begin_ms = int(shell.n.now_ms)
        earlier = self.mirrors.get((machine.name, facts.key))
        if earlier is not None and earlier.epoch == mirror.epoch:
            mirror.earlier = earlier
        self.mirrors[machine.name, facts.key] = mirror
        seen = self.idle.get((machine.name, facts.key), 0)
        t = tubes_on(shell.n)
        if not is_fresh and t is not None and seen != tube.change_seq:
            mirror.vague = {int(one.number) for one in t.changes(tube, seen - 1, 1000)}
        judge_home(self, machine, mirror)
        judge_start(self.cluster, machine, shell, mirror)
        return mirror

    def cease(self, machine: Machine, t: Tubes, mirror: Mirror) -> None:
        """This node stops running the tube: its state now is what must continue."""
        if mirror.seq != mirror.tube.change_seq:
            self.play(machine, t, mirror)
            judge_awake(self.cluster, machine, mirror.facts, mirror.line, mirror.epoch)
        tube = mirror.tube
        # What was handed over in this turn is in this leader's state: the next one does not know of
        # it yet. Else a newer epoch arrived, and the tube may be paused as on its next leader.
        is_given = bool(tube.is_owed) and tube.epoch == mirror.epoch + 1
        is_own = mirror.epoch == tube.epoch or is_given
        if is_own:
            judge_pause(self, mirror)
        # The tube ran in this turn until it stopped: a take in it, after the last checked turn, may
        # have found it paused and got nothing (P2.2).
        note_pause(self, mirror, int(tube.pause) if is_own else max(mirror.waits.pause, 0))
        mirror.is_up = False
        statuses = {number: one.status for number, one in mirror.tasks.items()}
        if mirror.epoch == mirror.line.epoch:
            mirror.line.state = State(statuses, mirror.next_number, True, True)

    def play(self, machine: Machine, t: Tubes, mirror: Mirror) -> None:
        """Replay one tube's changes of one turn."""
        tube, now_us = mirror.tube, self.world.now_us
        changes = t.changes(tube, mirror.seq - 1, 1000)
        takes = sum(1 for change in changes if change.event == b"take")
        if takes:
            self.history.count("tube takes", takes)
            count_takes(self.cluster, machine, mirror, takes)
        if len(changes) != tube.change_seq - mirror.seq:
            self.find("tube-count", f"{mirror.facts.name}: changes of one turn are missing")
        for change in changes:
            self.history.count("tube changes")
            if change.event == b"put":
                self.history.count("tube puts")
            elif change.event in (b"ttr", b"delay", b"ttl"):
                self.history.count("tube timers")
            elif change.event == b"release":
                self.judge_release(machine, mirror, int(change.number), int(change.at_ms))
            mirror.replay(change, now_us)
        mirror.seq = int(tube.change_seq)
        mirror.marks.append((int(tube.seq), len(mirror.log)))
        mirror.learn(now_us)
        mirror.look_ahead()
        if is_up(tube):
            self.history.count("looks into tubes")
            mirror.compare(self.find)

    def judge_release(self, machine: Machine, mirror: Mirror, number: int, at_ms: int) -> None:
        """A task is released on request, or when its session ends (T8.2)."""
        one, facts = mirror.tasks.get(number), mirror.facts
        if one is None or one.status != TAKEN:
            return
        if facts.asked(number, one.taken_us, "release", "NACK"):
            return
        if facts.mass_us.get("RELEASEALL", -MASS_US) > one.taken_us - MASS_US or not one.owner:
            return
        self.history.count("tasks of sessions that ended")
        closed = self.closed.get((machine.name, one.owner))
        if closed is None or at_ms < closed[0] + closed[1]:
            when = "that is open" if closed is None else f"{at_ms - closed[0]} ms after its end"
            self.find("tube-session", f"{facts.name}: task {number} left a session {when}")

    def look(self, shell: Shell, tube: Tube, mirror: Mirror) -> None:
        """Nobody waits in vain, nothing is overdue."""
        n, name = shell.n, mirror.facts.name
        now_ms = mirror.now_ms = int(n.now_ms)
        if len(tube.waiters) > 0 and not tube.pause & PAUSE_OUT:
            self.history.count("looks for waiting takes")
            if not mirror.has_first or mirror.first(now_ms) is None:
                mirror.vain_ms = 0
            elif mirror.vain_ms == 0:
                mirror.vain_ms = now_ms
            elif now_ms > mirror.vain_ms + VAIN_MS:
                self.find("tube-wait", f"clients wait for {name} though it has a task for them")
                mirror.vain_ms = now_ms + 10_000
        else:
            mirror.vain_ms = 0
        if now_ms <= mirror.due_ms:
            return
        for one in mirror.overdue(now_ms):
            self.find("tube-time", f"{name}: task {one.number} did not come back in time")
            one.until_ms = 0

    # ---- sessions

    def on_closed(self, machine: Machine, shell: Shell, client: int) -> None:
        """The node closes a connection, maybe the last one of its session."""
        t = tubes_on(shell.n)
        session = t.by_client.get(client) if t is not None else None
        if t is not None and session is not None and len(session.clients) == 1:
            self.history.count("sessions without connections")
            now_ms = int(shell.n.now_ms)
            self.closed[machine.name, int(session.number)] = (now_ms, int(t.ttr_ms))

    def look_at_sessions(self, machine: Machine, shell: Shell, t: Tubes) -> None:
        """Sessions end in time, or continue (T8.2)."""
        for node, number in list(self.closed):
            if node != machine.name:
                continue
            session = t.sessions.get(number)
            since_ms, ttr_ms = self.closed[node, number]
            if session is not None and len(session.clients) > 0:
                del self.closed[node, number]
            elif session is not None and shell.n.now_ms > since_ms + ttr_ms + VAIN_MS:
                self.find("tube-session", f"session {number} is not over in time at {node}")
                del self.closed[node, number]

    def on_identified(self, connection: object, reply: object) -> None:
        """A connection learns its session."""
        if isinstance(reply, bytes):
            self.history.count("IDENTIFY ok")
            self.groups[connection] = reply

    # ---- replies

    def on_created(self, facts: Facts, node: str, reply: object) -> None:
        """The tube exists."""
        if not isinstance(reply, Exception) and not facts.created_us:
            facts.created_us = self.world.now_us
            facts.home = node

    def on_put(self, facts: Facts, put: Put, node: str, reply: object) -> None:
        """A put got its reply: the task exists, or it does not."""
        mirror = self.mirror_of(node, facts.key)
        waited_us = self.world.now_us - put.asked_us
        if isinstance(reply, Exception):
            if "done here" not in str(reply):  # T18.5
                put.outcome, put.error = REFUSED, str(reply)
        elif reply is None:
            put.outcome = REFUSED
            self.history.count("puts that found no room")
            # Instants are whole ms (G8.2): the ms of the request counts from its start.
            if not facts.capacity or waited_us < (put.timeout_ms - 1) * 995:
                self.find("tube-full", f"{put.token!r} got nothing after {waited_us / 1e6:.3f} s")
        elif isinstance(reply, bytes) and self.is_plain(node, facts.key, reply):
            # No task: ADDJOB on a read-only node, which could not create the tube (T19.5).
            put.outcome = REFUSED
            facts.is_plain = facts.is_plain or not facts.created_us  # not creatable now (T2.3)
            self.history.count("puts into a plain queue")
        else:
            put.outcome = OK
            self.history.count("tube puts told")
            number = reply[0] if isinstance(reply, list) else facts.number_of(reply)
            one = mirror.gone.get(number) if mirror is not None else None
            if mirror is not None and one is not None and not one.is_known:
                put.number, put.line = number, mirror.line
            if mirror is None or number != put.number:
                self.find("tube-number", f"{put.token!r} is task {put.number}, told {number}")
            else:
                if number > mirror.line.top_number:
                    mirror.line.top_number = number
                    mirror.line.top_us = self.cluster.world.now_us
                self.tell(mirror, b"put", number, put.asked_us)
        if put.outcome == REFUSED and put.number >= 0:
            self.find("tube-full", f"{put.token!r} was refused and is task {put.number}: {reply}")

    def is_plain(self, node: str, name: bytes, id: bytes) -> bool:
        """Whether the node does not know the tube, and has the job in a plain queue."""
        shell = next(m.shell for m in self.cluster.machines if m.name == node)
        t = tubes_on(shell.n) if shell is not None else None
        if shell is None or (t is not None and name in t.by_name):
            return False
        job = shell.n.jobs.get(id)
        return job is not None and not isinstance(job, Task)

    def tell(self, mirror: Mirror, event: bytes, number: int, asked_us: int) -> None:
        """A client knows of the first such change since its request."""
        for at, step in enumerate(mirror.log):
            if step.number == number and step.event == event and step.at_us >= asked_us:
                mirror.told.append((self.world.now_us, at))
                return

    def on_taken(
        self, facts: Facts, node: str, connection: object, asked_us: int, reply: object
    ) -> None:
        """TAKE got its reply; without a task there must have been none all the time."""
        mirror = self.mirror_of(node, facts.key)
        if mirror is None or isinstance(reply, Exception) or mirror.born_us > asked_us:
            return
        if reply is None:
            self.judge_none(mirror, asked_us)
            return
        assert isinstance(reply, list)
        number, body, token = reply[0], reply[2], reply[3]
        self.history.count("tube takes told")
        one = mirror.tasks.get(number) or mirror.gone.get(number)
        if one is None or one.put is None or one.put.body != body:
            if one is None or one.is_known:
                self.find("tube-held", f"{facts.name}: task {number} was given with {body[:30]!r}")
            return
        if token in mirror.line.takers:
            self.find("tube-fence", f"{facts.name}: token {token} was given twice")
        mirror.line.takers[token] = self.who(connection)
        mirror.line.told_tokens[node] = max(mirror.line.told_tokens.get(node, 0), token)
        unknown = [take for take in one.takes if take.token == 0]
        if unknown and all(take.token != token for take in one.takes):
            unknown[0].token = token
        elif all(take.token != token for take in one.takes):
            self.find("tube-held", f"{facts.name}: task {number} was not taken under {token}")
        judge_overtaken(self, mirror, one, token, asked_us)

    def judge_none(self, mirror: Mirror, asked_us: int) -> None:
        """A take got no task: there was none since its request."""
        if is_paused_since(mirror, asked_us):
            return
        self.history.count("takes without a task")
        for one in mirror.tasks.values():
            lane_us = mirror.freed_us.get(one.subqueue, 0) if mirror.facts.rules.is_keyed else 0
            since_us = max(one.since_us, lane_us)
            if one.status == READY and since_us < asked_us and mirror.is_free(one):
                if one.dead_ms() > int(mirror.tube.atime_ms) + 60_000:
                    self.find(
                        "tube-wait",
                        f"{mirror.facts.name}: nothing for a take, {one.number} is there",
                    )
                return

    def on_called(
        self, facts: Facts, call: Call, node: str, connection: object, reply: object
    ) -> None:
        """A call about one task got its reply: it ran for the holder, or was rightly refused."""
        call.is_over = True
        who = self.who(connection)
        mirror = self.mirror_of(node, facts.key)
        if mirror is None or mirror.born_us > call.asked_us:
            return
        one = mirror.tasks.get(call.number) or mirror.gone.get(call.number)
        self.history.count("calls of holders")
        if isinstance(reply, Exception):
            if one is not None and "NOTTAKEN" in str(reply):
                self.judge_refusal(mirror, one, call, who)
            return
        if reply == 0 or reply is None or one is None:
            return
        event = ENDS[call.verb]
        self.tell(mirror, event, call.number, call.asked_us)
        tokens = [call.token] if call.token else mirror.line.tokens_of(who)
        for take in one.takes:
            is_mine = take.token in tokens or take.token == 0
            if not call.token and mirror.line.takers.get(take.token) is None:
                is_mine = True  # taken with GETJOB: no session holds it (T1.4)
            if event in take.events and is_mine:
                return
        if call.verb == "bury" and not call.token:
            return  # it does not check the holder (T5.3)
        self.find(
            "tube-fence",
            f"{facts.name}: {call.verb} of task {call.number} was done for another one",
        )

    def judge_refusal(self, mirror: Mirror, one: Seen, call: Call, who: object) -> None:
        """The holder of a task with a token must not be refused."""
        if not call.token or one.status != TAKEN or one.token != call.token:
            return
        self.history.count("calls refused though the task is taken so")
        if mirror.line.takers.get(call.token) == who:
            self.find(
                "tube-fence",
                f"{mirror.facts.name}: {call.verb} of task {one.number} was refused to its holder",
            )

    def on_deleted(
        self, facts: Facts, number: int, asked_us: int, node: str, reply: object
    ) -> None:
        """delete was answered."""
        mirror = self.mirror_of(node, facts.key)
        if mirror is not None and isinstance(reply, list):
            self.tell(mirror, b"delete", number, asked_us)

    def on_peeked(self, facts: Facts, node: str, number: int, asked_us: int, reply: Any) -> None:
        """PEEK reports a status that the task had since the request."""
        mirror = self.mirror_of(node, facts.key)
        one = mirror.tasks.get(number) if mirror is not None else None
        if one is None or one.since_us >= asked_us:
            return
        if isinstance(reply, Exception) and "NOTASK" not in str(reply):
            return
        self.history.count("tube looks told")
        told = reply[1] if isinstance(reply, list) else reply
        if isinstance(told, Exception) or told != STATUS_NAMES[one.status]:
            self.find("tube-count", f"{facts.name}: task {number} is shown as {told}")

    # ---- processes

    def on_death(self, machine: Machine, shell: Shell, how: str, back: str) -> None:
        """A process ended: its disk must have a prefix of its changes."""
        for facts in self.facts.values():
            mirror = self.mirrors.pop((machine.name, facts.key), None)
            if machine.settings.policy == "off" or back != "disk" or machine.had_disk_fault:
                for line in facts.lines.values():
                    if line.homes.get(line.epoch) == machine.name:
                        line.state = State({}, 0, False, False)
            judge_tokens(self.cluster, machine, facts, back)
            if mirror is not None:
                judge_disk(self.cluster, machine, shell, mirror, back)
            elif how == "power" and back == "disk":
                look_again(self.cluster, machine, facts)
            for line in facts.lines.values():
                line.states.pop(machine.name, None)
        forget_pauses(self, machine, back)
        self.closed = {key: one for key, one in self.closed.items() if key[0] != machine.name}
        self.idle = {key: one for key, one in self.idle.items() if key[0] != machine.name}
        self.states = {key: one for key, one in self.states.items() if key[0] != machine.name}

    def on_loaded(self, machine: Machine, shell: Shell) -> None:
        """A journal is loaded: the tubes are as on the disk."""
        t = tubes_on(shell.n)
        if t is None:
            return
        for name, facts in self.facts.items():
            tube = t.by_name.get(name)
            if tube is not None:
                judge_load(self.cluster, machine, facts, tube, t)
                facts.loaded.add(ident_of(tube))
                self.idle[machine.name, name] = int(tube.change_seq)
        for session in t.sessions.values():
            now_ms = int(shell.n.now_ms)
            self.closed[machine.name, int(session.number)] = (now_ms, int(t.ttr_ms))

    def on_end(self) -> None:
        """Something was done, if there was a client to do it."""
        if all(facts.is_plain for facts in self.facts.values()):
            return
        self.history.count("seeds with tubes")
        for what in ("tube puts", "tube takes", "looks into tubes"):
            if self.history.counts.get(what, 0) == 0:
                self.find("empty", f"no {what}: this seed checks nothing of its tubes")
