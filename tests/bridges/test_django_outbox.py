"""The outbox in a database of Django: rows that are committed become jobs by `tuque_relay`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from shop_app.configured import tasks_of

from tuque import Client
from tuque.outbox.relay import Relay
from tuque.worker.app.codec import decode

pytest.importorskip("django_tasks")
DUMMY = {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}


@pytest.fixture
def relay(_project: None, node: Any) -> Iterator[Relay]:
    """The relay of the project's database, whose tables are empty."""
    from django.core.management import call_command
    from django.db import connection

    from tuque.django.outbox.models import InboxRow, OutboxRow, SlotRow

    call_command("migrate", verbosity=0)
    for model in (InboxRow, OutboxRow, SlotRow):
        model.objects.all().delete()
    made = Relay(
        lambda: connection.get_new_connection(connection.get_connection_params()), node.url
    )
    yield made
    made.close()
    with node.wire() as wire:
        assert wire("DEBUG", "FLUSHALL") == b"OK"


def jobs_of(node: Any, *queues: str) -> list[tuple[str, str, list[Any]]]:
    """Queue, task and arguments of all jobs of the shop there: others share the node."""
    with Client(node.url) as client:
        found = client.getjob(*queues, count=100, nohang=True)
    bodies = [(job.queue, decode(job.body)) for job in found]
    return [(queue, body.task, body.args) for queue, body in bodies if "shop_app" in body.task]


def test_tasks_of_django_and_of_tuque_are_sent_after_the_commit(relay: Relay, node: Any) -> None:
    import shop_app.jobs as jobs
    from django.db import transaction
    from shop_app import tasks

    from tuque.django import outbox

    with transaction.atomic():
        first = outbox.add(outbox.call(tasks.add.using(queue_name="mail"), 1, b=2))
        second = outbox.add(jobs.own.call())
        assert first != second
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        outbox.add(outbox.call(tasks.add, 3))
        raise ZeroDivisionError
    assert relay.drain() == 2
    assert jobs_of(node, "mail", "own", "default") == [
        ("mail", "shop_app.tasks.add", [1]),
        ("own", "shop_app.jobs.own", []),
    ]


def test_a_task_of_another_backend_is_refused(_project: None) -> None:
    from django.test import override_settings
    from shop_app import tasks

    from tuque.django import outbox

    both = {"default": tasks_of(), "dummy": DUMMY}
    with override_settings(TASKS=both), pytest.raises(TypeError, match="is no task of Tuque"):
        outbox.call(tasks.add.using(backend="dummy"), 1)
    with pytest.raises(TypeError, match="Unsupported type"):
        outbox.call(tasks.add, object())


def test_effects_happen_once(relay: Relay) -> None:
    from django.db import transaction

    from tuque.django import outbox

    with transaction.atomic():
        assert outbox.once("D-1")
    with transaction.atomic():
        assert not outbox.once("D-1") and outbox.once("D-2")


def test_the_check_fails_while_a_row_waits_for_too_long(
    relay: Relay, node: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from django.core.management import call_command
    from shop_app import tasks

    from tuque.django import outbox
    from tuque.django.outbox.models import OutboxRow

    def check() -> int:
        with pytest.raises(SystemExit) as ended:
            call_command("tuque_relay", "--check", "--url", node.url)
        return int(str(ended.value.code))

    outbox.add(outbox.call(tasks.add, 1))
    assert check() == 0
    OutboxRow.objects.update(created=0)
    assert check() == 1
    relay.drain()
    assert check() == 0
    assert "1 rows wait" in capsys.readouterr().out


def test_the_migrations_are_those_of_the_models(_project: None) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "tuque", "tuque_outbox", check=True, dry_run=True)
