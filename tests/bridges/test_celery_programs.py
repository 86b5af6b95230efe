"""Celery's programs: pools, beat, remote control, Flower; none shows the password of a node."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery_lab import Shop
from test_celery_shop import a_day_of

from tuque.cli.programs import free_port
from tuque.testing.nodes import TestNode
from until import until

PASSWORD = "hunter2-of-the-node"
POOLS = {"solo": [], "threads": ["-c", "2"], "gevent": ["-c", "10"], "eventlet": ["-c", "10"]}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "node").mkdir()
    with TestNode(tmp_path / "node") as node:
        made = Shop(tmp_path / "shop", node.url)
        yield made
        made.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Shop]:
    """A shop at a node that has a password."""
    (tmp_path / "node").mkdir()
    with TestNode(tmp_path / "node", "--set", f"requirepass={PASSWORD}") as node:
        made = Shop(tmp_path / "shop", node.url.replace("://", f"://:{PASSWORD}@"))
        yield made
        made.close()


def celery(shop: Shop, *words: str, code: int = 0) -> str:
    """What `celery -A shop WORDS` says."""
    ran = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "shop", *words],
        cwd=shop.place,
        env=shop.env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr + shop.texts()
    return ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_a_day_of_the_shop_in_each_pool(shop: Shop, pool: str) -> None:
    if pool in ("gevent", "eventlet"):
        pytest.importorskip(pool, reason=f"{pool} is not installed: pip install {pool}")
    a_day_of(shop, "-P", pool, *POOLS[pool])


@pytest.mark.slow
def test_remote_control_works_and_no_program_shows_the_password(guarded: Shop) -> None:
    worker = guarded.worker("-c", "1")
    url = guarded.env["SHOP_URL"]
    shown = [
        celery(guarded, "report"),
        celery(guarded, "status"),
        celery(guarded, "inspect", "ping"),
        celery(guarded, "inspect", "conf"),
        celery(guarded, "inspect", "report"),
        celery(guarded, "inspect", "stats"),
        celery(guarded, "control", "rate_limit", "shop.price", "1/s"),
        celery(guarded, "control", "add_consumer", "more"),
        celery(guarded, "inspect", "active_queues"),
        celery(guarded, "purge", "-f"),
    ]
    assert "1 node online" in shown[1] and "pong" in shown[2]
    assert "tuque://:***@" in shown[0] + shown[3] and "more" in shown[8]
    guarded.env["SHOP_URL"] = guarded.env["SHOP_RESULTS"] = url.replace(PASSWORD, "wrong-one")
    shown.append(celery(guarded, "inspect", "ping", code=69))
    assert worker.stop() == 0
    shown.append(guarded.texts())
    for text in shown:
        assert PASSWORD not in text and "wrong-one" not in text


@pytest.mark.slow
def test_beat_adds_what_is_due(shop: Shop) -> None:
    shop.worker("-c", "1")
    shop.start("beat", "-l", "INFO")
    until(lambda: shop.effects()["stock"] >= 3, shop.texts)
    until(lambda: shop.effects()["night"] >= 1, shop.texts, most_s=120)  # each minute


@pytest.mark.slow
def test_flower_shows_workers_and_tasks_and_controls_them(guarded: Shop) -> None:
    pytest.importorskip("flower", reason="flower is not installed: pip install flower")
    workers = [guarded.worker("-c", "1", "-E") for _ in range(3)]
    port = free_port()
    guarded.env["FLOWER_UNAUTHENTICATED_API"] = "true"
    guarded.start("flower", f"--port={port}", "--address=127.0.0.1")

    def page(path: str, data: bytes | None = None) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=30) as reply:
            return str(reply.read().decode())

    def answered(path: str) -> str:
        try:
            return page(path)
        except OSError:
            return ""

    until(lambda: all(f"w{n}@shop" in answered("/workers") for n in range(3)), guarded.texts)
    id = guarded.python("found = shop.price.delay(1).id")
    until(lambda: json.loads(answered("/api/tasks") or "{}").get(id, {}).get("state") == "SUCCESS")
    shown = [page(path) for path in ("/workers", "/tasks", f"/task/{id}", "/worker/w0@shop")]
    shown.append(page("/metrics"))
    assert "shop.price" in shown[2]
    page("/api/worker/shutdown/w0@shop", b"")
    until(lambda: workers[0].process.poll() is not None, guarded.texts)
    for text in (*shown, guarded.texts()):
        assert PASSWORD not in text


DJANGO = """
import os, sys
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    INSTALLED_APPS=["django_celery_beat", "django_celery_results"],
    USE_TZ=True,
    SECRET_KEY="of no use",
)
django.setup()
from shop import app
app.conf.update(result_backend="django-db", result_extended=True, task_track_started=True)
"""


@pytest.mark.slow
def test_django_keeps_schedules_and_results(shop: Shop) -> None:
    for name in ("django_celery_beat", "django_celery_results"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    (shop.place / "djshop.py").write_text(DJANGO)
    shop.env["PYTHONPATH"] += f":{shop.place}"
    shop.python("import djshop\nfrom django.core.management import call_command\n"
                "call_command('migrate', verbosity=0)\nfound = 0")  # fmt: skip
    shop.python("""
import djshop
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
PeriodicTask.objects.create(interval=every, name="n", task="shop.note", args='["from django"]')
found = 0""")
    shop.worker("-c", "1", app="djshop")
    scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
    shop.start("beat", "-S", scheduler, "-l", "INFO", app="djshop")
    until(lambda: shop.effects()["from django"] >= 2, shop.texts)
    code = "import djshop\nfrom django_celery_results.models import TaskResult\n"
    code += "found = TaskResult.objects.filter(status='SUCCESS', task_name='shop.note').count()"
    until(lambda: shop.python(code) >= 1, shop.texts)


def test_a_log_in_that_is_refused_is_a_sentence_without_the_password(guarded: Shop) -> None:
    for name in ("SHOP_URL", "SHOP_RESULTS"):
        guarded.env[name] = guarded.env[name].replace(PASSWORD, "wrong-one")
    said = celery(guarded, "inspect", "ping", code=69)
    assert "invalid password" in said and "wrong-one" not in said
