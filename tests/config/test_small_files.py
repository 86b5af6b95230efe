"""C1.10: files that an administrator names; a pipe in the place of one stops nothing."""

from __future__ import annotations

import os
import time
from codecs import BOM_UTF8
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
from tuque.worker.app.encryption import Keys
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


SECRET = "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq"
TEXTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "secret": (f"{SECRET}\n{SECRET[::-1]}\n", READERS[8]),
    "console": (f"{SECRET}\n", main.secret_of),
    "conf": ("maxclients 500\nport 7799\n", lambda path: load(str(path)).maxclients),
    "toml": ("maxclients = 500\nport = 7799\n", lambda path: load(str(path)).maxclients),
    "users": (
        "user bob off\n",
        lambda path: [(one.name, one.rules) for one in read_users(str(path))],
    ),
    "keys": (
        "one sign f58c44e2e199841313887709e86236e1c3d39cf7df0a7543bf2636d3b3a58a41\n",
        lambda path: Keys.read(path)._keys.keys(),
    ),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", BOM_UTF8])
@pytest.mark.parametrize("kind", TEXTS)
def test_marks_and_line_ends(tmp_path: Path, kind: str, mark: bytes, end: str) -> None:
    """C1.13 A file that an operator gives may begin with a BOM of UTF-8, and its lines may end
    with CR LF or LF: also files of users, of keys and of secrets.
    """
    text, read = TEXTS[kind]
    plain, other = tmp_path / f"plain.{kind}", tmp_path / f"other.{kind}"
    for path, data in ((plain, text.encode()), (other, mark + text.replace("\n", end).encode())):
        path.write_bytes(data)
        path.chmod(0o600)
    assert read(other) == read(plain)


@pytest.mark.parametrize("read", [READERS[8], main.secret_of, Keys.read, login.read])
def test_utf_16_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """C1.13 UTF-16 is refused: `it is UTF-16: save it as UTF-8`."""
    path = tmp_path / "file"
    path.write_bytes(f"{SECRET}\n".encode("utf-16"))
    path.chmod(0o600)
    with pytest.raises(ERRORS, match="it is UTF-16: save it as UTF-8"):
        read(path)


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
