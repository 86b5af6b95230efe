"""SPEC C: connections, the protocol, the order of checks, sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL, encode
from tuque.server.config.config import ConfigError, load
from tuque.wire.commands.rows import COMMAND_ROWS
from world import World
from world_machines import name_of

FULL = b"-ERR max number of clients reached\r\n<closed>"
PING = b"*1\r\n$4\r\nPING\r\n"


def test_too_many_clients(make_world: Callable[..., World]) -> None:
    """C1.1 Above `maxclients`, and the three places of C1.12, a connection gets `-ERR max number of
    clients reached` and is closed.
    """
    world = make_world(events=True, maxclients="2")
    first, second = world.wire(), world.wire()
    for _ in range(3):
        assert world.wire()("CONFIG", "GET", "maxclients") == [b"maxclients", b"2"]
    assert world.wire().answer() == FULL
    assert first.answer(PING) == b"+PONG\r\n"
    assert b"rejected_connections:1\r" in first("INFO", "stats")
    second.close()


def test_places_for_administrators(make_world: Callable[..., World]) -> None:
    """C1.12 Beyond `maxclients` three places are kept for those who administrate, over RESP. A
    connection there runs commands of the groups server and connection that are of the categories
    admin or dangerous, if its user has the right to them.

    At any other command it gets the error of C1.1 and is closed.

    When `maxclients` has room again, the connection is like any other.
    """
    world = make_world(events=True, maxclients="50")
    first = world.wire()
    rights = ("+@all", "-@admin", "-@dangerous", "~*")
    assert first("ACL", "SETUSER", "eve", "on", ">secret", *rights) == b"OK"
    assert first("CONFIG", "SET", "maxclients", 1) == b"OK"
    assert world.wire().answer(PING) == FULL
    eve = world.wire()
    assert eve("HELLO", 3, "AUTH", "eve", "secret") is not None
    assert str(eve("CONFIG", "SET", "maxclients", 9)).startswith("NOPERM")
    assert eve.answer(encode("ADDJOB", "q", "b", 0)) == FULL
    root = world.wire()
    assert root("CLIENT", "SETNAME", "root") == b"OK"
    assert root("CONFIG", "GET", "maxclients") == [b"maxclients", b"1"]
    assert root.answer(encode("ADDJOB", "q", "b", 0)) == FULL
    root = world.wire()
    assert root("CONFIG", "SET", "maxclients", 9) == b"OK"
    assert isinstance(root("ADDJOB", "q", "b", 0), bytes)


def test_who_waits_makes_room(make_world: Callable[..., World]) -> None:
    """C1.12 One that has not administrated yet makes room for the next connection, the oldest
    first.
    """
    world = make_world(events=True, maxclients="1")
    first = world.wire()
    admin = world.wire()
    assert admin("CLIENT", "LIST") is not None
    silent = [world.wire() for _ in range(30)]
    assert [wire.answer() for wire in silent] == [FULL] * 28 + [b""] * 2
    again = world.wire()
    assert again("CONFIG", "SET", "maxclients", 2) == b"OK"
    assert not admin.is_closed and first.answer(PING) == b"+PONG\r\n"
    assert b"rejected_connections:29\r" in admin("INFO", "stats")


def test_a_refused_client_that_sends_at_once(make_world: Callable[..., World]) -> None:
    """C1.7 what it sends until then is discarded, so that the client can read the error."""
    world = make_world(events=True, maxclients="1")
    world.wire()
    for _ in range(3):
        assert world.wire()("CONFIG", "GET", "nothing") == []
    refused = world.wire()
    assert refused.answer(PING) == b"-ERR max number of clients reached\r\n<closed>"
    assert refused.answer(PING) == b"<closed>"
    assert len(world.pump.acceptors.refused) == 1
    refused.close()
    assert len(world.pump.acceptors.refused) == 0


def test_a_refused_client_that_stays(make_world: Callable[..., World]) -> None:
    """C1.7 A connection that C1.1 refuses is closed when its client has closed its side, or after a
    second.
    """
    world = make_world(events=True, maxclients="1")
    world.wire()
    for _ in range(3):
        assert world.wire()("CONFIG", "GET", "nothing") == []
    wires = [world.wire() for _ in range(17)]
    assert len(world.pump.acceptors.refused) == 16
    world.pass_ms(1000)
    assert len(world.pump.acceptors.refused) == 0
    for wire in wires:
        assert wire.answer() == b"-ERR max number of clients reached\r\n<closed>"


def test_a_new_session(make_world: Callable[..., World]) -> None:
    """C1.2 A session starts with RESP2, no name and replies on, as the user of N1.2. It starts
    unauthenticated if `requirepass` is set.
    """
    world = make_world(events=True, requirepass="secret")
    assert world.run("PING") == "NOAUTH Authentication required."
    assert world.run("AUTH", "secret") == b"OK"
    assert world.run("CLIENT", "GETNAME") is NULL
    world.run("GETJOB", "NOHANG", "FROM", "q")
    assert not world.run.c.resp3


def test_protected_mode() -> None:
    """C1.3 In protected mode without a password the server listens on this machine only. A start
    with another address fails with an error that explains how to allow it.
    """
    with pytest.raises(ConfigError, match="requirepass"):
        load(None, {}, {"bind": "0.0.0.0"})
    load(None, {}, {"bind": "0.0.0.0", "requirepass": "Fz8-kq2Lm5wP7sVt"})
    load(None, {}, {"bind": "0.0.0.0", "protected_mode": "no"})


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"PING\r\n", b"+PONG\r\n"),
        (b"PING\n", b"+PONG\r\n"),
        (b'PING "a\\x41\\n\\r\\t\\a\\b\\"\\\\"\r\n', b'$9\r\naA\n\r\t\x07\x08"\\\r\n'),
        (b"PING 'it\\'s'\r\n", b"$4\r\nit's\r\n"),
        (b"  PING   x  \r\n", b"$1\r\nx\r\n"),
        (b"*2\r\n$4\r\nping\r\n$2\r\n\r\n\r\n", b"$2\r\n\r\n\r\n"),
    ],
)
def test_requests(world: World, data: bytes, reply: bytes) -> None:
    """C2.1 Requests are RESP arrays of bulk strings, or inline commands that end in `\\n` or
    `\\r\\n`. In inline commands double quotes accept `\\n \\r \\t \\b \\a \\xHH \\\\ \\"`,
    single quotes accept `\\'`.
    """
    assert world.wire().answer(data) == reply


@pytest.mark.parametrize("nothing", [b"*0\r\n", b"*-1\r\n", b"\r\n", b"\n", b"   \r\n"])
def test_nothing_is_skipped(world: World, nothing: bytes) -> None:
    """C2.2 `*0`, `*-1` and an empty inline line are skipped."""
    assert world.wire().answer(nothing * 3 + PING) == b"+PONG\r\n"


def test_any_cut(world: World) -> None:
    """C2.3 The commands do not depend on how the stream is split into reads."""
    stream = PING + b"PING 'a b'\r\n" + b"*2\r\n$4\r\nPING\r\n$3\r\nx\r\n\r\n"
    whole = world.wire().answer(stream)
    for cut in range(1, len(stream), 3):
        line = world.wire()
        line.give(stream[:cut])
        line.give(stream[cut:])
        assert line.answer() == whole, cut
        line.close()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"x" * 65_540, b"too big inline request"),
        (b"*" + b"1" * 65_540, b"too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 65_540, b"too big bulk count string"),
        (b"*x\r\n", b"invalid multibulk length"),
        (b"*1048577\r\n", b"invalid multibulk length"),
        (b"*99999999999999999999\r\n", b"invalid multibulk length"),
        (b"*1\r\n$-1\r\n", b"invalid bulk length"),
        (b"*1\r\n$x\r\n", b"invalid bulk length"),
        (
            b"*1\r\n$536870913\r\n",
            b"invalid bulk length: 536870913 is over max-body-bytes (67108864); "
            b"send less, or raise it with CONFIG SET (at most 512mb)",
        ),
        (b"*1\r\n:1\r\n", b"expected '$', got ':'"),
        (b'PING "x\r\n', b"unbalanced quotes in request"),
        (b"PING 'x\r\n", b"unbalanced quotes in request"),
    ],
)
def test_broken_streams(world: World, data: bytes, error: bytes) -> None:
    """C2.4 A stream that breaks the format gets `-ERR Protocol error: ` and what it broke
    (docs/commands.md, Protocol errors), and the connection is closed. The commands before it are
    answered first. The broken command changes nothing.
    """
    line = world.wire()
    reply = line.answer(PING + data)
    assert reply == b"+PONG\r\n-ERR Protocol error: " + error + b"\r\n<closed>"
    assert world.wire().answer(PING) == b"+PONG\r\n"
    assert not world.n.jobs


def test_half_a_command(make_world: Callable[..., World]) -> None:
    """C2.5 If a command is not complete within `command-deadline` seconds of its first byte, the
    connection is closed.
    """
    world = make_world(events=True, command_deadline="5")
    line, other = world.wire(), world.wire()
    line.give(b"*2\r\n$4\r\nPI")
    world.pass_ms(4_500)
    assert line.answer() == b""
    world.pass_ms(2_000)
    world.pass_ms(2_000)
    assert line.answer() == b"<closed>"
    assert other.answer(PING) == b"+PONG\r\n"


def test_idle_clients(make_world: Callable[..., World]) -> None:
    """C2.5 A client that is idle for `timeout` seconds (0 = off) is closed unless it is blocked."""
    world = make_world(events=True, timeout="5")
    idle, waiting = world.wire(), world.wire()
    waiting.give(b"GETJOB FROM q\r\n")
    world.pass_ms(6_000)
    world.pass_ms(2_000)
    assert idle.answer() == b"<closed>"
    assert waiting.answer() == b""


@pytest.mark.long
def test_a_client_that_does_not_read(make_world: Callable[..., World]) -> None:
    """C2.6 A client that does not read its replies is closed when they exceed the hard limit, or
    exceed the soft limit for the configured number of seconds (`client-output-buffer-limit`).
    """
    world = make_world(events=True, client_output_buffer_limit="normal 8mb 0 0")
    line = world.wire()
    big = b"*2\r\n$4\r\nPING\r\n$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"
    server = world.server
    line.stop_reading()
    for _ in range(40):
        if not line.is_closed:
            line.give(big)
    assert server.figures.output_closed == 1
    assert world.wire().answer(PING) == b"+PONG\r\n"


@pytest.mark.parametrize("appendfsync", ["everysec", "always"])
def test_a_body_over_the_limits_of_replies_can_be_read(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture, appendfsync: str
) -> None:
    """C2.6 The longest element among them does not count: a job can be read whatever its body."""
    limit = "normal 1mb 512kb 1"
    world = make_world(client_output_buffer_limit=limit, appendfsync=appendfsync)
    body = b"x" * 6_000_000
    id = world.add(body=body)
    for words in (("SHOW", id), ("GETJOB", "FROM", "q"), ("SHOW", id)):
        slow = world.wire()
        slow.stop_reading()
        slow.give(encode(*words))
        world.pass_ms(3_000)
        slow.read_on()
        assert slow.answer().count(body) == 1, words
        assert slow.answer(PING) == b"+PONG\r\n"
    slow.stop_reading()
    slow.give(encode("SHOW", id) * 2)
    assert world.server.figures.output_closed == 1
    assert "hard limit of client-output-buffer-limit (1048576 bytes)" in caplog.text
    assert "its last command was SHOW" in caplog.text


def test_quit(world: World) -> None:
    """C3.1 `QUIT`: `+OK`; the connection is closed after that is sent. Commands pipelined after
    QUIT are dropped.
    """
    assert world.wire().answer(PING + b"QUIT\r\n" + PING) == b"+PONG\r\n+OK\r\n<closed>"


def test_unknown_command(world: World) -> None:
    """C3.2 Unknown name: `-ERR unknown command '<as typed>'`."""
    assert world.run("FrOb", "x") == "ERR unknown command 'FrOb'"


def test_arity(world: World) -> None:
    """C3.3 Wrong number of arguments: `-ERR wrong number of arguments for '<lowercase name>'
    command`.
    """
    for name, arity in [(row.name, row.arity) for row in COMMAND_ROWS]:
        if arity in (0, -1):
            continue
        error = f"ERR wrong number of arguments for '{name.lower()}' command"
        count = abs(arity)
        if count > 1:
            assert world.run(name, *["x"] * (count - 2)) == error
        if arity > 0:
            assert world.run(name, *["x"] * count) == error


def test_authentication_comes_third(make_world: Callable[..., World]) -> None:
    """C3.4 A password is set, the session is not authenticated, and the command is neither AUTH nor
    HELLO: `-NOAUTH Authentication required.`
    """
    world = make_world(events=True, requirepass="secret")
    assert world.run("FROB") == "ERR unknown command 'FROB'"
    assert world.run("SHOW").startswith("ERR wrong number")
    closed = [row for row in COMMAND_ROWS if row.name not in ("AUTH", "HELLO", "QUIT", "RESET")]
    for first in range(0, len(closed), 20):  # N6.6: so many before a log-in
        world = make_world(events=True, requirepass="secret")
        for name, arity in [(row.name, row.arity) for row in closed[first : first + 20]]:
            words = ["x"] * (max(1, abs(arity)) - 1)
            assert world.run(name, *words) == "NOAUTH Authentication required.", name


def test_out_of_memory_comes_fourth(world: World) -> None:
    """C3.5 If it is still above 100 % and the command is denied then (M2.3): `-OOM command not
    allowed when used memory > 'maxmemory': let jobs end, or raise maxmemory`
    """
    world.add()
    world.n.limits.memory_bytes = 1
    oom = "OOM command not allowed when used memory > 'maxmemory': let jobs end, or raise maxmemory"
    assert world.run("ADDJOB", "q", "b", "not a number") == oom
    assert world.run("ENQUEUE", "not an id") == oom
    assert world.run("ACKJOB", "not an id").startswith("BADID")


@pytest.mark.parametrize("want", ["memory", "disk"])
def test_a_node_without_room_sends_to_the_leader(
    make_world: Callable[..., World], want: str
) -> None:
    """C3.5 About a tube that another node leads, as in C3.6: `-TUBEHOME`, also in place of
    `-DISKFULL` (J6.9).
    """
    world = make_world(2, disk_free_min="1mb")
    world.run("TUBE", "CREATE", "t", "fifo", "SYNC", "majority", "ALONE")
    world.settle()
    full = world.wire(1)
    if want == "memory":
        world.node(1).core.limits.memory_bytes = 1
    else:
        world.disk(1).full(1000)
        world.pass_ms(2_000)
    assert full("ADDJOB", "q", "b", 0).startswith("OOM" if want == "memory" else "DISKFULL")
    assert full("ADDJOB", "t", "b", 0).startswith("TUBEHOME")


def test_misconf(world: World) -> None:
    """C3.6 The journal cannot be written and the command writes, or is PING: `-MISCONF Errors
    writing to the AOF file: <reason>`.
    """
    error = "MISCONF Errors writing to the AOF file: No space left on device"
    job_id = world.add()
    world.server.journal_error = "No space left on device"
    asked = (
        ["ADDJOB", "q", "b", 0],
        ["ACKJOB", job_id],
        ["GETJOB", "FROM", "q"],
        ["PAUSE", "q", "in"],
        ["PING"],
    )
    world.run.put(b"".join(encode(*words) for words in asked))  # at the end of a turn it is well
    assert world.run.take_all() == [error] * len(asked)
    world.server.journal_error = ""
    assert world.qlen() == 1


def test_loading(world: World) -> None:
    """C3.7 The journal is still loading and the command is not allowed then: `-LOADING Tuque is
    loading its journal, <p> % done: try again soon`.
    """
    world.server.is_loading = True
    for name, arity, flags in [(row.name, row.arity, row.flags) for row in COMMAND_ROWS]:
        if "loading" in flags.split():
            continue
        words = ["x"] * (max(1, abs(arity)) - 1)
        loading = "LOADING Tuque is loading its journal, 0 % done: try again soon"
        assert world.run(name, *words) == loading, name
    assert not isinstance(world.run("INFO"), str)
    world.server.is_loading = False


def test_monitors_see_it_first(world: World) -> None:
    """C3.8 The command runs. First monitors see it; afterwards the slow log, latency and statistics
    count it, and waiting clients are served (V3).
    """
    watcher = world.wire()
    assert watcher("MONITOR") == b"OK"
    world.run("CONFIG", "SET", "slowlog-log-slower-than", "0")
    watcher.hear()
    world.run("ADDJOB", "q", "b", 0)
    assert b'"ADDJOB" "q" "b" "0"' in watcher.hear()
    newest = world.run("SLOWLOG", "GET", 1)[0]
    assert newest[3] == [b"ADDJOB", b"q", b"b", b"0"]
    assert b"cmdstat_addjob:calls=1," in world.run("INFO", "commandstats")


def test_input_of_a_blocked_client_is_kept(world: World) -> None:
    """C3.9 While a client is blocked, or while CLIENT PAUSE is in force, its input is kept and runs
    later in order.
    """
    waiting, other = world.wire(), world.wire()
    assert waiting.answer(b"GETJOB FROM q\r\nPING a\r\n") == b""
    waiting.give(b"PING b\r\n")
    job_id = other.answer(b"ADDJOB q body 0\r\n")[1:41]
    job = b"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n" + job_id + b"\r\n$4\r\nbody\r\n"
    assert waiting.answer() == job + b"$1\r\na\r\n$1\r\nb\r\n"
    assert other.answer(b"CLIENT PAUSE 1000\r\n") == b"+OK\r\n"
    assert waiting.answer(b"PING c\r\nPING d\r\n") == b""
    world.pass_ms(1_100)
    assert waiting.answer() == b"$1\r\nc\r\n$1\r\nd\r\n"


NO_INTEGERS = ["", " 1", "1 ", "1x", "0x1", "1.0", str(1 << 63), str(-1 << 63), "٣"]


@pytest.mark.parametrize("word", NO_INTEGERS)
def test_integers(world: World, word: str) -> None:
    """C4.2 An integer is an optional sign and decimal digits, from -(2^63-1) to 2^63-1. An empty
    string, spaces or trailing bytes are not an integer: `-ERR value is not an integer or out of
    range`.
    """
    error = "ERR value is not an integer or out of range"
    assert world.run("QPEEK", "q", word) == error
    for good in ("+1", str((1 << 63) - 1), str(1 - (1 << 63))):
        assert world.run("QPEEK", "q", good) == []


def test_ids_are_checked_first(world: World) -> None:
    """C4.3 Commands with several ids check all ids first (G6.3)."""
    job_id = world.add()
    assert world.run("ACKJOB", job_id, "x").startswith("BADID")
    assert world.state(job_id) == "queued"
    for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"):
        assert world.run(command) == 0


def test_error_text_is_one_line(world: World) -> None:
    """C4.5 If an error repeats text that a client sent, line ends become spaces."""
    world.run.hear()
    from tuque.server.commands.dispatch import execute

    execute(world.server, world.run.c, [b"evil\r\n+OK\r\n"])
    data = world.run.hear()
    assert data.count(b"\r\n") == 1
    assert data.endswith(b"\r\n")


def test_hello_of_disque(world: World) -> None:
    """C5.1 `HELLO` without an argument replies as Disque does: an array of `:1`, the node id, and
    for each known node an array of id, address, port and priority, all bulk strings.
    """
    reply = world.run("HELLO")
    assert reply[:2] == [1, name_of(0)]
    assert reply[2][0] == name_of(0)
    assert reply[2][3] == b"1"
    assert reply[2][2].isdigit()


def test_a_node_knows_its_address(make_world: Callable[..., World]) -> None:
    """C5.1 The node's own address is `cluster-announce-ip`, else the address that the client has
    connected to; over a unix socket it is empty. CLUSTER NODES shows the same.
    """
    for options in ({}, {"cluster_announce_ip": "node-1.example"}):
        world = make_world(**options)
        own = str(options.get("cluster_announce_ip", world.run.c.sock.getsockname()[0]))
        assert own and world.run("HELLO")[2][1] == own.encode()
        assert b" %s:" % own.encode() in world.run("CLUSTER", "NODES")


def test_hello_of_redis(world: World) -> None:
    """C5.2 `HELLO 2|3 [AUTH user password] [SETNAME name]` sets the protocol and replies as Redis
    does, with server, version, proto, id, mode, role, modules. Another version: `-NOPROTO
    unsupported protocol version`.
    """
    flat = world.run("HELLO", 2, "SETNAME", "me")
    fields = [b"server", b"version", b"proto", b"id", b"mode", b"role", b"modules"]
    assert flat[0::2] == fields
    assert list(world.run("HELLO", 3)) == fields
    assert world.run("CLIENT", "GETNAME") == b"me"
    assert world.run("HELLO", 4) == "NOPROTO unsupported protocol version"


def test_auth(make_world: Callable[..., World]) -> None:
    """C5.3 `AUTH password` without a password configured: `-ERR Client sent AUTH, but no password
    is set`; wrong: `-ERR invalid password`, and the session is no longer authenticated; right:
    `+OK`. `AUTH default password` means the same.
    """
    open_box = make_world(events=True)
    assert open_box.run("AUTH", "x") == "ERR Client sent AUTH, but no password is set"
    open_box.close()
    world = make_world(events=True, requirepass="secret")
    assert world.run("AUTH", "default", "secret") == b"OK"
    assert world.run("PING") == b"PONG"
    assert world.run("AUTH", "wrong") == "ERR invalid password"
    assert world.run("PING").startswith("NOAUTH")
    assert world.run("AUTH", "someone", "secret").startswith("WRONGPASS ")


def test_a_new_password(world: World) -> None:
    """C5.4 Setting `requirepass` at run time makes every session of `default` unauthenticated, the
    caller's too.
    """
    other = world.wire()
    assert world.run("CONFIG", "SET", "requirepass", "s") == b"OK"
    assert world.run("PING").startswith("NOAUTH")
    assert other("PING").startswith("NOAUTH")


def test_resp3(world: World) -> None:
    """C6.1 After `HELLO 3` both nulls are written `_`. HELLO, CONFIG GET, COMMAND DOCS and TUBE
    INFO, STATISTICS and CFG are maps. Everything else is as in RESP2.
    """
    world.run("HELLO", 3)
    assert world.run("SHOW", "D-12345678-123456789012345678901234-0001") is NULL
    assert isinstance(world.run("CONFIG", "GET", "port"), dict)
    assert isinstance(world.run("COMMAND", "DOCS", "PING"), dict)
    assert isinstance(world.run("TUBE", "CFG"), dict)
    assert isinstance(world.run("SHOW", world.add()), list)


@pytest.mark.parametrize(
    ("command", "null"),
    [
        (b"SHOW D-12345678-123456789012345678901234-0001", b"$-1\r\n"),
        (b"QSTAT none", b"*-1\r\n"),
        (b"GETJOB NOHANG FROM none", b"*-1\r\n"),
        (b"QPEEK none 1", b"*0\r\n"),
        (b"CONFIG GET nothing-like-it", b"*0\r\n"),
        (b"CLIENT GETNAME", b"$-1\r\n"),
    ],
)
def test_null_forms(world: World, command: bytes, null: bytes) -> None:
    """C6.2 In RESP2 a null bulk is `$-1`, a null array `*-1`, an empty array `*0`. Each command
    defines which one it uses.
    """
    assert world.wire().answer(command + b"\r\n") == null
    if null != b"*0\r\n":
        line = world.wire()
        line.answer(b"HELLO 3\r\n")
        assert line.answer(command + b"\r\n") == b"_\r\n"
