"""What other users of the machine may do with the files of a server (SPEC C1.5, C1.6)."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from tuque.server.app import open_log
from tuque.server.config import load
from tuque.server.options import ConfigError
from tuque.server.safety import check_places, readable_secrets


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


def test_the_log_is_closed_to_others(tmp_path: Path) -> None:
    """C1.6: of a `logfile` that is there, others lose all rights and the group keeps its own"""
    cfg = load(None, {}, {"dir": str(tmp_path), "logfile": "t.log"})
    root = logging.getLogger("tuque")
    before = (root.handlers[:], root.propagate, root.level)
    old = os.umask(0o022)
    try:
        (tmp_path / "t.log").touch(mode=0o644)
        open_log(cfg)
        root.handlers[0].close()
        assert stat.S_IMODE((tmp_path / "t.log").stat().st_mode) == 0o640
    finally:
        os.umask(old)
        root.handlers[:], root.propagate = before[:2]
        root.setLevel(before[2])


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    cfg = load(None, {}, {"dir": str(tmp_path), "logfile": "none/t.log"})
    with pytest.raises(ConfigError, match="logfile: .*No such file"):
        open_log(cfg)


def test_secrets_that_all_can_read_are_named(tmp_path: Path) -> None:
    """C1.6: The log warns of a configuration file with a password"""
    conf = tmp_path / "t.toml"
    conf.write_text('requirepass = "a password of 24 bytes.."\niproto_users_file = "users"\n')
    users = tmp_path / "users"
    users.write_text("admin sesame all\n")
    for path in (conf, users):
        path.chmod(0o600)
    cfg = load(str(conf), {}, {"dir": str(tmp_path)})
    assert readable_secrets(cfg) == []
    conf.chmod(0o644)
    users.chmod(0o604)
    told = readable_secrets(cfg)
    assert [line.split(" has passwords")[0] for line in told] == [
        f"the configuration file {conf}", f"iproto-users-file {users}",
    ]  # fmt: skip
    assert told[0].endswith(f"`chmod o= {conf}`")
