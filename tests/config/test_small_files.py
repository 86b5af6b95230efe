"""C1.10: files that an administrator names; a pipe in the place of one stops nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuque.server.app import open_log
from tuque.server.config.config import cluster_secrets, load
from tuque.server.config.disque_conf import read_directives
from tuque.server.config.identity import check_places
from tuque.server.config.kinds import ConfigError
from tuque.server.config.options import OPTIONS
from tuque.server.config.rewrite import RewriteError, read_file
from tuque.server.net.tls_keys import check_readable
from tuque.server.start.doors import UsersError
from tuque.server.start.doors import read_users as read_wired
from tuque.server.users.users_file import UsersFileError, read_users
from tuque.smallfile import SMALL_BYTES, read_small, stamp_of
from tuque.web import login, main
from until import until

READERS: tuple[Callable[[Path], object], ...] = (
    read_small,
    read_file,
    login.read,
    login.ended_of,
    main.secret_of,
    lambda path: main.context_of(path, path),
    lambda path: load(str(path)),
    lambda path: read_directives(f"include {path}", "a file", path.parent),
    lambda path: cluster_secrets(load(None, {}, {"cluster-secret-file": str(path)})),
    lambda path: read_users(str(path)),
    lambda path: read_wired(str(path)),
    lambda path: check_readable("tls-key-file", str(path)),
)
LATER = (READERS[1], READERS[6], READERS[7])  # the mode is checked when protected-mode is known
ERRORS = (UsersError, OSError, ConfigError, RewriteError, UsersFileError, login.ConfigError)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", READERS)
def test_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """C1.10 Another one, such as a pipe, is refused at once: nothing waits for it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ERRORS, match="not a regular file"):
        read(path)


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_all_can_write(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """C1.11 A file that is read later, such as a renewed certificate, is refused as one with a
    fault."""
    path = tmp_path / "file"
    path.write_text("x")
    path.chmod(0o606)
    if read in LATER:
        read(path)
        return
    with pytest.raises(ERRORS, match=f"everybody on this machine can write it: `chmod o-w {path}"):
        read(path)


def test_every_option_that_names_a_file(tmp_path: Path) -> None:
    """C1.11 In protected mode the start fails if a file that an option names, the configuration
    file or one that it includes is world-writable."""
    path = tmp_path / "file"
    path.write_text("")
    found = [name for name in OPTIONS if name.endswith("_file") or name == "pidfile"]
    assert len(found) == 9
    for name in found:
        sets = {name: "file" if name == "cluster_config_file" else str(path), "dir": str(tmp_path)}
        path.chmod(0o664)
        cfg = load(None, {}, {**sets, "daemonize": "yes"})
        check_places(cfg)
        path.chmod(0o666)
        with pytest.raises(ConfigError, match=f"{name.replace('_', '-')}: .*chmod o-w {path}"):
            check_places(cfg)
        check_places(load(None, {}, {**sets, "daemonize": "yes", "protected-mode": "no"}))


@pytest.mark.parametrize("name", ["t.conf", "more.conf"])
def test_a_configuration_that_all_can_write(tmp_path: Path, name: str) -> None:
    """C1.11 the configuration file or one that it includes"""
    conf = tmp_path / "t.conf"
    conf.write_text(f"include {tmp_path}/more.conf\n")
    (tmp_path / "more.conf").write_text("maxclients 500\n")
    check_places(load(str(conf), {}, {"dir": str(tmp_path)}))
    (tmp_path / name).chmod(0o606)
    with pytest.raises(ConfigError, match=f"config file: .*{name}"):
        check_places(load(str(conf), {}, {"dir": str(tmp_path)}))


def test_without_protected_mode_the_modes_of_files_are_free(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq\n")
    path.chmod(0o666)
    sets = {"cluster-secret-file": str(path), "protected-mode": "no"}
    assert len(cluster_secrets(load(None, {}, sets))) == 1


def test_sizes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SMALL_BYTES))
    assert len(read_small(path)) == SMALL_BYTES
    path.write_bytes(bytes(SMALL_BYTES + 1))
    with pytest.raises(OSError, match="more than 1048576 bytes"):
        read_small(path)


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    """An editor or a copy may set the time of the last change back."""
    path = tmp_path / "users"
    path.write_text("ann")
    before = stamp_of(path)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    until(lambda: time.time_ns() > path.stat().st_ctime_ns + 20_000_000)
    path.write_text("bob")
    os.utime(path, ns=times)
    assert path.stat().st_mtime_ns == times[1]
    assert stamp_of(path) != before


def test_a_log_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    """To open it would wait for a reader, without a word."""
    os.mkfifo(tmp_path / "log")
    with pytest.raises(ConfigError, match="it is a pipe"):
        open_log(load(None, {}, {"dir": str(tmp_path), "logfile": "log"}))
