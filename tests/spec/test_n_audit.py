"""N9: what administrators do is kept, in files of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raw_resp import encode
from tuque.server.log.audit import LINES_MAX, ROLL_LEAST, Audit, files_of, last_seq
from tuque.wire.commands.commands import UNITS, table
from until import until
from world import World

NODE = "ab" * 20
KEEP = 8 * ROLL_LEAST


@pytest.fixture
def world(make_world: Callable[..., World], tmp_path: Path) -> Iterator[World]:
    made = make_world()
    made.server.audit = Audit(str(tmp_path / "audit"), NODE, KEEP)
    yield made
    made.server.audit.close()


def rows(directory: Path) -> list[dict[str, Any]]:
    """All lines, after the thread has written them."""
    found = []
    for path in files_of(str(directory), NODE):
        assert path.stat().st_mode & 0o777 == 0o600
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def test_acts(world: World, tmp_path: Path) -> None:
    """N9.1 With `audit yes` each act is one line in the files of `audit-dir`. Acts are commands and
    IPROTO calls whose unit is of the category admin or dangerous (N2.1), also if they are denied or
    fail. Before a log-in there are no acts.

    N9.2 A line is an object of JSON: seq, ts_ms, node, user, from, door (`resp` or `iproto`), act,
    words, outcome. `act` is the unit, such as `acl|setuser`. `words` are at most 32 words of at
    most 128 bytes, without passwords (C7.5) and bodies; of a subcommand that does not exist two; of
    an IPROTO call the name that was called. `outcome` is `ok`, the first word or the code of the
    error, or `begun` for what takes more than one turn.
    """
    root, eve, stranger = world.wire(), world.wire(), world.wire()
    audit = world.server.audit
    assert audit is not None
    root.say(encode("ADDJOB", "q", "a body", 0) + encode("GETJOB", "FROM", "q"))
    root.say(encode("ACL", "SETUSER", "eve", "on", "nopass", "+@produce", "~q*"))
    root.say(encode("ACL", "SETUSER", "root", "on", ">sesame", "+@all", "~*"))
    root.say(encode("PAUSE", "q" * 300, "in") + encode("LOADJOB", "a body"))
    root.say(encode("TUBE", "DROP", "none") + encode("CLIENT", "REPLY", "SKIP"))
    root.say(encode("CONFIG", "SET", "hz", "11"))
    eve.say(encode("AUTH", "eve", "") + encode("SHUTDOWN") + encode("PING"))
    root.say(encode("CONFIG", "SET", "requirepass", "sesame"))
    stranger.say(encode("SHUTDOWN"))
    audit.close()
    found = rows(tmp_path / "audit")
    assert [row["seq"] for row in found] == list(range(1, len(found) + 1))
    assert {row["node"] for row in found} == {NODE} and {row["door"] for row in found} == {"resp"}
    assert all(abs(row["ts_ms"] - world.n.now_ms) < 600_000 and row["from"] for row in found)
    told = [(row["user"], row["act"], row["outcome"], row["words"][2:]) for row in found]
    cut = "q" * 128 + "... (172 more bytes)"
    assert told == [
        ("default", "acl|setuser", "ok", ["eve", "on", "nopass", "+@produce", "~q*"]),
        ("default", "acl|setuser", told[1][2], ["root", "on", "(redacted)", "+@all", "~*"]),
        ("default", "pause", "ok", ["in"]),
        ("default", "loadjob", "ERR", []),
        ("default", "tube|drop", "NOTUBE", ["none"]),
        ("default", "config|set", "ok", ["hz", "11"]),
        ("eve", "shutdown", "NOPERM", []),
        ("default", "config|set", "ok", ["requirepass", "(redacted)"]),
    ]
    assert told[1][2] in ("ok", "begun")
    assert found[2]["words"][1] == cut
    assert "sesame" not in str(found) and "a body" not in str(found)


@pytest.mark.parametrize(
    "line",
    [
        "TUBE PUTT t sesame",
        "SCHEDULE ADDD t n EVERY 10 sesame",
        "DEAD ADD q sesame",
        "ACL DRYRUN bob ADDJOB q sesame 0",
        "ACL SETUSR bob >sesame",
        "ACL SETUSER >sesame",
        "ACL DELUSER bob sesame",
        "CONFIG SETT requirepass sesame",
        "CONFIG SET hz 10 requirepass sesame",
        "CONFIG REQUIREPASS sesame",
    ],
)
def test_a_slip_shows_no_body_and_no_password(world: World, tmp_path: Path, line: str) -> None:
    """A slip (N9.2): a command that is mistyped, or lacks a word, fails, and is kept without
    its secret; MONITOR has no password of it either (C7.5)."""
    audit = world.server.audit
    assert audit is not None
    root, eve, monitor = world.wire(), world.wire(), world.wire()
    root.say(encode("ACL", "SETUSER", "eve", "on", "nopass", "+@produce", "~*"))
    eve.say(encode("AUTH", "eve", ""))
    monitor.say(encode("MONITOR"))
    for wire in (root, eve):
        wire.say(encode(*line.split(" ")))
    audit.close()
    found = rows(tmp_path / "audit")[2:]  # behind SETUSER and MONITOR
    assert [row["user"] for row in found] == ["default", "eve"]
    assert "sesame" not in str(found)
    if line.startswith(("ACL", "CONFIG")):
        assert b"sesame" not in monitor.hear()


def test_each_act_is_kept(world: World, tmp_path: Path) -> None:
    """For N9.1: a walk over the table of rights as a user who may do none of it: each unit of the
    categories admin and dangerous leaves its line, no other one does."""
    audit = world.server.audit
    assert audit is not None
    wire = world.wire()
    wire.say(encode("ACL", "SETUSER", "eve", "on", "nopass"))
    wire.say(encode("AUTH", "eve", ""))
    walked = [unit for unit in UNITS if unit.row not in ("QUIT", "RESET", "AUTH", "HELLO")]
    for unit in walked:
        words = unit.row.split(" ")
        words += ["x"] * (abs(table()[words[0].encode()].arity) - len(words))
        wire.say(encode(*words))
        wire.say(encode("CLIENT", "REPLY", "ON"))
    audit.close()
    kept = [(row["act"], row["outcome"]) for row in rows(tmp_path / "audit")[1:]]
    acts = [one.name for one in walked if {"admin", "dangerous"} & set(one.categories)]
    assert kept == [(name, "NOPERM") for name in acts] and len(acts) > 50


def test_numbers_go_on(tmp_path: Path) -> None:
    """N9.3 `seq` grows by one, also over restarts."""
    directory = str(tmp_path)
    for start in range(3):
        audit = Audit(directory, NODE, KEEP)
        assert audit.seq == 2 * start
        audit.note(1, {"act": "one"})
        audit.note(2, {"act": "two"})
        audit.close()
    assert [row["seq"] for row in rows(tmp_path)] == [1, 2, 3, 4, 5, 6]
    with files_of(directory, NODE)[-1].open("ab") as file:
        file.write(b'{"seq": 7, "ts')
    assert last_seq(directory, NODE) == 6
    (tmp_path / f"audit-{NODE}-{7:020d}.jsonl").touch()
    (tmp_path / f"audit-{'cd' * 20}-{99:020d}.jsonl").write_text('{"seq": 99}\n')
    assert last_seq(directory, NODE) == 6
    (tmp_path / f"audit-{NODE}-{9:020d}.jsonl").touch()  # the lines before it were lost
    assert last_seq(directory, NODE) == 8


def test_lines_that_nobody_writes(tmp_path: Path) -> None:
    """N9.3 If more than 10,000 lines wait, or the disk takes none, lines are dropped: the reader
    sees the gap in `seq`, also over a restart, and the log has the reason.
    """
    audit = Audit(str(tmp_path / "a"), NODE, KEEP)
    audit.thread = threading.current_thread()  # it writes nothing
    for _ in range(LINES_MAX + 5):
        audit.note(1, {})
    assert audit.dropped == 5 and audit.line.qsize() == LINES_MAX
    audit.thread = None
    full = Audit(str(tmp_path / "b"), NODE, KEEP)
    os.rmdir(tmp_path / "b")
    full.note(1, {})
    until(lambda: full.lost == 1)
    assert "No such file" in full.error
    os.mkdir(tmp_path / "b")
    full.note(2, {})
    full.close()
    assert full.error == "" and [row["seq"] for row in rows(tmp_path / "b")] == [2]


FULL = """
import json, resource, signal, sys
from tuque.server.log.audit import Audit, files_of
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
audit = Audit(sys.argv[1], sys.argv[2], 1 << 20)
for number in range(500):
    audit.note(number, {"act": "one"})
