"""Clients that put, take and ack in one tube for as long as they are let, and what they may claim.

Each worker is a thread with a client of its own; it goes on over any error, and notes what it knows
to be done and what it cannot know. `judge` says what no history may hold.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Self

from tuque import Client
from tuque.client.commands.tubes import TubeTask
from tuque.errors import ConnectionError, Error, NoReplica, NotTaken

WAIT_S = 0.5


class Load:
    """Producers and consumers of one tube, over the nodes of the URL."""

    def __init__(self, url: str, tube: str, *, producers: int = 2, consumers: int = 3) -> None:
        self.url = url
        self.tube = tube
        self.put: dict[str, int] = {}  # bodies whose put was answered, and their numbers
        self.put_at: list[float] = []  # when they were answered
        self.maybe_put: set[str] = set()
        self.takes: list[tuple[int, int, str]] = []  # number, token, body
        self.acked: list[str] = []  # bodies whose ack was answered
        self.done: set[str] = set()  # the same
        self.maybe_acked: set[str] = set()
        self.not_taken = 0  # the task was somebody else's again when it was acked
        self.back: list[str] = []  # taken again after the ack was answered
        self.errors: Counter[str] = Counter()
        self.failed: list[BaseException] = []
        self._lock = threading.Lock()
        self._no_more_puts = threading.Event()
        self._stop = threading.Event()
        self._producers = producers
        kinds: list[tuple[Callable[[Client, int], None], int]] = []
        kinds += [(self._produce, number) for number in range(producers)]
        kinds += [(self._consume, number) for number in range(consumers)]
        self._threads = [threading.Thread(target=self._run, args=kind) for kind in kinds]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._no_more_puts.set()
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def end_puts(self) -> None:
        """No more puts; returns when all have been answered."""
        self._no_more_puts.set()
        for thread in self._threads[: self._producers]:
            thread.join(60)
            assert not thread.is_alive(), "a producer hangs"

    def stop(self) -> None:
        """Everybody ends."""
        self._no_more_puts.set()
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        assert not self.failed, self.failed

    def counts(self) -> tuple[int, int]:
        """So many puts and acks were answered."""
        with self._lock:
            return len(self.put), len(self.acked)

    def longest_gap_s(self, since: float) -> float:
        """The longest time without an answered put, from that instant on."""
        with self._lock:
            at = [since, *(one for one in self.put_at if one > since)]
        return max((b - a for a, b in pairwise(at)), default=0.0)

    def _run(self, work: Callable[[Client, int], None], number: int) -> None:
        try:
            with Client(self.url, timeout=10.0) as client:  # a slow machine is no dead one
                work(client, number)
        except BaseException as error:
            self.failed.append(error)

    def _produce(self, client: Client, producer: int) -> None:
        tube, serial = client.tube(self.tube), 0
        while not self._no_more_puts.is_set():
            body = f"{producer}-{serial}"
            try:
                task = tube.put(body)
            except Error as error:
                self._on_error(error)
                if is_unsure(error):
                    with self._lock:
                        self.maybe_put.add(body)
                    serial += 1
                continue
            assert task is not None
            with self._lock:
                self.put[body] = task.number
                self.put_at.append(time.monotonic())
            serial += 1

    def _consume(self, client: Client, _: int) -> None:
        tube = client.tube(self.tube)
        while not self._stop.is_set():
            try:
                task = tube.take(WAIT_S)
            except Error as error:
                self._on_error(error)
                continue
            if task is not None:
                self._finish(task, lambda one: tube.ack(one))

    def _finish(self, task: TubeTask, ack: Callable[[TubeTask], object]) -> None:
        body = str(task.value)
        with self._lock:
            self.takes.append((task.number, task.token, body))
            if body in self.done:
                self.back.append(body)
        try:
            ack(task)
        except NotTaken:
            with self._lock:
                self.not_taken += 1
        except Error as error:
            self._on_error(error)
            with self._lock:
                self.maybe_acked.add(body)
        else:
            with self._lock:
                self.acked.append(body)
                self.done.add(body)

    def _on_error(self, error: Error) -> None:
        with self._lock:
            self.errors[type(error).__name__] += 1

    # What must hold of any history

    def judge(self) -> None:
        """Nothing acknowledged twice or after its ack, no take twice, no number for two tasks."""
        twice = [body for body, count in Counter(self.acked).items() if count > 1]
        assert not twice, f"acked twice: {twice[:5]}"
        assert not self.back, f"taken again after its ack was answered: {self.back[:5]}"
        takes = [take for take, count in Counter(t[:2] for t in self.takes).items() if count > 1]
        assert not takes, f"one task taken twice under one token: {takes[:5]}"
        bodies: dict[int, str] = {number: body for body, number in self.put.items()}
        assert len(bodies) == len(self.put), "one number was given to two tasks"
        for number, _, body in self.takes:
            assert bodies.setdefault(number, body) == body, f"number {number} is of two tasks"

    def judge_done(self) -> None:
        """All that was put is acknowledged; to be asked when the tube is empty."""
        self.judge()
        done = set(self.acked) | self.maybe_acked
        lost = sorted(set(self.put) - done)
        assert not lost, f"{len(lost)} of {len(self.put)} acknowledged puts were lost: {lost[:5]}"
        strange = done - set(self.put) - self.maybe_put
        assert not strange, f"nobody put {sorted(strange)[:5]}"


def is_unsure(error: Error) -> bool:
    """Whether the call may have been done all the same."""
    return (isinstance(error, ConnectionError | NoReplica) and not error.retryable) or isinstance(
        error, NoReplica
    )
