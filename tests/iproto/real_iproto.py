"""A real server with an iproto-port and users, and unmodified clients of other makers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab import RealServer, free_port

ROOT = Path(__file__).resolve().parents[2]
SESSION = Path(__file__).with_name("tarantool_session.py")
KEPT = ROOT / "build" / "clients"  # packages beside those of the environment
USERS = "admin sesame all\nbob b\nguest nopass\n"
DEADLINE_S = 60


class IprotoServer(RealServer):
    """A server process that also speaks IPROTO."""

    def __init__(self, directory: Path, *flags: str | int, users: str = USERS) -> None:
        self.iproto_port = free_port()
        mine: list[str | int] = ["--iproto-port", self.iproto_port]
        if users:
            (directory / "users").write_text(users)
            mine += ["--iproto-users-file", "users"]
        super().__init__(directory, "--cluster-enabled", "no", *mine, *flags)


def package(name: str, version: str) -> Path:
    """A directory with that version of a package alone; OSError when it can't be had."""
    path = KEPT / f"{name}-{version}"
    if not path.is_dir():
        part = path.with_name(f"{path.name}.{os.getpid()}")
        wanted = ["--no-deps", "--quiet", "--target", str(part), f"{name}=={version}"]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", *wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        if done.returncode:
            raise OSError(done.stderr.strip().splitlines()[-1])
        try:
            part.rename(path)
        except OSError:  # another test was quicker
            shutil.rmtree(part)
    return path


def run_session(port: int, path: Path | None) -> dict[str, Any]:
    """What the program of tarantool_session.py says, with the client found in `path` if given."""
    env = dict(os.environ)
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, str(SESSION), str(port)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said
