"""What other users of the machine may do with the files of a server (SPEC C1.5, C1.6)."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tuque.server.app import open_log
from tuque.server.config.config import load
from tuque.server.config.identity import (
    IdentityError,
    check_places,
    open_identity,
    readable_secrets,
)
from tuque.server.config.kinds import ConfigError
from tuque.server.events.events import Spool
from tuque.server.events.segments import HotSegment
from tuque.store.disk import Disk


@pytest.mark.parametrize("name", [".", "journal", "events"])
def test_a_directory_that_all_can_write_is_refused(tmp_path: Path, name: str) -> None:
    """C1.5: the start is refused when `dir`, ... can be written by everybody on this machine"""
    place = tmp_path / name
    place.mkdir(exist_ok=True)
    cfg = load(None, {}, {"dir": str(tmp_path)})
    check_places(cfg)
    place.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod o-w"):
        check_places(cfg)
    check_places(load(None, {}, {"dir": str(tmp_path), "protected-mode": "no"}))
    place.chmod(0o1777)
    check_places(cfg)
    place.chmod(0o770)
    check_places(cfg)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("nodes.conf", lambda place: open_identity(load(None, {}, {"dir": str(place)}))),
        ("segment", lambda place: Disk().open_append(str(place / "segment"))),
        ("segment", lambda place: Disk().truncate(str(place / "segment"), 0)),
        ("lock", lambda place: Disk().lock(str(place / "lock"))),
        (f".new-raw-n-{1:020d}", lambda place: Spool(place, "n", 0)._open(1)),
        (f".hot-n-{1:020d}", lambda place: HotSegment(place, "n", 1, 0)),
    ],
)
def test_no_file_of_the_server_is_somebody_elses(
    tmp_path: Path, name: str, made: Callable[[Path], object]
) -> None:
    """C1.5 The server opens no file that it makes there, nor `pidfile`, through a symbolic link: it
    may be somebody else's."""
    place = tmp_path / "sticky"
    place.mkdir()
    theirs = tmp_path / "theirs"
    theirs.write_text("as it was")
    (place / name).symlink_to(theirs)
    with pytest.raises((OSError, IdentityError), match="symbolic links"):
        made(place)
    assert theirs.read_text() == "as it was"


def test_the_log_is_closed_to_others_and_shows_control_characters(tmp_path: Path) -> None:
    """C1.6 An existing `logfile` loses all rights of others; its group keeps its rights."""
    cfg = load(None, {}, {"dir": str(tmp_path), "logfile": "t.log"})
    root = logging.getLogger("tuque")
    before = (root.handlers[:], root.propagate, root.level)
    old = os.umask(0o022)
    try:
        (tmp_path / "t.log").touch(mode=0o644)
        open_log(cfg)
        root.error("bad \x1b[2J\nforged", exc_info=ValueError("\x07"))
        root.handlers[0].close()
        assert stat.S_IMODE((tmp_path / "t.log").stat().st_mode) == 0o640
        first, trace = (tmp_path / "t.log").read_text().splitlines()
        assert first.endswith(r" E bad \x1b[2J\nforged")
        assert trace == r"  ValueError: \x07"
    finally:
        os.umask(old)
        root.handlers[:], root.propagate = before[:2]
        root.setLevel(before[2])


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    cfg = load(None, {}, {"dir": str(tmp_path), "logfile": "none/t.log"})
    with pytest.raises(ConfigError, match="logfile: .*No such file"):
        open_log(cfg)


SECRET = "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq"


@pytest.mark.parametrize("name", ["requirepass", "cluster_secret"])
def test_a_configuration_that_all_can_read_is_named(tmp_path: Path, name: str) -> None:
    """C1.6 The server logs a warning if a configuration file with a password, a
    `cluster-secret-file` or an `iproto-users-file` is world-readable."""
    conf = tmp_path / "t.toml"
    conf.write_text(f'{name} = "{SECRET}"\n')
    conf.chmod(0o600)
    cfg = load(str(conf), {}, {"dir": str(tmp_path)})
    assert readable_secrets(cfg) == []
    conf.chmod(0o604)
    (told,) = readable_secrets(cfg)
    assert told.startswith(f"the configuration file {conf} has passwords")
    assert told.endswith(f"`chmod o= {conf}`")


def test_a_configuration_without_a_password_may_be_read(tmp_path: Path) -> None:
    conf = tmp_path / "t.toml"
    conf.write_text("port = 0\n")
    conf.chmod(0o644)
    assert readable_secrets(load(str(conf), {}, {"dir": str(tmp_path)})) == []


@pytest.mark.parametrize("name", ["cluster-secret-file", "iproto-users-file"])
def test_files_of_secrets_that_all_can_read_are_named(tmp_path: Path, name: str) -> None:
    """C1.6 The server logs a warning if a configuration file with a password, a
    `cluster-secret-file` or an `iproto-users-file` is world-readable."""
    path = tmp_path / "secrets"
    path.write_text(SECRET if name.startswith("cluster") else "admin sesame all\n")
    path.chmod(0o600)
    cfg = load(None, {}, {"dir": str(tmp_path), name: "secrets"})
    assert readable_secrets(cfg) == []
    path.chmod(0o604)
    (told,) = readable_secrets(cfg)
    assert told.startswith(f"{name} {path} has passwords")
