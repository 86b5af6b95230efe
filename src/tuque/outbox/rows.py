"""A call as a row of the outbox, and the SQL of the tables, for PostgreSQL and SQLite.

Decides what a relay takes next, and what it may write: only the relay that owns a slot writes
there. Times are unix ms. Connections are those of psycopg or sqlite3, without a transaction open.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from tuque.errors import ConfigError
from tuque.worker.app.enqueue import Adding, Call

TABLE: Final = "tuque_outbox"
SLOTS: Final = "tuque_outbox_slot"
INBOX: Final = "tuque_inbox"
CHANNEL: Final = "tuque_outbox"  # of NOTIFY
KEEP_MS: Final = 86_400_000  # of rows that were sent
SWEPT: Final = 1_000  # rows deleted at a time
WAIT_MAX_S: Final = 300  # until a refused row is tried again
ERROR_CHARS: Final = 500
LOST_SLOT: Final = "another relay has taken slot %d: start this one again if it should not have"


class Row(NamedTuple):
    """What `add` writes of a call."""

    ticket: str
    queue: str
    task: str
    body: bytes
    options: str  # JSON: those of STAGE
    group_key: str
    slot: int
    created: int


class Unsent(NamedTuple):
    """A row that is to be sent."""

    id: int
    queue: str
    body: bytes
    options: dict[str, Any]
    group_key: str
    tries: int


class Slot(NamedTuple):
    """What the database says of a slot."""

    batch: int  # the last one
    attempt: str  # in which its jobs are staged
    node: str  # which knows the numbers of batches
    mark: str  # of these numbers


class LostSlot(Exception):
    """Another relay owns the slot now: this one must not go on."""


def row_of(call: Call[Any], group: str = "", slots: int = 1) -> Row:
    """A call as a row; its errors, such as a wrong argument, are raised here, in the transaction.

    Rows of one `group` keep their order. `slots`: so many relays can share the table.
    """
    if not isinstance(call, Call):
        raise TypeError(f"an outbox takes a call of a task, as task.call(...), not {call!r}")
    adding = Adding(call)
    body, options = adding.for_stage()
    queue = call.options.queue
    slot = zlib.crc32((group or queue).encode()) % slots
    words = json.dumps(options, separators=(",", ":"))
    name = call.task.name
    return Row(str(uuid.uuid4()), queue, name, body, words, group, slot, now_ms())


def now_ms() -> int:
    """The time in unix ms."""
    return time.time_ns() // 1_000_000


def new_mark() -> str:
    """A word that no other numbers of batches have."""
    return uuid.uuid4().hex[:12]


class Tables:
    """The tables over one connection of a driver."""

    def __init__(self, connection: Any) -> None:
        """ConfigError for a driver that is neither psycopg nor sqlite3."""
        self.connection = connection
        drivers = {one.__module__.partition(".")[0] for one in type(connection).__mro__}
        self.is_postgres = "psycopg" in drivers
        if not self.is_postgres and "sqlite3" not in drivers:
            raise ConfigError(
                f"an outbox is in PostgreSQL by psycopg, or in SQLite: {connection!r} is neither"
            )
        if self.is_postgres:
            connection.autocommit = True
        else:
            connection.isolation_level = None
            connection.execute("PRAGMA busy_timeout = 10000")

    def run(self, sql: str, *values: Any) -> Any:
        """Runs a statement; its cursor. `%s` stands for a value."""
        cursor = self.connection.cursor()
        cursor.execute(sql if self.is_postgres else sql.replace("%s", "?"), values)
        return cursor

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Runs a statement for each row."""
        cursor = self.connection.cursor()
        cursor.executemany(sql if self.is_postgres else sql.replace("%s", "?"), list(rows))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing."""
        self.run("BEGIN" if self.is_postgres else "BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    # ---- Slots

    def own(self, slot: int, owner: str) -> Slot:
        """Takes the slot, whoever had it."""
        with self.transaction():
            self.run(
                "INSERT INTO tuque_outbox_slot (slot, batch, attempt, node, owner, mark) "
                "VALUES (%s, 0, '', '', '', %s) ON CONFLICT (slot) DO NOTHING",
                slot, new_mark(),
            )  # fmt: skip
            self.run("UPDATE tuque_outbox_slot SET owner = %s WHERE slot = %s", owner, slot)
            sql = "SELECT batch, attempt, node, mark FROM tuque_outbox_slot WHERE slot = %s"
            return Slot(*self.run(sql, slot).fetchone())

    def renumber(self, slot: int, owner: str) -> str:
        """Batches begin at 1 again, under another mark, which is returned."""
        mark = new_mark()
        with self.transaction():
            self._changed(
                slot,
                "UPDATE tuque_outbox_slot SET batch = 0, mark = %s WHERE slot = %s AND owner = %s",
                mark, slot, owner,
            )  # fmt: skip
        return mark

    def lock(self, slot: int) -> bool:
        """Whether no other relay that lives has the slot; in SQLite that is not known."""
        if not self.is_postgres:
            return True
        asked = self.run("SELECT pg_try_advisory_lock(hashtext(%s), %s)", TABLE, slot)
        return bool(asked.fetchone()[0])

    def at_node(self, slot: int, owner: str, node: str) -> None:
        """The slot stays with that node."""
        with self.transaction():
            self._changed(
                slot,
                "UPDATE tuque_outbox_slot SET node = %s WHERE slot = %s AND owner = %s",
                node,
                slot,
                owner,
            )

    def _changed(self, slot: int, sql: str, *values: Any) -> None:
        """Runs an update of the slot; LostSlot if it is another one's."""
        if self.run(sql, *values).rowcount != 1:
            raise LostSlot(LOST_SLOT % slot)

    # ---- Rows

    def fresh(self, slot: int, most: int) -> list[Unsent]:
        """The next rows by id, without those that wait, and what follows these in their group."""
        now = now_ms()
        return self._rows(
            "SELECT id, queue, body, options, group_key, tries FROM tuque_outbox "
            "WHERE slot = %s AND sent IS NULL AND batch IS NULL AND not_before <= %s "
            "AND (group_key = '' OR group_key NOT IN (SELECT group_key FROM tuque_outbox "
            "WHERE slot = %s AND sent IS NULL AND batch IS NULL AND not_before > %s)) "
            "ORDER BY id LIMIT %s",
            slot, now, slot, now, most,
        )  # fmt: skip

    def of_batch(self, slot: int, batch: int) -> list[Unsent]:
        """The unsent rows of a batch."""
        return self._rows(
            "SELECT id, queue, body, options, group_key, tries FROM tuque_outbox "
            "WHERE slot = %s AND batch = %s AND sent IS NULL ORDER BY id",
            slot, batch,
        )  # fmt: skip

    def _rows(self, sql: str, *values: Any) -> list[Unsent]:
        found = self.run(sql, *values).fetchall()
        return [Unsent(i, q, bytes(b), json.loads(o), g, t) for i, q, b, o, g, t in found]

    def begin_batch(
        self, slot: int, owner: str, batch: int, attempt: str, jobs: dict[int, str]
    ) -> None:
        """The rows have this number, and the ids of their jobs, also after a crash.

        `attempt` is where the jobs are staged. The batch is the next one, or the last one again.
        """
        with self.transaction():
            self._changed(
                slot,
                "UPDATE tuque_outbox_slot SET batch = %s, attempt = %s "
                "WHERE slot = %s AND owner = %s AND batch IN (%s, %s)",
                batch, attempt, slot, owner, batch - 1, batch,
            )  # fmt: skip
            if self.is_postgres and jobs:
                self.run(
                    "UPDATE tuque_outbox SET batch = %s, job = made.job "
                    "FROM unnest(%s::bigint[], %s::text[]) AS made (id, job) "
                    "WHERE tuque_outbox.id = made.id",
                    batch, list(jobs), list(jobs.values()),
                )  # fmt: skip
            else:
                rows = [(batch, job, id) for id, job in jobs.items()]
                self.many("UPDATE tuque_outbox SET batch = %s, job = %s WHERE id = %s", rows)

    def sent(self, slot: int, owner: str, batch: int) -> None:
        """The batch is published."""
        with self.transaction():
            self._changed(
                slot,
                "UPDATE tuque_outbox_slot SET batch = batch WHERE slot = %s AND owner = %s",
                slot,
                owner,
            )
            self.run(
                "UPDATE tuque_outbox SET sent = %s, error = '' WHERE slot = %s AND batch = %s "
                "AND sent IS NULL",
                now_ms(), slot, batch,
            )  # fmt: skip

    def refused(self, row: Unsent, why: str) -> None:
        """The broker refuses the row: it is tried again later."""
        wait_s = min(WAIT_MAX_S, 2**row.tries)
        self.run(
            "UPDATE tuque_outbox SET error = %s, tries = tries + 1, not_before = %s WHERE id = %s",
            why[:ERROR_CHARS], now_ms() + 1000 * wait_s, row.id,
        )  # fmt: skip

    def sweep(self, slot: int) -> int:
        """Deletes rows that were sent a day ago, 1,000 at most; how many."""
        asked = self.run(
            "DELETE FROM tuque_outbox WHERE id IN (SELECT id FROM tuque_outbox "
            "WHERE slot = %s AND sent < %s ORDER BY id LIMIT %s)",
            slot, now_ms() - KEEP_MS, SWEPT,
        )  # fmt: skip
        return int(asked.rowcount)

    def waiting(self) -> tuple[int, float]:
        """How many rows are unsent, and the age of the oldest in seconds."""
        count, oldest = self.run(
            "SELECT count(*), min(created) FROM tuque_outbox WHERE sent IS NULL"
        ).fetchone()
        return int(count), 0.0 if oldest is None else max(0.0, (now_ms() - oldest) / 1000)
