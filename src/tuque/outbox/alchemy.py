"""The outbox for SQLAlchemy 2: its tables, `add` in a session, and `once` for the other half."""

from __future__ import annotations

from typing import Any, Final

from tuque.errors import ConfigError
from tuque.outbox.rows import CHANNEL, INBOX, SLOTS, TABLE, now_ms, row_of
from tuque.worker.app.enqueue import Call

try:
    from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text
    from sqlalchemy import text as sql
    from sqlalchemy.dialects import postgresql, sqlite
except ImportError:
    raise ConfigError(
        "tuque.outbox.alchemy needs SQLAlchemy: pip install 'tuque[sqlalchemy]'"
    ) from None

NOTIFY: Final = sql(f"NOTIFY {CHANNEL}")


class Outbox:
    """The tables of an outbox in the MetaData of the program, which creates or migrates them.

    `slots`: so many relays can share it; rows of one group stay with one of them.
    """

    def __init__(self, metadata: MetaData, slots: int = 1) -> None:
        if slots < 1:
            raise ValueError(f"slots is 1 or more, not {slots}")
        self.slots = slots
        key = BigInteger().with_variant(Integer, "sqlite")
        self.table = Table(
            TABLE,
            metadata,
            Column("id", key, primary_key=True, autoincrement=True),
            Column("ticket", Text, nullable=False, unique=True),
            Column("queue", Text, nullable=False),
            Column("task", Text, nullable=False),
            Column("body", LargeBinary, nullable=False),
            Column("options", Text, nullable=False),
            Column("group_key", Text, nullable=False),
            Column("slot", Integer, nullable=False),
            Column("created", BigInteger, nullable=False),
            Column("not_before", BigInteger, nullable=False, server_default="0"),
            Column("batch", BigInteger),
            Column("job", Text, nullable=False, server_default=""),
            Column("sent", BigInteger),
            Column("tries", Integer, nullable=False, server_default="0"),
            Column("error", Text, nullable=False, server_default=""),
        )
        unsent = self.table.c.sent.is_(None)
        Index(
            f"{TABLE}_unsent", self.table.c.slot, self.table.c.id,
            postgresql_where=unsent, sqlite_where=unsent,
        )  # fmt: skip
        Index(f"{TABLE}_sent", self.table.c.slot, self.table.c.sent)
        Table(
            SLOTS,
            metadata,
            Column("slot", Integer, primary_key=True, autoincrement=False),
            Column("batch", BigInteger, nullable=False),
            Column("attempt", Text, nullable=False),
            Column("node", Text, nullable=False),
            Column("owner", Text, nullable=False),
            Column("mark", Text, nullable=False),
        )
        self.inbox = Table(
            INBOX,
            metadata,
            Column("job", Text, primary_key=True),
            Column("at", BigInteger, nullable=False),
        )

    def add(self, session: Any, call: Call[Any], *, group: str = "") -> str:
        """Adds the call in the transaction of a Session or Connection; its ticket.

        It is a job once that is committed. Rows of one `group` become jobs in their order.
        TypeError for arguments that would not arrive.
        """
        row = row_of(call, group, self.slots)
        session.execute(self.table.insert(), row._asdict())
        if is_postgres(session):
            session.execute(NOTIFY)
        return row.ticket

    def job(self, session: Any, ticket: str) -> str | None:
        """The id of the job of a row; None until it is sent, and a day after that."""
        asked = self.table.select().where(self.table.c.ticket == ticket)
        row = session.execute(asked).first()
        return None if row is None or row.sent is None else str(row.job)

    def once(self, session: Any, job_id: str) -> bool:
        """Whether this job has not been here: its effects in this transaction happen once.

        False: they are committed already, by a run of the job whose end the broker did not learn.
        """
        insert = postgresql.insert if is_postgres(session) else sqlite.insert
        made = insert(self.inbox).values(job=str(job_id), at=now_ms()).on_conflict_do_nothing()
        return session.execute(made.returning(self.inbox.c.job)).first() is not None


def is_postgres(session: Any) -> bool:
    """Whether a Session or Connection is of PostgreSQL."""
    dialect = getattr(session, "dialect", None) or session.get_bind().dialect
    return bool(dialect.name == postgresql.dialect.name)


def connector(engine: Any) -> Any:
    """What makes connections of the driver, for a relay."""
    if engine.dialect.name == postgresql.dialect.name:
        import psycopg

        words = engine.url.translate_connect_args(username="user", database="dbname")
        return lambda: psycopg.connect(**words, **engine.url.query)
    import sqlite3

    return lambda: sqlite3.connect(engine.url.database, check_same_thread=False)
