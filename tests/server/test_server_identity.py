"""nodes.conf: made once, locked, replaced whole (SPEC K1.1)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from both_ways import NO_BYTECODE
from tuque.cluster.members import Members
from tuque.cluster.nodes_conf import BadNodes, NodesConf, parse_nodes_conf
from tuque.core.node.node import Node
from tuque.server.config.config import load
from tuque.server.config.identity import Identity, IdentityError, open_identity
from tuque.server.config.options import Config

ID = b"0123456789abcdef0123456789abcdef01234567"


def config(path: Path) -> Config:
    return load(None, {}, {"dir": str(path)})


def test_the_id_is_made_once(tmp_path: Path) -> None:
    first = open_identity(config(tmp_path))
    assert first.is_new and len(first.node_id) == 40
    line = (tmp_path / "nodes.conf").read_bytes()
    assert line == first.node_id + b" :7711 myself 0 0 connected\nvars life 1 number 0\n"
    first.is_leaving = True
    first.save()
    first.close()
    again = open_identity(config(tmp_path))
    assert not again.is_new
    assert (again.node_id, again.is_leaving) == (first.node_id, True)
    assert (again.life, again.mark != first.mark) == (2, True)  # K1.1
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.conf"]


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    first = open_identity(config(tmp_path))
    with pytest.raises(IdentityError, match="in use by another server; stop it, or give"):
        open_identity(config(tmp_path))
    first.save()  # puts another file in place: that one is locked too
    with pytest.raises(IdentityError, match="in use by another server"):
        open_identity(config(tmp_path))
    first.close()
    open_identity(config(tmp_path)).close()


def test_a_file_that_cannot_be_written_whole_is_not_replaced(tmp_path: Path) -> None:
    """At a limit of size a write takes a part: what is there stays."""
    open_identity(config(tmp_path)).close()
    before = (tmp_path / "nodes.conf").read_bytes()
    code = (
        "import resource, sys; from pathlib import Path; import test_server_identity as tests\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n"
        "tests.open_identity(tests.config(Path(sys.argv[1]))).save()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True, check=False,
        env=os.environ
        | {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
        | NO_BYTECODE,
    )  # fmt: skip
    assert done.returncode == 1 and b"File too large" in done.stderr, done.stderr
    assert (tmp_path / "nodes.conf").read_bytes() == before


def test_an_empty_file_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_bytes(b"\n\n")
    identity = open_identity(config(tmp_path))
    assert identity.is_new
    identity.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"x", "line 1 has 1 words instead of 6"),
        (b"\nabc :7711 myself 0 0 connected", "line 2 does not begin with a node id"),
        (ID + b" :7711 myself,king 0 0 connected", "unknown flag 'king'"),
        (ID + b" 1.2.3.4:7711 noflags 0 0 connected", "no line has the flag 'myself'"),
        (ID + b" 1.2.3.4:x noflags 0 0 connected", "line 1: 'x' is no number"),
        (b"vars x", "no line has the flag 'myself'"),
        (2 * (ID + b" :1 myself 0 0 connected\n"), "line 2 is the second line"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(BadNodes, match=why):
        parse_nodes_conf(text)
    (tmp_path / "nodes.conf").write_bytes(text)
    with pytest.raises(IdentityError, match="nodes.conf: line|nodes.conf: no line"):
        open_identity(config(tmp_path))
    assert (tmp_path / "nodes.conf").read_bytes() == text


def test_a_file_of_disque_is_read() -> None:
    text = b"vars currentEpoch 0\n%s 127.0.0.1:7711 myself,leaving 0 0 connected\n\n\n" % ID
    members = parse_nodes_conf(text)
    assert (members.node_id, members.is_leaving) == (ID, True)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="No such file or directory"):
        open_identity(config(tmp_path / "nosuch"))


def test_an_unkept_identity_saves_nothing() -> None:
    kept = NodesConf()
    kept.node_id = ID
    identity = Identity(kept, config(Path(".")))
    identity.save()
    identity.close()


def test_a_full_disk_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J6.10 The start frees it for `nodes.conf` too."""
    reserve = tmp_path / "reserve"
    write = os.write

    def full(fd: int, data: bytes) -> int:
        """As long as the reserve takes the room."""
        if reserve.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    identity = open_identity(config(tmp_path))
    members = Members(Node(identity.node_id, b"", 0), 1, identity.mark, 1000)
    reserve.write_bytes(b"x")
    monkeypatch.setattr(os, "write", full)
    identity.save_first(members, str(reserve))
    assert not reserve.exists()
    reserve.write_bytes(b"x")
    with pytest.raises(OSError, match="No space"):
        identity.save(members)
    identity.close()
