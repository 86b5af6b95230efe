"""What a person sees on a terminal: tables that fit it, colours, facts, records of a journal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from console_node import DEADLINE_S, Run

from both_ways import NO_BYTECODE
from tuque.cli.replies import as_facts
from tuque.client.transport.conn import ErrorReply
from tuque.client.transport.raw_link import Link, Reply, Target
from tuque.server.journal.tool import line_of
from tuque.terminal import table

ROWS = [["mail", "7", "1,200"], ["a longer name", "12", "-"]]
OnTerminal = Callable[..., str]
# main() treats the streams of all commands alike: one stands for all.
COMMANDS = [
    "cli -p %d PING",
    pytest.param("cluster status -p %d", marks=pytest.mark.slow),
    pytest.param("tubes -p %d", marks=pytest.mark.slow),
]


@pytest.fixture
def terminal(tmp_path: Path) -> OnTerminal:
    """Run the program with its output on a terminal; what it wrote there."""

    def run(*words: str | int, columns: int, **env: str) -> str:
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "tuque", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(tmp_path), "COLUMNS": str(columns), "TERM": "xterm"}
            | env,
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            shown += more
        os.close(leader)
        process.communicate(timeout=DEADLINE_S)
        return shown.decode().replace("\r\n", "\n")

    return run


def test_a_table_has_one_form() -> None:
    """Text begins left, numbers end right; a pipe gets no colours and all columns."""
    assert table(["NAME", "JOBS", "BYTES"], ROWS, least=("BYTES",)) == (
        "NAME           JOBS  BYTES\n"
        "mail              7  1,200\n"
        "a longer name    12      -"
    )  # fmt: skip


def test_colours_are_made_in_one_place() -> None:
    """It knows of NO_COLOR and of pipes; `click.style` does not."""
    made = re.compile(r"click\.(style|secho)|\\x1b\[\d*m|\\033\[\d*m")
    sources = (Path(__file__).parents[2] / "src" / "tuque").rglob("*.py")
    assert [path.name for path in sources if made.search(path.read_text("utf-8"))] == [
        "terminal.py"
    ]


@pytest.mark.parametrize("columns", [80, 140])
def test_tables_fit_the_terminal(port: int, terminal: OnTerminal, columns: int) -> None:
    link = Link(Target(port=port))
    assert link.call([b"TUBE", b"CREATE", b"narrow", b"fifottl"]) == "OK"
    for words in (["cluster", "status"], ["tubes"]):
        shown = terminal(*words, "-p", port, columns=columns)
        assert "\x1b[" in shown
        plain = terminal(*words, "-p", port, columns=columns, NO_COLOR="1")
        assert "\x1b" not in plain
        assert columns_of(shown) == columns_of(plain)
        assert max(map(len, plain.splitlines())) <= columns
        assert ("not shown" in plain) == (columns == 80)
    assert link.call([b"TUBE", b"DROP", b"narrow"]) == "OK"
    link.close()


def columns_of(shown: str) -> list[str]:
    """The heads of a table."""
    return re.sub("\x1b\\[[0-9;]*m", "", shown.splitlines()[0]).split()


def test_names_and_values_are_a_table(port: int, terminal: OnTerminal, tuque: Run) -> None:
    """QSTAT on a terminal; with --no-raw and in pipes it is as it was."""
    link = Link(Target(port=port))
    link.call([b"ADDJOB", b"facts", b"body", b"0"])
    words = ["cli", "-p", port, "QSTAT", "facts"]
    shown = terminal(*words, columns=80, NO_COLOR="1")
    assert re.search(r"^len +1$", shown, re.M)
    assert re.search(r"^idle +\d+ s$", shown, re.M)
    assert re.search(r"^import-from +-$", shown, re.M)
    assert terminal("cli", "--no-raw", *words[1:], columns=80).startswith(' 1) "name"\n')
    assert tuque(*words).stdout.startswith(b"name\nfacts\nlen\n1\n")
    assert terminal(*words[:-1], "nix", columns=80) == "(nil)\n"
    link.call([b"GETJOB", b"FROM", b"facts"])
    link.close()


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ([b"ctime", 1_700_000_000 * 10**9, b"epoch", 12345], ["ctime  2023-11-1", "epoch  12345"]),
        ([b"ttl", 86400, b"body", b"a\x1bb"], ["ttl   86,400 s", 'body  "a\\x1bb"']),
        ([b"copies", [[b"ab", b"h:1", 0, 1]], b"x", None], ["copies  ab h:1 0 1", "x       -"]),
        ([b"odd"], []),
        ([1, 2], []),
        (ErrorReply("ERR x"), []),
        (None, []),
    ],
)
def test_facts(reply: Reply, shown: list[str]) -> None:
    lines = as_facts(reply).splitlines()
    assert len(lines) == len(shown)
    for line, begin in zip(lines, shown, strict=True):
        assert line.startswith(begin)


def test_a_record_of_a_journal_fits_the_terminal() -> None:
    """Its instants are times, with the day where it is another one than the record's."""
    at_ms = 1_700_000_000_000
    row = {
        "seq": 1_234_567, "at_ms": at_ms, "record": "add", "id": "D-" + "x" * 38, "state": "active",
        "qtime_ms": at_ms + 1000, "queue": "a\nqueue", "expire_ms": at_ms + 86_400_000,
        "ctime_ns": at_ms * 1_000_000, "retry_s": 300, "delay_s": 0,
    }  # fmt: skip
    line = line_of(row)
    assert "\n" not in line and "delay_s" not in line and "queue=a\\nqueue" in line
    assert re.search(r" qtime=\d\d:\d\d:\d\d .* expire=2023-11-1\d \d\d:\d\d:\d\d", line)
    assert re.search(r" ctime=\d\d:\d\d:\d\d ", line)
    for width in (80, 140):
        folded = line_of(row, width).splitlines()
        assert len(folded) > 1 and max(map(len, folded)) <= width
        assert " ".join(" ".join(folded).split()) == " ".join(line.split())


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("words", COMMANDS)
def test_closed_standard_streams_are_no_error(port: int, words: str, closed: str) -> None:
    command = f"{sys.executable} -m tuque {words % port} {closed}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=False, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_told(port: int, words: str) -> None:
    command = f"{sys.executable} -m tuque {words % port} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=False, timeout=DEADLINE_S
    )
    told = b"Error: the output could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["cli -p %d INFO", "server --help"])
def test_output_that_is_taken_in_part_is_told(
    port: int, words: str, unbuffered: str, tmp_path: Path
) -> None:
    """A file at its limit of size takes the first part of a write."""
    words = words % port if "%" in words else words
    command = f"ulimit -f 1; exec {sys.executable} -m tuque {words} > {tmp_path / 'out'}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True, check=False, timeout=DEADLINE_S,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered} | NO_BYTECODE,
    )  # fmt: skip
    told = b"Error: the output could not be written: File too large\n"
    assert (done.returncode, done.stderr) == (1, told)
    assert (tmp_path / "out").stat().st_size == 1024
