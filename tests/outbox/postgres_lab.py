"""A server of PostgreSQL for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class Postgres:
    """A server of PostgreSQL for the tests, on a socket in its directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.data = place / "data"
        self._programs = PROGRAMS[-1]
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        if os.geteuid() != 0:
            self._as = []
        else:
            shutil.chown(place, "postgres")
        self._do("initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "--no-sync")
        self.start()

    def _do(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._as, str(self._programs / program), *words],
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self.place}"
        log = str(self.place / "log")
        self._do("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-o", options, "start")

    def kill(self) -> None:
        """All of it ends at once, as after a crash."""
        self._do("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://postgres@/postgres?host={self.place}"
