"""A node with tubes and a clock set by hand, for tests of SPEC T."""

from __future__ import annotations

import pytest

from tuque.core.copies.ack import on_ackjob
from tuque.core.dispatch.timers import tick
from tuque.core.model.task import Task
from tuque.core.node.node import GOT_JOBS, Node
from tuque.core.queues.deliver import serve_ready
from tuque.core.queues.procedures import check
from tuque.core.records.events import Events
from tuque.server.replies.errors import iproto_words
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations

START_MS = 1_700_000_000_000


class Home:
    """A node with tubes and a clock set by hand."""

    def __init__(self) -> None:
        self.n = Node(b"a" * 40, b"seed", START_MS)
        self.n.events = Events(10_000, 1)

    @property
    def t(self) -> Tubes:
        return tubes_of(self.n)

    def make(self, type: str, name: str = "t", **options: object) -> Tube:
        o = TubeOptions()
        for word, value in options.items():
            setattr(o, word, value)
        return admin.create_tube(self.n, self.t, name.encode(), type.encode(), o, b"user")

    def put(self, tube: Tube, body: bytes = b"body", utube: bytes | None = None, **o: int) -> Task:
        spec = PutSpec()
        spec.utube = utube
        for word, value in o.items():
            setattr(spec, word, value)
        task = operations.put(self.n, self.t, tube, body, 0, spec, 1, 1)
        assert task is not None
        return task

    def take(self, tube: Tube, client: int = 1) -> int | None:
        task = operations.take(self.n, self.t, tube, client)
        return None if task is None else task.number

    def ack(self, tube: Tube, number: int, client: int = 1, token: int = 0) -> Task:
        return operations.ack(self.n, self.t, tube, client, number, token)

    def ack_all(self, tube: Tube) -> None:
        """Everything taken with GETJOB is done."""
        for task in list(tube.tasks.values()):
            assert on_ackjob(self.n, task.id)

    def pass_ms(self, ms: int) -> None:
        self.n.now_ms += ms
        tick(self.n)
        serve_ready(self.n)
        check(self.n)

    def woken(self) -> list[tuple[int, int | None]]:
        serve_ready(self.n)
        found: list[tuple[int, int | None]] = []
        for wake in self.n.wakes:
            job = wake.jobs[0] if wake.why == GOT_JOBS else None
            found.append((wake.client, job.number if isinstance(job, Task) else None))
        self.n.wakes = []
        return found

    def calls(self, tube: Tube) -> dict[str, int]:
        return admin.statistics(self.t, tube)["calls"]


def refused(code: int, text: str, call: object, *args: object) -> None:
    """The call is refused with that code and text, and has changed nothing (T13.2)."""
    assert callable(call)
    with pytest.raises(TubeError) as e:
        call(*args)
    told = iproto_words(e.value)
    assert (told.code, told.text.decode()) == (code, text)
