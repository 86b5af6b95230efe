"""A worker of Django while the database ends its connections between jobs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_lab import Postgres

SCRIPT = Path(__file__).parent / "django_killed.py"


@pytest.mark.skipif(not importlib.util.find_spec("django_tasks"), reason="django-tasks is missing")
def test_no_job_gets_a_connection_that_the_database_has_ended(_postgres: Postgres) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, str(SCRIPT), str(_postgres.place)]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.stdout == "no job failed\n", done.stderr
    assert subprocess.run([*words, "--without"], env=env, capture_output=True).returncode != 0
