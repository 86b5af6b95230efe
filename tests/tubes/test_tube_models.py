"""The fast tubes against the models: whatever is called, every answer is the same (SPEC T1-T12).

`TUQUE_TUBE_OPS` says how many calls a type gets; the default is short, more so on the sources.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from models import Model, Refused

from sim.tube_judges.types import TYPES, Defaults, Type
from tuque.core.copies.ack import on_ackjob
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.life.cancel_update import on_update
from tuque.core.model.errors import NO_OPTION, NOT_TAKEN
from tuque.core.model.job import Update
from tuque.core.model.task import MAX_MS, TAKEN, Task
from tuque.core.node.node import GOT_JOBS, Node
from tuque.core.queues.deliver import on_getjob, serve_ready
from tuque.core.queues.procedures import check, stop_waiting
from tuque.core.queues.requeue import on_nack, on_working
from tuque.server.replies.errors import text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PRI_DEFAULT, PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations, sessions

STEPS = 60
IS_COMPILED = not (operations.__file__ or "").endswith(".py")
OPS = int(os.environ.get("TUQUE_TUBE_OPS", "1200" if IS_COMPILED else "900"))
NODE_ID = b"a" * 40
START_MS = 1_700_000_000_000

clients = st.integers(1, 4)
picks = st.integers(0, 40)
# Durations end 10 ms after a whole second and the clock stands on whole seconds: the timers'
# lateness of 16 ms never shows.
spans = st.sampled_from([0, 1010, 2010, 3010, 7010])
maybe_spans = st.sampled_from([-1, -1, -1, 0, 1010, 2010, 3010, 7010])
tokens = st.sampled_from(["none", "none", "none", "right", "old"])

# how often, what, with what
ACTIONS: list[tuple[int, str, dict[str, st.SearchStrategy[Any]]]] = [
    (
        6,
        "put",
        {
            "client": clients,
            "ttl": maybe_spans,
            "ttr": maybe_spans,
            "delay": st.sampled_from([-1, -1, 0, 1010, 3010]),
            "pri": st.sampled_from([None, None, 0, 1, 2, 3]),
            "key": st.sampled_from([b"a", b"a", b"b", b"c"]),
            "timeout": st.sampled_from([0, 1010, 3010]),
        },
    ),
    (4, "take", {"client": clients}),
    (2, "wait", {"client": clients, "timeout": st.sampled_from([0, 1010, 5010])}),
    (2, "touch", {"client": clients, "pick": picks, "increment": spans, "kind": tokens}),
    (3, "ack", {"client": clients, "pick": picks, "kind": tokens}),
    (3, "release", {"client": clients, "pick": picks, "delay": spans, "kind": tokens}),
    (1, "peek", {"pick": picks}),
    (2, "bury", {"pick": picks, "kind": tokens}),
    (2, "kick", {"count": st.sampled_from([0, 1, 1, 2, 9, -1])}),
    (1, "delete", {"pick": picks}),
    (3, "update", {"pick": picks, "pri": st.integers(0, 3)}),
    (1, "truncate", {"chance": st.integers(0, 5)}),
    (1, "release_all", {}),
    (4, "let_time_pass", {"steps": st.sampled_from([1, 1, 2, 3, 10, 400])}),
    (1, "getjob", {}),
    (1, "ackjob", {"client": clients, "pick": picks}),
    (1, "nack", {"client": clients, "pick": picks, "delay": spans}),
    (1, "working", {"client": clients, "pick": picks}),
    (1, "configure", {"ttr": st.sampled_from([0, 2010])}),
    (1, "join", {"client": clients, "other": clients}),
    (1, "disconnect", {"client": clients}),
]
CHOICES = [i for i, (weight, _, _) in enumerate(ACTIONS) for _ in range(weight)]
CHOICE = st.sampled_from(CHOICES)
ARGUMENTS = [st.fixed_dictionaries(args) for _, _, args in ACTIONS]  # one draw is cheaper than many

Answer = tuple[Any, ...] | int | bool | None


def told(task: Any) -> Answer:
    """A task as an answer: number, status, data."""
    if task is None:
        return None
    if isinstance(task, Task):
        return task.number, int(task.status), task.body
    return task.number, task.status, task.data


def works(n: Node, id: bytes, client: int) -> bool:
    """WORKING; False: the client may not extend it."""
    try:
        return on_working(n, id, client) is None
    except TubeError as error:
        if error.code != NOT_TAKEN:
            raise
        return False


class Twins(RuleBasedStateMachine):
    """A tube and its model, asked the same."""

    kind: Type = TYPES["fifo"]

    @initialize(
        ttl=st.sampled_from([-1, -1, 5010]),
        ttr=st.sampled_from([-1, 3010]),
        pri=st.sampled_from([0, 2]),
        capacity=st.sampled_from([0, 1, 3, 6]),
    )
    def begin(self, ttl: int, ttr: int, pri: int, capacity: int) -> None:
        self.n = Node(NODE_ID, b"seed", START_MS)
        self.t = tubes_of(self.n)
        if self.kind.name == "tasks":
            capacity = 0  # refused otherwise (T2.5)
        model_ttl = MAX_MS if ttl < 0 else ttl
        defaults = Defaults(model_ttl, model_ttl if ttr < 0 else ttr, pri)
        self.m = Model(self.kind, START_MS, defaults, capacity)
        o = TubeOptions()
        o.ttl_ms, o.ttr_ms, o.pri, o.capacity = ttl, ttr, pri, capacity
        self.tube = admin.create_tube(self.n, self.t, b"tube", self.kind.name.encode(), o, b"")
        self.serial = 100

    def both(self, fast: Callable[[], Any], slow: Callable[[], Any]) -> None:
        """Ask both; the answers, or the refusals, are the same."""
        self.n.now_ms = self.m.now
        tick(self.n)
        serve_ready(self.n)
        self.m.at(self.m.now)
        answers: list[Any] = []
        for ask in (fast, slow):
            try:
                answer = ask()
                answers.append(answer if isinstance(answer, (int, bool)) else told(answer))
            except TubeError as e:
                answers.append(text_of(e).decode())
            except Refused as e:
                answers.append(str(e))
        assert answers[0] == answers[1]
        serve_ready(self.n)
        self.m.serve()
        self.compare_wakes()

    def compare_wakes(self) -> None:
        """Those that waited heard the same."""
        woken = [
            (wake.client, wake.jobs[0].number if wake.why == GOT_JOBS else None)
            for wake in self.n.wakes
            if all(isinstance(job, Task) for job in wake.jobs)
        ]
        assert sorted(woken, key=str) == sorted(self.m.woken, key=str)
        served = [pair for pair in woken if pair[1] is not None]
        assert served == [pair for pair in self.m.woken if pair[1] is not None]
        done = [(d.client, d.serial, d.task and d.task.number) for d in self.t.put_done]
        assert sorted(done, key=str) == sorted(self.m.put_done, key=str)
        self.n.wakes, self.t.put_done = [], []
        self.m.woken, self.m.put_done = [], []

    def number(self, pick: int) -> int:
        """Mostly a task that is there, and now and then one that is not."""
        numbers = [task.number for task in self.m.tasks]
        if pick == 40 or not numbers:
            return self.m.next_number - 1 - pick % 3
        return numbers[pick % len(numbers)]

    def aim(self, client: int, pick: int) -> tuple[int, int]:
        """Mostly a task that is taken, and somebody of the session that holds it."""
        taken = [task for task in self.m.tasks if task.status == TAKEN]
        if pick % 4 == 0 or not taken:
            return client, self.number(pick)
        task = taken[pick % len(taken)]
        for session in self.m.sessions:
            if session.number == task.owner and session.clients:
                return sorted(session.clients)[pick % len(session.clients)], task.number
        return client, task.number

    def token(self, number: int, kind: str) -> int:
        """The token of the take in force, or of an older one."""
        if kind == "none":
            return 0
        for task in self.m.tasks:
            if task.number == number and task.token:
                return task.token if kind == "right" else max(1, task.token - 1)
        return 1

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Ask something; one rule, so that every run asks all kinds of things."""
        which = data.draw(CHOICE, "action")
        getattr(self, ACTIONS[which][1])(**data.draw(ARGUMENTS[which], "arguments"))

    # what is asked

    def put(
        self, client: int, ttl: int, ttr: int, delay: int, pri: int | None, key: bytes, timeout: int
    ) -> None:
        self.serial += 1
        data = b"data %d" % self.serial
        spec = PutSpec()
        spec.ttl_ms, spec.ttr_ms, spec.delay_ms, spec.timeout_ms = ttl, ttr, delay, timeout
        spec.pri = PRI_DEFAULT if pri is None else pri
        spec.utube = key
        args: dict[str, object] = {
            "data": data,
            "ttl": ttl,
            "ttr": ttr,
            "delay": delay,
            "pri": pri,
            "utube": key,
        }
        serial = self.serial
        self.both(
            lambda: operations.put(self.n, self.t, self.tube, data, 0, spec, client, serial),
            lambda: self.m.put(client, serial, timeout, args),
        )

    def take(self, client: int) -> None:
        self.both(
            lambda: operations.take(self.n, self.t, self.tube, client), lambda: self.m.take(client)
        )

    def wait(self, client: int, timeout: int) -> None:
        if self.m.first() is not None or len(self.m.waiting) > 3:
            return  # nobody waits when there is something
        self.serial += 1
        number = client * 100_000 + self.serial
        until_ms = self.m.now + timeout if timeout else 0
        self.both(
            lambda: operations.wait(self.n, self.t, self.tube, client, until_ms, number),
            lambda: self.m.wait(client, number, timeout),
        )

    def touch(self, client: int, pick: int, increment: int, kind: str) -> None:
        client, number = self.aim(client, pick)
        token = self.token(number, kind)
        self.both(
            lambda: operations.touch(self.n, self.t, self.tube, client, number, increment, token),
            lambda: self.m.touch(client, number, increment, token),
        )

    def ack(self, client: int, pick: int, kind: str) -> None:
        client, number = self.aim(client, pick)
        token = self.token(number, kind)
        self.both(
            lambda: operations.ack(self.n, self.t, self.tube, client, number, token),
            lambda: self.m.ack(client, number, token),
        )

    def release(self, client: int, pick: int, delay: int, kind: str) -> None:
        client, number = self.aim(client, pick)
        token = self.token(number, kind)
        self.both(
            lambda: operations.release(self.n, self.t, self.tube, client, number, delay, token),
            lambda: self.m.release(client, number, delay, token),
        )

    def peek(self, pick: int) -> None:
        number = self.number(pick)
        self.both(
            lambda: operations.peek(self.n, self.t, self.tube, number), lambda: self.m.peek(number)
        )

    def bury(self, pick: int, kind: str) -> None:
        number = self.number(pick)
        token = self.token(number, kind)
        self.both(
            lambda: operations.bury(self.n, self.t, self.tube, number, token),
            lambda: self.m.bury(number, token),
        )

    def kick(self, count: int) -> None:
        self.both(
            lambda: operations.kick(self.n, self.t, self.tube, count), lambda: self.m.kick(count)
        )

    def delete(self, pick: int) -> None:
        number = self.number(pick)
        self.both(
            lambda: operations.delete(self.n, self.t, self.tube, number),
            lambda: self.m.delete(number),
        )

    def update(self, pick: int, pri: int) -> None:
        """T1.10; a number: changed, no priorities, or gone."""
        number = self.number(pick)

        def fast() -> int:
            update = Update()
            update.pri = pri
            try:
                return int(on_update(self.n, self.id_of(number), update)[0] is not None)
            except TubeError as error:
                assert error.code == NO_OPTION
                return 2

        def slow() -> int:
            self.m.settle()
            for task in self.m.tasks:
                if task.number == number:
                    task.pri = pri if self.kind.is_timed else task.pri
                    return 0 if self.kind.is_timed else 2
            return 1

        self.both(fast, slow)

    def truncate(self, chance: int) -> None:
        if chance == 0:
            self.both(lambda: admin.truncate(self.n, self.t, self.tube), lambda: self.m.truncate())

    def release_all(self) -> None:
        self.both(
            lambda: admin.release_all(self.n, self.t, self.tube), lambda: self.m.release_all()
        )

    def let_time_pass(self, steps: int) -> None:
        self.m.now += steps * 1000
        assert next_timer_ms(self.n) > 0
        self.both(lambda: None, lambda: None)

    # commands for jobs

    def getjob(self) -> None:
        def fast() -> Task | None:
            for job in on_getjob(self.n, 9, [b"tube"], 1):
                assert isinstance(job, Task)
                return job
            return None

        self.both(fast, lambda: self.m.getjob())

    def id_of(self, number: int) -> bytes:
        task = self.tube.tasks.get(number)
        return b"D" * 40 if task is None else task.id

    def ackjob(self, client: int, pick: int) -> None:
        client, number = self.aim(client, pick)
        self.both(
            lambda: on_ackjob(self.n, self.id_of(number), client),
            lambda: self.m.ackjob(client, number),
        )

    def nack(self, client: int, pick: int, delay: int) -> None:
        client, number = self.aim(client, pick)
        self.both(
            lambda: on_nack(self.n, self.id_of(number), delay, client),
            lambda: self.m.nack(client, number, delay),
        )

    def working(self, client: int, pick: int) -> None:
        client, number = self.aim(client, pick)
        self.both(
            lambda: works(self.n, self.id_of(number), client),
            lambda: self.m.working(client, number),
        )

    # sessions

    def configure(self, ttr: int) -> None:
        admin.cfg(self.n, self.t, ttr, None)
        self.m.session_ttr = ttr

    def join(self, client: int, other: int) -> None:
        def fast() -> None:
            uuid = sessions.identify(self.n, self.t, other, b"", None)
            assert sessions.identify(self.n, self.t, client, b"", uuid) == uuid

        self.both(fast, lambda: self.m.join(client, other))

    def disconnect(self, client: int) -> None:
        def fast() -> None:
            for number in list(self.n.waiters):
                if number // 100_000 == client:
                    stop_waiting(self.n, number)
            sessions.on_client_gone(self.n, self.t, client)

        def slow() -> None:
            self.m.waiting = [w for w in self.m.waiting if w.number // 100_000 != client]
            self.m.gone(client)

        self.both(fast, slow)

    # what holds at every step

    @precondition(lambda self: hasattr(self, "tube"))
    @invariant()
    def equal(self) -> None:
        check(self.n)
        operations.settle(self.n, self.t)
        self.m.settle()
        assert admin.statistics(self.t, self.tube) == self.m.statistics()
        fast = [
            (task.number, int(task.status), task.body, task.pri, task.owner != 0)
            for task in sorted(self.tube.tasks.values(), key=lambda task: task.number)
        ]
        assert fast == [
            (task.number, task.status, task.data, task.pri, task.owner != 0)
            for task in sorted(self.m.tasks, key=lambda task: task.number)
        ]


@pytest.mark.parametrize("name", TYPES)
def test_a_tube_does_what_its_model_does(name: str) -> None:
    """Every answer, every wake and every counter."""
    machine = type("Twins_" + name, (Twins,), {"kind": TYPES[name]})
    machine.TestCase.settings = settings(
        max_examples=max(1, OPS // STEPS),
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine.TestCase("runTest").runTest()
