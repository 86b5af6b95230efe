"""A tube of any type as plain Python: slow, obvious, and what the fast one must equal.

A `Model` is one tube and its sessions; the rules of its type are those by which the simulator
judges. All times are ms. Order of what happens at one instant: tasks whose time has come, takes
that waited long enough, sessions, puts that waited long enough, and then whoever waits is served.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.tube_judges.types import Defaults, Task, Type
from tuque.core.model.task import BURIED, DELAYED, DONE, MAX_MS, READY, TAKEN


class Refused(Exception):
    """What a call is refused with; nothing was done."""


DEAD_KEEP_MS = 30 * 86_400_000


class DataTask(Task):
    """A task with its data."""

    def __init__(self, number: int, data: bytes, now: int) -> None:
        super().__init__(number, now)
        self.data = data
        self.life_ms = 0  # its ttl at its first death (T48.13)


@dataclass
class Session:
    """Who holds tasks."""

    number: int
    clients: set[int] = field(default_factory=set)
    until: int | None = None


@dataclass
class Waiting:
    """A take that waits."""

    number: int
    client: int
    until: int | None


@dataclass
class WaitingPut:
    """A put that waits for room."""

    client: int
    serial: int
    until: int
    args: dict[str, Any]


class Model:
    """One tube of a type, and all that is asked of it."""

    def __init__(self, rules: Type, now: int, defaults: Defaults, capacity: int) -> None:
        self.rules, self.now, self.defaults, self.capacity = rules, now, defaults, capacity
        self.tasks: list[DataTask] = []
        self.next_number = 0
        self.token = 0
        self.calls: dict[str, int] = dict.fromkeys(
            "ack bury delete kick put release take touch ttl ttr delay".split(), 0
        )
        self.done = 0
        self.session_ttr = 0
        self.sessions: list[Session] = []
        self.session_count = 0
        self.waiting: list[Waiting] = []
        self.putting: list[WaitingPut] = []
        self.woken: list[tuple[int, int | None]] = []  # (number it waited under, task)
        self.put_done: list[tuple[int, int, int | None]] = []

    def first(self) -> DataTask | None:
        """The task that the next take gets."""
        found = self.rules.first(self.tasks, self.now)
        assert found is None or isinstance(found, DataTask)
        return found

    # time

    def settle(self) -> None:
        """All that is due for tasks at this instant."""
        while True:
            for task in self.tasks:
                if self.settle_one(task):
                    break
            else:
                return

    def settle_one(self, task: DataTask) -> bool:
        """One thing that is due for the task."""
        is_due = 0 < task.until_ms <= self.now
        if task.status == TAKEN and is_due:
            self.calls["ttr"] += 1
            self.ready(task)
        elif task.status == DELAYED and is_due:
            self.calls["delay"] += 1
            self.ready(task)
        elif task.status in (READY, BURIED) and task.dead_ms() <= self.now:
            self.calls["ttl"] += 1
            self.calls["delete"] += 1
            self.remove(task)
        else:
            return False
        return True

    def at(self, now: int) -> None:
        """The clock says so; everything due happens."""
        self.now = now
        self.settle()
        for waiting in list(self.waiting):
            if waiting.until is not None and waiting.until <= now:
                self.waiting.remove(waiting)
                self.woken.append((waiting.number, None))
        for session in sorted(self.sessions, key=lambda one: (one.until or 0, one.number)):
            if session.until is not None and session.until <= now:
                self.end_session(session)
        for put in list(self.putting):
            if put.until <= now:
                self.putting.remove(put)
                self.put_done.append((put.client, put.serial, None))
        self.serve()

    def serve(self) -> None:
        """Who waits gets what there is, first come first; a ttr of 0 is over at once."""
        while self.waiting and self.count(READY) > 0:
            self.settle()
            if self.first() is None:
                return
            waiting = self.waiting.pop(0)
            task = self.take_first(self.session_of(waiting.client).number)
            assert task is not None
            self.woken.append((waiting.number, task.number))

    # tasks

    def ready(self, task: DataTask) -> None:
        """The task goes back to where it was."""
        task.status, task.until_ms, task.owner = READY, 0, 0

    def remove(self, task: DataTask) -> None:
        """The task is over; whoever waited for its room puts."""
        self.tasks.remove(task)
        task.status, task.owner = DONE, 0
        self.done += 1
        self.admit()

    def admit(self) -> None:
        """Puts that wait are done as far as there is room."""
        while self.putting and not self.is_full():
            put = self.putting.pop(0)
            task = self.insert(**put.args)
            self.put_done.append((put.client, put.serial, task.number))

    def is_full(self) -> bool:
        """Whether a put finds no room."""
        return self.rules.is_limited and 0 < self.capacity <= len(self.tasks)

    def insert(self, data: bytes, utube: bytes, **args: int | None) -> DataTask:
        """A new task; -1 and None stand for defaults."""
        task = DataTask(self.next_number, data, self.now)
        self.next_number += 1
        self.rules.set_options(task, self.defaults, args)
        if task.until_ms:
            task.status = DELAYED
        if self.rules.is_keyed:
            task.subqueue = utube
        self.tasks.append(task)
        self.calls["put"] += 1
        return task

    def find(self, number: int) -> DataTask:
        """The task of that number."""
        for task in self.tasks:
            if task.number == number:
                return task
        raise Refused(f"Task {number} not found")

    def own(self, client: int, number: int, token: int) -> DataTask:
        """The task of that number if the client's session holds it, by that take if given."""
        session = self.session_of(client)
        for task in self.tasks:
            if task.number == number and task.status == TAKEN and task.owner == session.number:
                if token in (0, task.token):
                    return task
        raise Refused("Task was not taken")

    # calls

    def put(self, client: int, serial: int, timeout: int, args: dict[str, Any]) -> DataTask | None:
        """None: no room, or not yet."""
        self.settle()
        if not self.is_full():
            return self.insert(**args)
        if timeout > 0:
            self.putting.append(WaitingPut(client, serial, self.now + timeout, args))
        return None

    def take(self, client: int) -> DataTask | None:
        """The first task, if there is one when those who wait have theirs."""
        self.settle()
        self.serve()
        return self.take_first(self.session_of(client).number)

    def take_first(self, owner: int) -> DataTask | None:
        """The first task goes to that session; 0: to nobody's, for a while."""
        task = self.first()
        if task is None:
            return None
        self.token += 1
        task.status, task.owner, task.token = TAKEN, owner, self.token
        if owner == 0 or self.rules.is_timed:  # else it does not come back by itself
            task.until_ms = self.now + self.taken_ms(task)
        self.calls["take"] += 1
        return task

    def taken_ms(self, task: DataTask) -> int:
        """How long it stays TAKEN; in a session for 100 years, unless its put said less."""
        if task.owner == 0 or task.ttr_ms < MAX_MS:
            return self.rules.taken_ms(task, self.now)
        return self.rules.within_life(task, self.now, task.ttr_ms)

    def wait(self, client: int, number: int, timeout: int) -> None:
        """A take that waits; 0: for ever."""
        until = self.now + timeout if timeout else None
        self.waiting.append(Waiting(number, client, until))

    def touch(self, client: int, number: int, increment: int, token: int) -> DataTask | None:
        """More time for the holder."""
        if increment <= 0:
            return None
        self.settle()
        task = self.own(client, number, token)
        self.calls["touch"] += 1
        if not self.rules.is_timed:
            raise Refused(f"{self.rules.name} queue does not support touch")
        task.until_ms += increment
        task.ttl_ms += increment
        task.ttr_ms += increment
        return task

    def ack(self, client: int, number: int, token: int) -> DataTask:
        """Done."""
        self.settle()
        task = self.own(client, number, token)
        self.calls["ack"] += 1
        self.remove(task)
        return task

    def release(self, client: int, number: int, delay: int, token: int) -> DataTask:
        """Back, now or later."""
        self.settle()
        task = self.own(client, number, token)
        self.give_up(task, delay)
        return task

    def give_up(self, task: DataTask, delay: int) -> None:
        """Its holder gives it back."""
        self.calls["release"] += 1
        self.ready(task)
        if self.rules.is_timed and delay > 0:
            task.ttl_ms += delay
            task.status, task.until_ms = DELAYED, self.now + delay

    def peek(self, number: int) -> DataTask:
        """Only look."""
        self.settle()
        return self.find(number)

    def bury(self, number: int, token: int) -> DataTask:
        """Out of the way."""
        self.settle()
        task = self.find(number)
        if token and (task.status != TAKEN or task.token != token):
            raise Refused("Task was not taken")
        if task.status != BURIED:
            self.ready(task)
            task.status = BURIED
            self.calls["bury"] += 1
            if self.rules.name == "tasks":  # T48.15
                task.life_ms = task.life_ms or task.ttl_ms
                task.ttl_ms = self.now - task.created_ms + DEAD_KEEP_MS
        return task

    def kick(self, count: int) -> int:
        """Back into the way."""
        self.settle()
        buried = [task for task in self.tasks if task.status == BURIED]
        buried.sort(key=lambda task: (task.pri, task.number))
        for task in buried[: max(count, 0)]:
            self.calls["kick"] += 1
            if self.rules.name == "tasks":
                task.ttl_ms = self.now - task.created_ms + task.life_ms
            self.ready(task)
        return min(max(count, 0), len(buried))

    def delete(self, number: int) -> DataTask:
        """Gone, whoever holds it."""
        self.settle()
        task = self.find(number)
        self.calls["delete"] += 1
        self.remove(task)
        return task

    def truncate(self) -> int:
        """All gone, and not counted as done."""
        count = len(self.tasks)
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.status = DONE
        self.admit()
        return count

    def release_all(self) -> int:
        """All that is taken goes back."""
        self.settle()
        taken = [task for task in self.tasks if task.status == TAKEN]
        for task in taken:
            self.calls["release"] += 1
            self.ready(task)
        return len(taken)

    # the commands for jobs

    def getjob(self) -> DataTask | None:
        """A take that no session holds; with nothing READY it looks no further."""
        if self.count(READY) == 0:
            return None
        self.settle()
        return self.take_first(0)

    def held(self, client: int, number: int) -> DataTask | None:
        """The task, if that client may finish it by job id."""
        session = [one.number for one in self.sessions if client in one.clients]
        for task in self.tasks:
            if task.number == number and task.status == TAKEN:
                return task if task.owner == 0 or task.owner in session else None
        return None

    def ackjob(self, client: int, number: int) -> bool:
        """Done, by job id."""
        task = self.held(client, number)
        if task is None:
            return False
        self.calls["ack"] += 1
        self.remove(task)
        return True

    def nack(self, client: int, number: int, delay: int) -> bool:
        """Given back, by job id."""
        task = self.held(client, number)
        if task is not None:
            self.give_up(task, delay)
        return task is not None

    def working(self, client: int, number: int) -> bool:
        """The time to work on it begins anew, by job id."""
        task = self.held(client, number)
        if task is None:
            return False
        self.calls["touch"] += 1
        if task.until_ms:
            task.until_ms = max(task.until_ms, self.now + self.rules.taken_ms(task, self.now))
        return True

    # sessions

    def session_of(self, client: int) -> Session:
        """The client's session, made when it has none."""
        for session in self.sessions:
            if client in session.clients:
                return session
        self.session_count += 1
        session = Session(self.session_count, {client})
        self.sessions.append(session)
        return session

    def join(self, client: int, other: int) -> None:
        """The client joins the session of another one."""
        session = self.session_of(other)
        if client not in session.clients:
            self.leave(client)
            session.clients.add(client)

    def gone(self, client: int) -> None:
        """The client is not there any more."""
        self.putting = [put for put in self.putting if put.client != client]
        self.leave(client)

    def leave(self, client: int) -> None:
        """After the last one its tasks go back, now or in a while."""
        for session in list(self.sessions):
            if client in session.clients:
                session.clients.remove(client)
                if not session.clients and self.session_ttr == 0:
                    self.end_session(session)
                elif not session.clients:
                    session.until = self.now + self.session_ttr

    def end_session(self, session: Session) -> None:
        """Its tasks go back."""
        self.sessions.remove(session)
        for task in self.tasks:
            if task.status == TAKEN and task.owner == session.number:
                self.calls["release"] += 1
                self.ready(task)

    # looking

    def count(self, status: int) -> int:
        """Tasks with that status."""
        return sum(task.status == status for task in self.tasks)

    def statistics(self) -> dict[str, dict[str, int]]:
        """As the API tells it."""
        calls = dict(self.calls)
        if self.rules.name == "utubettl":
            calls["delayed"] = calls["delay"]
        tasks = {
            "taken": self.count(TAKEN),
            "ready": self.count(READY),
            "buried": self.count(BURIED),
            "delayed": self.count(DELAYED),
            "done": self.done,
            "total": len(self.tasks),
        }
        return {"tasks": tasks, "calls": calls}
