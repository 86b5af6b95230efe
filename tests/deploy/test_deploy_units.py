"""The units of systemd: they are valid, hardened, and their paths are those of Debian."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.glob("*.service"))
EXPOSED_MOST = 20  # tenths; systemd calls up to 2.0 OK, and a plain service has 9.6


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of systemd, or skip where it is missing."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_the_units_are_there() -> None:
    assert NAMES == ["tuque-worker@.service", "tuque.service", "tuque@.service"]


@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    text = (UNITS / name).read_text("utf-8")
    assert "/usr/bin/tuque " in text
    (tmp_path / name).write_text(text.replace("/usr/bin/tuque ", "/bin/true "))
    found = run(
        "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)
    )
    told = [line for line in found.stderr.splitlines() if "tuque" in line]
    assert (found.returncode, told) == (0, [])


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_is_hardened(name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    found = run(
        "systemd-analyze",
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={EXPOSED_MOST}",
        str(UNITS / name),
    )
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze judges no files")
    assert found.returncode == 0, found.stdout[-300:] + found.stderr
    assert re.search(r"Overall exposure level .*: 1\.\d OK", found.stdout), found.stdout[-300:]


def test_a_node_notifies_and_is_watched() -> None:
    for name in ("tuque.service", "tuque@.service"):
        lines = (UNITS / name).read_text("utf-8").splitlines()
        assert {"Type=notify", "NotifyAccess=main", "WatchdogSec=30"} <= set(lines)
        assert not any(line.startswith(("ProcSubset", "DynamicUser")) for line in lines)


def test_users_and_directories_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    users = run("systemd-sysusers", f"--root={tmp_path}", str(UNITS / "tuque.sysusers"))
    assert users.returncode == 0, users.stderr
    made = (tmp_path / "etc" / "passwd").read_text()
    assert [line.split(":")[0] for line in made.splitlines()] == ["tuque", "tuque-worker"]
    dirs = run("systemd-tmpfiles", "--create", f"--root={tmp_path}", str(UNITS / "tuque.tmpfiles"))
    if "Operation not permitted" in dirs.stderr:
        pytest.skip("only root may give directories to users")
    assert dirs.returncode == 0, dirs.stderr
    assert (tmp_path / "var/lib/tuque").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "etc/tuque").stat().st_mode & 0o777 == 0o750
