"""C1.10: files that an administrator names; a pipe in the place of one stops nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuque.server.config.config import cluster_secrets, load
from tuque.server.config.disque_conf import read_directives
from tuque.server.config.kinds import ConfigError
from tuque.server.config.rewrite import RewriteError, read_file
from tuque.server.net.tls_keys import check_readable
from tuque.server.users.users_file import UsersFileError, read_users
from tuque.smallfile import SMALL_BYTES, read_small
from tuque.web import login, main

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
    lambda path: check_readable("tls-key-file", str(path)),
)
ERRORS = (OSError, ConfigError, RewriteError, UsersFileError, login.ConfigError)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", READERS)
def test_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """C1.10 Another one, such as a pipe, is refused at once: nothing waits for it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ERRORS, match="not a regular file"):
        read(path)


def test_sizes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SMALL_BYTES))
    assert len(read_small(path)) == SMALL_BYTES
    path.write_bytes(bytes(SMALL_BYTES + 1))
    with pytest.raises(OSError, match="more than 1048576 bytes"):
        read_small(path)
