"""Jobs of Django between which the database ends all connections: django_killed.py HOST."""

from __future__ import annotations

import sys

import django
import psycopg
from django.conf import settings

HOST = sys.argv[1]
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": HOST,
            "CONN_MAX_AGE": 600,
            "CONN_HEALTH_CHECKS": True,
        }
    },
    INSTALLED_APPS=["django_tasks", "tuque.django"]
    if django.VERSION < (6, 0)
    else ["tuque.django"],
)
django.setup()

from django.db import connection  # noqa: E402  its settings come first

from tuque.django.running import Connections  # noqa: E402  its settings come first
from tuque.testing import TestApp  # noqa: E402  the same
from tuque.worker import App  # noqa: E402  the same

app = App()
if "--without" not in sys.argv:
    app.use(Connections())


@app.task(attempts=1)
def ask() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


with TestApp() as tuque_app, psycopg.connect(host=HOST, user="postgres", autocommit=True) as other:
    pids: list[int] = []
    for number in range(4):
        handle = ask.enqueue()
        tuque_app.run_until_idle(fail_fast=True)
        pids.append(handle.result(0))
        if number % 2:
            other.execute("SELECT pg_terminate_backend(%s)", (pids[-1],))
assert pids[0] == pids[1] != pids[2] == pids[3], pids  # kept, but for what was ended
print("no job failed")
