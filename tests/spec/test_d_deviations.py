"""Where Tuque answers otherwise than Disque, on purpose (SPEC D)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL
from tuque.wire.proto.strict_reader import split_inline
from world import World


def test_a_look_makes_no_queue(world: World) -> None:
    """V1.4 No job and NOHANG: a null array; no queue is created."""
    assert world.run("GETJOB", "NOHANG", "FROM", "q") is NULL
    world.run("ADDJOB", "later", "b", 0, "DELAY", 5)
    assert world.run("QSCAN") == [b"0", []]


@pytest.mark.parametrize("scan", ["QSCAN", "JSCAN"])
@pytest.mark.parametrize("cursor", ["-1", "-9223372036854775808", "9223372036854775808"])
def test_a_cursor_that_no_scan_gave(world: World, scan: str, cursor: str) -> None:
    """S4.2 A first word that is neither a number nor an option, an option without its value at
    the end, or a number below 0: `-ERR invalid cursor or option name`.
    """
    assert world.run(scan, cursor) == "ERR invalid cursor or option name"


@pytest.mark.parametrize("most", [str((1 << 31) - 1), str(1 << 31), str((1 << 63) - 1)])
def test_counts_have_64_bits(world: World, most: str) -> None:
    """As in Disque: a count beyond any length that can be is no error."""
    world.run("ADDJOB", "q", "b", 0, "MAXLEN", most)
    assert world.run("QSCAN", "COUNT", most, "MAXLEN", most) == [b"0", [b"q"]]
    assert len(world.run("JSCAN", "COUNT", most)[1]) == 1
    assert len(world.run("GETJOB", "COUNT", most, "FROM", "q")) == 1


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("maxmemory", "100mb", b"104857600"),
        ("auto-aof-rewrite-min-size", "1gb", b"1073741824"),
        ("activerehashing", "TRUE", b"yes"),
        ("maxmemory-policy", "NoEviction", b"noeviction"),
        ("slowlog-log-slower-than", "-1", b"-1"),
        ("tcp-keepalive", "YES", b"60"),
        ("tcp-keepalive", " 5", b"5"),
        ("maxmemory", " 100mb ", b"104857600"),
        ("loglevel", " notice ", b"notice"),
    ],
)
def test_config_set_takes_what_the_file_takes(
    world: World, name: str, value: str, shown: bytes
) -> None:
    """C7.9 CONFIG SET takes a value in every form that the file accepts:

    C7.9 blanks around them do not count."""
    assert world.run("CONFIG", "SET", name, value) == b"OK"
    assert world.run("CONFIG", "GET", name) == [name.encode(), shown]


def test_what_config_set_cannot_change(world: World) -> None:
    """C7.9 An option that cannot change while the server runs: `-ERR Unsupported CONFIG parameter:
    <name>`.
    """
    assert world.run("CONFIG", "SET", "dir", "/tmp") == "ERR Unsupported CONFIG parameter: dir"


def test_no_journal_to_rewrite(make_world: Callable[..., World]) -> None:
    """J6.3 BGREWRITEAOF without a journal: `-ERR there is no journal to rewrite: CONFIG SET
    appendonly yes starts one`.
    """
    told = "ERR there is no journal to rewrite: CONFIG SET appendonly yes starts one"
    assert make_world(journal="off").run("BGREWRITEAOF") == told


def test_inline_words_that_are_empty() -> None:
    """C2.1 `""` is an empty word. A NUL byte parts words, as a blank does."""
    assert split_inline(b'ECHO ""') == [b"ECHO", b""]
    assert split_inline(b"ECHO a\0b\0") == [b"ECHO", b"a", b"b"]


def test_working_takes_one_id(world: World) -> None:
    """W3.1 A run token that cannot be read: `-ERR invalid run token '<word>'`, of several ids
    `-ERR invalid run token '<word>' of <id>`.
    """
    first, second = (world.run("ADDJOB", "q", "b", 0) for _ in range(2))
    world.run("GETJOB", "COUNT", 2, "FROM", "q")
    for more in ([second], [second, "x"]):
        word = more[0] if isinstance(more[0], str) else more[0].decode()
        assert world.run("WORKING", first, *more) == f"ERR invalid run token '{word}'"


def test_an_empty_node_counts_to_maxmemory(world: World) -> None:
    """M1.1 Used memory is what the process holds: jobs with bodies, queues, what clients hold
    (M5.1), and journal and events not yet written, in addition to the memory measured at start.
    """
    world.n.base_bytes = 45 << 20
    assert world.run("CONFIG", "SET", "maxmemory", "3mb") == b"OK"
    assert str(world.run("ADDJOB", "q", "b", 0)).startswith("OOM command not allowed")
    assert world.run("CONFIG", "SET", "maxmemory", "64mb") == b"OK"
    assert len(world.run("ADDJOB", "q", "b", 0)) == 40
