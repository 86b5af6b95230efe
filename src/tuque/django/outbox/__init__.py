"""The outbox in a database of Django: `INSTALLED_APPS += ["tuque.django.outbox"]`.

A row that is added in a transaction becomes a job once that is committed. `manage.py tuque_relay`
sends.
"""

from __future__ import annotations

from typing import Any, Final

from tuque.outbox.rows import CHANNEL, now_ms, row_of
from tuque.worker.app.enqueue import Call

__all__ = ["add", "call", "job", "once"]

DEFAULT: Final = "default"


def call(task: Any, /, *args: Any, **kwargs: Any) -> Call[Any]:
    """A call of a task of Django, for `add`; TypeError for arguments that JSON has not."""
    from tuque.django.backend import TuqueBackend

    backend = task.get_backend()
    if not isinstance(backend, TuqueBackend):
        raise TypeError(f"{task.module_path} is no task of Tuque, but of {type(backend)}")
    return backend.call(task, args, kwargs)


def add(call: Call[Any], *, group: str = "", using: str = DEFAULT) -> str:
    """Adds a call of a task of Django or of Tuque in the transaction; returns its ticket.

    Rows of one `group` become jobs in their order.
    """
    from django.db import connections

    from tuque.django.outbox.models import OutboxRow

    row = row_of(call, group)
    OutboxRow.objects.using(using).create(**row._asdict())
    if connections[using].vendor == "postgresql":
        with connections[using].cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")
    return row.ticket


def job(ticket: str, *, using: str = DEFAULT) -> str | None:
    """The id of the job of a row, for `get_result`; None until it is sent, and a day after that."""
    from tuque.django.outbox.models import OutboxRow

    row = OutboxRow.objects.using(using).filter(ticket=ticket, sent__isnull=False).first()
    return None if row is None else str(row.job)


def once(job_id: str, *, using: str = DEFAULT) -> bool:
    """Whether this job has not been here: its effects in this transaction happen once."""
    from tuque.django.outbox.models import InboxRow

    _, is_new = InboxRow.objects.using(using).get_or_create(
        job=str(job_id), defaults={"at": now_ms()}
    )
    return bool(is_new)
