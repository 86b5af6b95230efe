"""The relay: rows of the outbox become jobs, each once, one batch of a slot at a time.

A batch has its number in the database before it is published under that number, so that a crash
between the two leaves a number that the node knows, or does not. spec/model/outbox.py walks through
all crashes. One node knows the versions: the relay stays with it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tuque.client.retry import Retry
from tuque.client.sync import Client
from tuque.client.sync.client import Pipeline
from tuque.client.url import parse, url_of
from tuque.errors import ConfigError, Error, FewCopies, NoStage, ReplyError
from tuque.logtext import facts
from tuque.outbox.rows import CHANNEL, LostSlot, Tables, Unsent

log: Final = logging.getLogger("tuque.outbox")

MOST: Final = 500  # rows of a batch
STAGE_MS: Final = 600_000
FIRST_POLL_S: Final = 0.2
LAST_POLL_S: Final = 2.0
AGAIN_S: Final = 1.0  # after an error of the broker or the database
SWEEP_S: Final = 60.0
NO_NODE: Final = (
    "no node of %s has the id %s, which knows what slot %d has sent: bring it back, or say --move"
)
FOR_ROW: Final = (ReplyError, TypeError, ValueError)  # what STAGE says of one row


class Relay:
    """The relay of one slot. `connect` makes a connection of the driver."""

    def __init__(
        self, connect: Callable[[], Any], url: str, name: str = "default", slot: int = 0
    ) -> None:
        """`name` tells the outboxes of several databases apart, at the broker."""
        self.connect = connect
        self._url = url
        self._name = f"outbox.{name}.{slot}"
        self._app = ""
        self._slot = slot
        self._owner = uuid.uuid4().hex
        self._ended = threading.Event()
        self._tables: Tables | None = None
        self._client: Client | None = None
        self._batch = 0
        self._swept_s = 0.0
        self.sent = 0
        self.refused = 0

    def stop(self) -> None:
        """End `run` after the current batch. A signal handler may call it."""
        self._ended.set()

    def run(self, moves: bool = False) -> None:
        """Relays until `stop`; LostSlot if another relay takes the slot.

        Errors of the database and the broker are logged, and it goes on. With `moves` another node
        may take over, where one batch may become jobs a second time.
        """
        poll_s = FIRST_POLL_S
        while not self._ended.is_set():
            try:
                if self._tables is None or self._client is None:
                    self._open(moves)
                    moves = False
                if self.step():
                    poll_s = FIRST_POLL_S
                    continue
                self._wait(poll_s)
                poll_s = min(LAST_POLL_S, poll_s * 2)
            except (LostSlot, ConfigError):
                self.close()
                raise
            except Exception as err:  # of any driver
                log.warning(
                    "the outbox waits: %(reason)s", facts("outbox_waits", reason=str(err).strip())
                )
                self.close()
                self._ended.wait(AGAIN_S)
        self.close()

    def drain(self) -> int:
        """Sends what is there now; how many rows."""
        before = self.sent
        if self._tables is None:
            self._open(False)
        while self.step():
            pass
        return self.sent - before

    def close(self) -> None:
        """Closes both connections; what is unfinished comes first at the next start."""
        client, self._client = self._client, None
        tables, self._tables = self._tables, None
        if client is not None:
            client.close()
        if tables is not None:
            with suppress(Exception):  # the database is away
                tables.connection.close()

    # ---- The start

    def _open(self, moves: bool) -> None:
        tables = Tables(self.connect())
        self._tables = tables
        while not tables.lock(self._slot):
            if self._ended.wait(AGAIN_S):
                return
        slot = tables.own(self._slot, self._owner)
        self._batch = slot.batch
        self._app = f"{self._name}.{slot.mark}"
        self._client, id = at_node(self._url, "" if moves else slot.node, self._slot)
        if id != slot.node:
            tables.at_node(self._slot, self._owner, id)
        if tables.is_postgres:
            tables.run(f"LISTEN {CHANNEL}")
        unfinished = tables.of_batch(self._slot, self._batch)
        if unfinished:
            self._publish(unfinished, slot.attempt)
        self._check_numbers(tables)
        log.info(
            "slot %(slot)d of the outbox is relayed to %(node)s",
            facts("outbox_relayed", slot=self._slot, node=self._client.node),
        )

    def _check_numbers(self, tables: Tables) -> None:
        """Uses up a number: if the node has it, the database is an older one, put back.

        Its next batches would count as published, so it gets other numbers. Nothing is unfinished.
        """
        assert self._client is not None
        tables.begin_batch(self._slot, self._owner, self._batch + 1, "", {})
        self._batch += 1
        if self._client.publish(self._app, self._batch, self._app) < 0:
            self._app = f"{self._name}.{tables.renumber(self._slot, self._owner)}"
            self._batch = 0

    # ---- A batch

    def step(self) -> bool:
        """Sends one batch; False if there is none."""
        tables = self._tables
        if tables is None:
            return False
        rows = tables.fresh(self._slot, MOST)
        if not rows:
            self._sweep(tables)
            return False
        attempt, rows, jobs = self._stage(rows)
        if not rows:
            return True
        tables.begin_batch(self._slot, self._owner, self._batch + 1, attempt, jobs)
        self._batch += 1
        self._publish(rows, attempt)
        return True

    def _stage(self, rows: list[Unsent]) -> tuple[str, list[Unsent], dict[int, str]]:
        """Stages the rows in a new attempt: those that the broker takes, and the ids of their jobs.

        Others are refused.
        """
        assert self._client is not None and self._tables is not None
        attempt = uuid.uuid4().hex
        left = rows
        while True:
            answers = self._pipeline(left, attempt).execute(raise_on_error=False)
            bad = {
                row.id: (row, answer)
                for row, answer in zip(left, answers, strict=True)
                if isinstance(answer, Exception)
            }
            if not bad:
                return attempt, left, ids_of(left, answers)
            for row, err in bad.values():
                if not isinstance(err, ReplyError) or err.retryable:
                    raise err  # it says nothing of this row
                self.refused += 1
                self._tables.refused(row, str(err))
            groups = {row.group_key for row, _ in bad.values() if row.group_key}
            left = [row for row in left if row.id not in bad and row.group_key not in groups]
            if not left:
                return attempt, [], {}
            attempt = uuid.uuid4().hex  # without what comes after a refused row of its group

    def _pipeline(self, rows: list[Unsent], attempt: str) -> Pipeline:
        """What stages the rows."""
        assert self._client is not None
        made = self._client.pipeline()
        for row in rows:
            made.stage_id(
                self._app, attempt, row.queue, row.body, ttl_ms=STAGE_MS, **options_in(row)
            )
        return made

    def _publish(self, rows: list[Unsent], attempt: str) -> None:
        """Publishes the batch whose number the rows have, however often it takes."""
        assert self._client is not None and self._tables is not None
        while True:
            try:
                self._client.publish(self._app, self._batch, self._app, [attempt])
                break
            except FewCopies:
                break  # all jobs are published
            except NoStage:
                attempt = self._staged_again(rows)
        self._tables.sent(self._slot, self._owner, self._batch)
        self.sent += len(rows)

    def _staged_again(self, rows: list[Unsent]) -> str:
        """Stages exactly the rows of the batch; raises if one of them is refused.

        The old attempt is gone for good, so the ids of its jobs are no longer true.
        """
        assert self._tables is not None
        attempt = uuid.uuid4().hex
        jobs = ids_of(rows, self._pipeline(rows, attempt).execute())
        self._tables.begin_batch(self._slot, self._owner, self._batch, attempt, jobs)
        return attempt

    # ---- Between batches

    def _wait(self, seconds: float) -> None:
        """Until a commit is announced, or so long."""
        assert self._tables is not None
        if not self._tables.is_postgres:
            self._ended.wait(seconds)
            return
        for _ in self._tables.connection.notifies(timeout=seconds, stop_after=1):
            pass

    def _sweep(self, tables: Tables) -> None:
        if time.monotonic() - self._swept_s > SWEEP_S:
            self._swept_s = time.monotonic()
            while tables.sweep(self._slot) and not self._ended.is_set():
                pass


def options_in(row: Unsent) -> Any:
    """The options of STAGE in a row."""
    words = dict(row.options)
    if "backoff" in words:
        words["backoff"] = tuple(words["backoff"])
    return words


def ids_of(rows: list[Unsent], answers: list[Any]) -> dict[int, str]:
    """The id of the job of each row."""
    return {row.id: str(id) for row, id in zip(rows, answers, strict=True)}


def at_node(url: str, id: str, slot: int) -> tuple[Client, str]:
    """A client of the node with that id, or of the first that answers if there is none yet.

    ConfigError if all that is known answers, and none is it; what a client raises otherwise.
    """
    settings = parse(url)
    places = {(seed.host, seed.port) for seed in settings.seeds}
    asked: set[tuple[str, int]] = set()
    failure: Error | None = None
    while places - asked:
        place = min(places - asked)
        asked.add(place)
        client = Client(url_of(settings, *place), discover=False, retry=Retry(attempts=1))
        try:
            hello = client.hello()
        except Error as err:
            failure = err
            client.close()
            continue
        if hello.id == id or not id:
            return client, hello.id
        places |= {(node.host, node.port) for node in hello.nodes}
        client.close()
    raise failure or ConfigError(NO_NODE % (settings.seeds, id, slot))
