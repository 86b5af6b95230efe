"""The unix socket: what may be in its place when a node starts (SPEC C1.6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuque.server.config.config import Config
from tuque.server.net.listen import ListenError, open_unix


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "directory"])
def test_a_unix_socket_replaces_only_sockets(tmp_path: Path, kind: str) -> None:
    """C1.6 Of anything else at its path nothing is deleted: the start fails, with an error that
    names the path."""
    path, file = tmp_path / "s.sock", tmp_path / "file"
    file.write_text("kept")
    if kind == "file":
        path.write_text("kept")
    elif kind == "link":
        path.symlink_to(file)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    mode = path.lstat().st_mode
    with pytest.raises(ListenError, match=f"can't listen on {path}: there is something"):
        open_unix(Config(dir=str(tmp_path), unixsocket="s.sock"))
    assert path.lstat().st_mode == mode
    assert kind not in ("file", "link") or path.read_text() == "kept"