while audit.written + audit.lost < 500:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for number in range(3 if sys.argv[3] == "goes on" else 0):
    audit.note(number, {"act": "two"})
audit.close()
print(json.dumps([audit.written, audit.lost, len(files_of(sys.argv[1], sys.argv[2]))]))
"""


@pytest.mark.parametrize("then", ["goes on", "stops"])
def test_a_full_disk(tmp_path: Path, then: str) -> None:
    """A full disk (N9.3): while the disk takes no more, no file is made for each line, and none of
    a line stays; the gap is seen, also if the node is stopped before there is room."""
    words = [sys.executable, "-c", FULL, str(tmp_path), NODE, then]
    out = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout
    written, lost, files = json.loads(out)
    assert lost > 400 and files == (1 if then == "goes on" else 2)
    next_one = Audit(str(tmp_path), NODE, 1 << 20)
    next_one.note(1, {"act": "three"})
    next_one.close()
    found = [row["seq"] for row in rows(tmp_path)]
    first = 501 if then == "stops" else 504
    assert found == [*range(1, 501 - lost), *range(501, first), first]
    assert len(found) == written + 1


def test_the_log_says_why(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """N9.5 INFO has, in the section users: audit_enabled, audit_lines, audit_dropped,
    audit_error.
    """
    audit = world.server.audit
    assert audit is not None
    caplog.set_level("INFO")
    audit.written, audit.dropped, audit.lost, audit.error = 3, 1, 1, "the disk is full"
    told = world.wire().say(encode("INFO", "users")).decode()
    for field in ("enabled:1", "lines:3", "dropped:2", "error:the disk is full"):
        assert f"audit_{field}\r\n" in told
    world.pump.house_ms = 0
    world.settle()
    until(lambda: world.settle() or "audit: the disk is full" in caplog.text)


def test_files_are_bounded(tmp_path: Path) -> None:
    """N9.4 A file is `audit-NODE-SEQ.jsonl`, with the number of its first line and mode 0600. A new
    one begins at each start, and after an eighth of `audit-keep-bytes` (at most 16 MiB). The oldest
    go, so that all have at most `audit-keep-bytes`.
    """
    audit = Audit(str(tmp_path), NODE, KEEP)
    for number in range(3_000):
        audit.note(number, {"words": ["x" * 400]})
    audit.close()
    files = files_of(str(tmp_path), NODE)
    sizes = [path.stat().st_size for path in files]
    assert 6 <= len(files) <= 8 and max(sizes) <= KEEP // 8 and sum(sizes) <= KEEP
    for path in files:
        assert json.loads(path.read_text().splitlines()[0])["seq"] == int(path.stem[-20:])
    assert rows(tmp_path)[-1]["seq"] == 3_000
