"""The broker and the worker of one test, and what the test may ask of them."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Iterator
from typing import Any, Final, Self

from tuque.client.api import Arg, Reply, to_bytes, to_text
from tuque.client.commands.work import Result
from tuque.client.sync import Client
from tuque.errors import Error, NoJob, ReplyError, ResultTimeout
from tuque.testing.broker import Broker
from tuque.testing.found import added_here
from tuque.testing.jobs import (
    Noted,
    Notes,
    TestJob,
    arguments,
    as_bytes,
    envelope_of,
    is_call,
    listed,
    own,
)
from tuque.testing.links import HereAioClient, HereClient, Near, Words, by_hand
from tuque.testing.worker import Clock, HandWorker
from tuque.wire.commands.rows import COMMAND_ROWS
from tuque.worker.app.app import App, Clients
from tuque.worker.app.decisions import Done
from tuque.worker.app.options import check_number
from tuque.worker.app.task import Task
from tuque.worker.run.jobs import InFlight

MAX_JOBS: Final = 1000
QUIET: Final = ("HELLO", "CLIENT", "AUTH")
WAITING: Final = ("RESULT", "WAITJOB")
COMMANDS: Final = frozenset(row.name for row in COMMAND_ROWS)
PASSES_MAX_S: Final = 100 * 365 * 86_400
RUNNABLE: Final = ("waiting", "delivered")


class NotRun(ResultTimeout):
    """Somebody waits for a job that only the test can run."""


class WorkerKilled(BaseException):
    """Raised in a task by `kill_worker()`: nothing of it goes on."""


class TestApp:
    """A broker in this process and a worker, for every App of a test.

    Nothing runs and no time passes by itself: `run_until_idle`, `run_one` and `advance` do that.
    The same `seed` gives the same ids and waits. Use it by the fixture `tuque_app`, or as a context
    manager: within it, every `tuque.worker.App` talks to this broker, whatever its URL.
    """

    __test__ = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._start_ms = time.time_ns() // 1_000_000
        self.broker = self._make_broker()
        self._notes = Notes()
        self._lost: str | None = None  # the command whose answer is lost; "": any
        self._kills_at: str | None = None
        self._failed = ""  # of the latest attempt: its traceback
        self._workers = 0
        self._worker: HandWorker | None = None
        self._used: dict[App, None] = {}
        self._client = HereClient(self)
        self._aio_client = HereAioClient(self)
        self._before: list[Clients | None] = []

    def _make_broker(self) -> Near:
        return Broker(self.seed, self._start_ms)

    def __repr__(self) -> str:
        return f"<tuque.testing.TestApp, {len(self._notes.by_id)} jobs, seed {self.seed}>"

    # Which apps are of the test

    def __enter__(self) -> Self:
        self._before.append(App.clients)
        App.clients = self
        self._forget_tubes()
        return self

    def __exit__(self, *exc: object) -> None:
        App.clients = self._before.pop()
        self.close()

    def close(self) -> None:
        """Ends the worker and all clients."""
        self._forget_tubes()
        if self._worker is not None:
            self._worker.leave()
        by_hand(self._aio_client.close())
        self._client.close()
        self.broker.close()

    @property
    def client(self) -> Client:
        """A client of this broker, with all commands."""
        return self._client

    def client_of(self, app: App) -> Client:
        """The client of an app."""
        self._use(app)
        return self._client

    def aio_client_of(self, app: App) -> HereAioClient:
        """The client of an app for any event loop."""
        self._use(app)
        return self._aio_client

    def _use(self, app: App) -> None:
        self._used.pop(app, None)
        self._used[app] = None

    def _forget_tubes(self) -> None:
        for app in list(App.made.values()):
            app.tubes.clear()
            app.keyed.clear()

    def _tasks(self) -> dict[str, Task[..., Any]]:
        """The tasks of all apps; of two with one name, that of the app that was used last."""
        found: dict[str, Task[..., Any]] = {}
        for app in [
            *(app for app in list(App.made.values()) if app not in self._used),
            *self._used,
        ]:
            found |= app.tasks
        return found

    # Time

    @property
    def now(self) -> dt.datetime:
        """What the broker's clock shows, in UTC."""
        return dt.datetime.fromtimestamp(self.broker.now_ms / 1000, dt.UTC)

    def advance(self, seconds: float) -> None:
        """Lets time pass: delays, back-offs and retry times end, in their order; no job is run.

        Within a task, its worker says meanwhile that it is at work, as a real one does. Raises
        TypeError or ValueError unless it is a number of seconds, from 0 to those of 100 years.
        """
        check_number("the time that passes", seconds)
        if not 0 <= seconds <= PASSES_MAX_S:
            raise ValueError(
                f"time passes by 0 seconds or more, at most {PASSES_MAX_S} (100 years), "
                f"not {seconds}"
            )
        self.pass_time(self.broker.now_ms + math.ceil(round(seconds * 1000, 6)))

    def pass_time(self, until_ms: int) -> None:
        """Lets time pass until then, in unix ms of the broker's clock."""
        while self.broker.now_ms < until_ms:
            beat_s = None if self._worker is None else self._worker.beat_s
            step_ms = until_ms if beat_s is None else self.broker.now_ms + int(beat_s * 1000)
            self.broker.advance(min(until_ms, step_ms))
            if self._worker is not None:
                self._worker.beat()

    # Running jobs

    def run_one(self) -> TestJob | None:
        """Runs the next job that is ready, to the end of its attempt; None if none is.

        The queues of tasks come in the order of the tasks, then all others but dead letters.
        """
        worker = self._ready_worker()
        id = worker.take(self._queues())
        if id is None:
            return None
        held = worker.current
        if held is not None:
            noted = self._noted(id, held.job.queue, held.job.body)
            noted.attempt = held.call.attempt.attempt if held.call is not None else 1
            noted.of = held.job.of or 0
            self._attempt(worker, held, noted)
        return self._view(self._notes.by_id[id]) if id in self._notes.by_id else None

    def _attempt(self, worker: HandWorker, held: InFlight, noted: Noted) -> None:
        """Runs the task of a job, unless its worker is killed before."""
        if self._kills_at != "start":
            outcome = worker.run_task()
            if self._kills_at is None:
                worker.end(held, outcome)
                if outcome.kind not in ("done", "retry", "cancelled"):
                    self._failed = outcome.trace or outcome.text
                if isinstance(held.report, Done):
                    noted.ended = "done"
        if self._kills_at is not None:
            self._kills_at = self._worker = None
            worker.leave()

    def run_until_idle(self, max_jobs: int = MAX_JOBS, *, fail_fast: bool = False) -> int:
        """Runs jobs until none is ready; returns how many attempts were run.

        Jobs that wait for their time stay: `advance` brings them. Fails, with a list of what is
        not at rest, after `max_jobs` attempts; with `fail_fast` also, with its traceback, at the
        first attempt that fails.
        """
        for count in range(max_jobs):
            self._failed = ""
            job = self.run_one()
            if job is None:
                return count
            if fail_fast and self._failed:
                raise AssertionError(f"{job}\n{self._failed}")
        if not self._has_ready():
            return max_jobs
        restless = [job for job in self.jobs() if job.state in RUNNABLE]
        raise AssertionError(
            f"after {max_jobs} attempts these jobs have not come to rest:\n{listed(restless)}"
        )

    def kill_worker(self, at: str = "end") -> None:
        """The worker of the next job is killed: its run falls silent, and counts after RETRY.

        At the `end` of the task, when all is done but the broker does not know it, or at its
        `start`. Called within a task, it ends there and then.
        """
        if at not in ("start", "end"):
            raise ValueError(f"a worker is killed at 'start' or 'end', not {at!r}")
        self._kills_at = at
        if self._worker is not None and self._worker.current is not None:
            raise WorkerKilled

    def lose_next_answer(self, command: str | None = None) -> None:
        """The next command is carried out, but its answer is lost with the connection.

        `command` names it: `ADDJOB`, `START`, `DONE`, `FAIL`, ...; by default it is any. Raises
        ValueError if no command has that name.
        """
        if command is not None and command.upper() not in COMMANDS:
            raise ValueError(f"no command has the name {command!r}")
        self._lost = "" if command is None else command.upper()

    def _ready_worker(self) -> HandWorker:
        """The worker, knowing all tasks there are now."""
        worker = self._worker
        if worker is not None and worker.current is not None:
            raise RuntimeError("a task is running: run_one() and run_until_idle() are for tests")
        if worker is None:
            self._workers += 1
            clock = Clock(lambda: self.broker.now_ms / 1000, self.advance)
            worker = HandWorker(self, {}, self._workers, self.seed, clock)
            self._worker = worker
        worker.tasks.clear()
        worker.tasks.update(self._tasks())
        return worker

    def _queues(self) -> list[str]:
        """The queues that have jobs for the worker."""
        node = self.broker.node
        full = {to_text(name) for name, q in list(node.queues.items()) if q.length}
        named = [name for app in list(App.made.values()) for name in app.queues]
        others = sorted(name for name in full if not self._has_letters(to_bytes(name)))
        return [name for name in dict.fromkeys([*named, *others]) if name in full]

    def _has_letters(self, queue: bytes) -> bool:
        """Whether it is a queue of dead letters."""
        node = self.broker.node
        if node.queues[queue].policy is not None:
            return False  # a tube: what is dead in it is not taken
        return queue in node.life.letters

    def _has_ready(self) -> bool:
        return bool(self._queues())

    # Looking

    def jobs(self, task: Task[..., Any] | None = None) -> list[TestJob]:
        """All jobs added in this test, or those of a task, in that order, also ended ones."""
        tasks = self._tasks()
        for noted in added_here(self.broker.node, self._notes.by_id):
            self._notes.by_id[noted.id] = noted
        found = [self._view(noted, tasks) for noted in list(self._notes.by_id.values())]
        return [job for job in found if task is None or job.task == task.name]

    def dead(self, queue: str | None = None) -> list[TestJob]:
        """The dead letters, oldest first: all, or those in or from a queue."""
        found = list(self._letters())
        return [job for job in found if queue is None or queue in (job.queue, job.origin)]

    def assert_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> TestJob:
        """Fails unless a job of the task was enqueued with these arguments; returns the latest.

        `unittest.mock.ANY` equals everything. Without arguments, any job of the task will do.
        """
        found = [job for job in self.jobs(task) if is_call(job, task, args, kwargs)]
        if found:
            return found[-1]
        wanted = _wanted(task, args, kwargs)
        raise AssertionError(f"{wanted} was not enqueued. There were:\n{listed(self.jobs())}")

    def assert_not_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> None:
        """Fails if a job of the task was enqueued with these arguments, or with any."""
        found = [job for job in self.jobs(task) if is_call(job, task, args, kwargs)]
        if found:
            raise AssertionError(f"{_wanted(task, args, kwargs)} was enqueued:\n{listed(found)}")

    def _noted(self, id: str, queue: str, body: bytes) -> Noted:
        return self._notes.by_id.setdefault(id, Noted(id, queue, body))

    def _view(self, noted: Noted, tasks: dict[str, Task[..., Any]] | None = None) -> TestJob:
        envelope = envelope_of(noted.body)
        known = self._tasks() if tasks is None else tasks
        task = known.get(envelope.task) if envelope is not None else None
        try:
            found: Result | None = self._client.result(noted.id)
        except NoJob:
            found = None
        job = self.broker.node.jobs.get(noted.id.encode())
        due_s = None if job is None else (int(job.qtime_ms) - self.broker.now_ms) / 1000
        return self._notes.view(noted, task, found, due_s)

    def _letters(self) -> Iterator[TestJob]:
        """The letters of each queue, in the order in which they died."""
        tasks = self._tasks()
        node = self.broker.node
        for queue in sorted(map(to_text, node.life.letters)):
            for row in self._client.dead_letters(queue):
                letter = self._client.dead_show(row.id)
                envelope = envelope_of(letter.body)
                args, kwargs = arguments(tasks.get(row.task), envelope)
                yield TestJob(
                    letter.id,
                    letter.task,
                    letter.queue,
                    args,
                    kwargs,
                    "dead",
                    attempt=letter.attempts,
                    of=letter.of,
                    cause=letter.cause,
                    reason=letter.reason,
                    detail=letter.detail.decode(errors="replace"),
                    origin=letter.origin,
                    headers=own(letter.headers),
                    body=letter.body,
                )

    # Looking at what clients say

    def loses(self, commands: list[Words]) -> bool:
        """Whether the answer to these commands is lost."""
        names = [str(command[0]) for command in commands]
        if self._lost is None or names[0] in QUIET:
            return False
        if self._lost and self._lost not in names:
            return False
        self._lost = None
        return True

    def seen(self, command: tuple[Arg, ...], reply: Reply) -> None:
        """A command was answered."""
        self._notes.seen(command, reply)

    def waits(self, command: tuple[Arg, ...]) -> Error | None:
        """What to raise for a wait that only the test can end."""
        if command[0] not in WAITING:
            return None
        id = to_text(as_bytes(command[1 if command[0] == "RESULT" else 2]))
        try:
            job = self._view(self._noted(id, "", b""))
        except ReplyError as error:
            return error
        here = self._worker.current if self._worker is not None else None
        is_here = here is not None and here.job.id == id
        return NotRun(f"job {id} {_needs(job, is_here)}", job_id=id)


def _needs(job: TestJob, is_here: bool) -> str:
    """What a test has to do before the job has a result; `is_here`: its task runs now."""
    what = f"({job.called()}) is {job.state}"
    if is_here:
        return f"{what}: its task has not returned yet"
    if job.state == "running":
        return (
            f"{what}, but its worker was killed: call tuque_app.advance() past its retry time, "
            "and tuque_app.run_until_idle() first"
        )
    what += ": in a test nothing runs by itself"
    if job.due_s is not None:
        return f"{what}: call tuque_app.advance({job.due_s:g}) and tuque_app.run_until_idle() first"
    return f"{what}: call tuque_app.run_until_idle() first"


def _wanted(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if not args and not kwargs:
        return f"a job of {task.name}"
    words = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{task.name}({', '.join(words)})"
