"""SPEC C7-C9: session commands, the order of one turn, the words of errors."""

from __future__ import annotations

from raw_resp import NULL
from tuque.server.commands.dispatch import HANDLERS
from tuque.wire.commands.rows import COMMAND_ROWS
from world import World
from world_wires import Wire

PING = b"*1\r\n$4\r\nPING\r\n"


def test_ping(world: World) -> None:
    """C7.1 PING replies `+PONG`, or its one argument as a bulk. More arguments: `-ERR wrong number
    of arguments for 'ping' command`.
    """
    assert world.run("PING") == b"PONG"
    assert world.run("PING", "x") == b"x"
    assert world.run("PING", "x", "y") == "ERR wrong number of arguments for 'ping' command"


def test_client(world: World) -> None:
    """C7.2 LIST, GETNAME, SETNAME, ID, SETINFO, INFO, KILL, UNBLOCK, PAUSE, REPLY, TRACKING OFF,
    NO-EVICT and NO-TOUCH are supported. Another subcommand: `-ERR Syntax error, try CLIENT (LIST |
    KILL ip:port | GETNAME | SETNAME connection-name)`.
    """
    assert world.run("CLIENT", "SETNAME", "me") == b"OK"
    assert b"name=me " in world.run("CLIENT", "LIST")
    assert b"name=me " in world.run("CLIENT", "INFO")
    assert world.run("CLIENT", "ID") == 1
    for words in (
        ["SETINFO", "LIB-NAME", "x"],
        ["TRACKING", "OFF"],
        ["NO-EVICT", "ON"],
        ["NO-TOUCH", "ON"],
    ):
        assert world.run("CLIENT", *words) == b"OK"
    assert world.run("CLIENT", "KILL", "10.0.0.1:1") == "ERR No such client"
    bad = "ERR Client names cannot contain spaces, newlines or special characters."
    assert world.run("CLIENT", "SETNAME", "a b") == bad
    assert world.run("CLIENT", "FROB") == (
        "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
    )


def test_reply_off(world: World) -> None:
    """C7.3 After CLIENT REPLY OFF commands run without replies. GETJOB then takes nothing, because
    its jobs would be lost.
    """
    world.add()
    assert world.run("CLIENT", "REPLY", "OFF") is None
    assert world.run("ADDJOB", "q", "b", 0) is None
    assert world.run("GETJOB", "FROM", "q") is None
    assert world.run("GETJOB", "FROM", "empty") is None
    assert not world.run.c.is_blocked
    assert world.run("CLIENT", "REPLY", "ON") == b"OK"
    assert world.qlen() == 2
    assert world.run("CLIENT", "REPLY", "SKIP") is None
    assert world.run("PING") is None
    assert world.run("PING") == b"PONG"


def test_reset_and_select(world: World) -> None:
    """C7.4 RESET returns the session to C1.2 and replies `+RESET`. SELECT 0 replies `+OK`; another
    number: `-ERR DB index is out of range`.
    """
    world.run("HELLO", 3, "SETNAME", "me")
    assert world.run("RESET") == b"RESET"
    assert world.run("CLIENT", "GETNAME") is NULL
    assert world.run("SELECT", 0) == b"OK"
    assert world.run("SELECT", 1) == "ERR DB index is out of range"


def test_monitor(world: World) -> None:
    """C7.5 MONITOR replies `+OK` and then sends one line per command of any client, `+<s>.<us>
    [<address>] "word" ...`.
    """
    watcher = world.wire()
    assert watcher("MONITOR") == b"OK"
    world.run("PING")
    assert watcher.hear().endswith(b'"PING"\r\n')
    world.run("AUTH", "hush")
    world.run("CONFIG", "SET", "requirepass", "hush")
    shown = watcher.hear()
    assert shown.count(b"\r\n") == 2
    assert b"hush" not in shown


def test_config_get(world: World) -> None:
    """C7.7 CONFIG GET takes one or more patterns, at most 32 of at most 128 bytes each, and
    returns each matching option once. `requirepass` and other secrets are shown as `********`,
    or as empty if they are not set.
    """
    assert world.run("CONFIG", "GET", "requirepass") == [b"requirepass", b""]
    assert world.run("CONFIG", "GET", "hz", "h?", "none") == [b"hz", b"10"]
    world.run("CONFIG", "SET", "requirepass", "hush")
    world.run("AUTH", "hush")
    both = world.run("CONFIG", "GET", "requirepass", "hz")
    assert both == [b"requirepass", b"********", b"hz", b"10"]


def test_every_command_is_answered(world: World) -> None:
    """C7.6 This page specifies PING, CLIENT, RESET, MONITOR, CONFIG (the other steps of C7),
    TIME, COMMAND [COUNT|INFO|DOCS|LIST], SLOWLOG, LATENCY, DEBUG, SHUTDOWN and BGREWRITEAOF.
    """
    direct = {"ADDJOB", "GETJOB", "ACKJOB", "FASTACK", "DELJOB"}
    names = [row.name for row in COMMAND_ROWS]
    for name in names:
        assert name in direct or name.lower().encode() in HANDLERS, name
    assert world.run("COMMAND", "COUNT") == len(names)
    assert sorted(row[0].decode().upper() for row in world.run("COMMAND")) == sorted(names)
    assert sorted(word.decode().upper() for word in world.run("COMMAND", "LIST")) == sorted(names)
    seconds, micros = world.run("TIME")
    assert int(seconds) > 1_700_000_000
    assert 0 <= int(micros) < 1_000_000


def test_one_write_for_many_commands(world: World) -> None:
    """C8.1 The node reads all sockets that have input, and runs all commands, connection by
    connection.
    """
    one, two = world.wire(), world.wire()
    one.put(b"ADDJOB q a 0\r\nADDJOB q b 0\r\n")
    two.put(b"QLEN q\r\n")
    assert len(one.answer().split()) == 2
    assert two.answer() in (b":2\r\n", b":0\r\n")


def test_first_words(world: World) -> None:
    """C9.1 The first word of an error is one of these; clients may rely on it."""
    known = set(
        "ERR BADID NOREPL MAXLEN PAUSED NOJOB ACKED NOTDELIVERED TOOLATE LEAVING NOAUTH OOM "
        "MISCONF LOADING NOPROTO DENIED CONFLICT FENCED NOGROUP NOBATCH NOSTAGE NOWORKER "
        "NOREACH FEWCOPIES TUBESAPART DISKFULL "
        "NOTUBE NOTASK NOTTAKEN WRONGTUBE STALE ATWORK CANCELLED DEAD NOPERM WRONGPASS "
        "QUOTA DUPLICATE NOSCHEDULE NOJOBGROUP".split()
    )
    import re
    from pathlib import Path

    words = set()
    package = Path(__file__).parents[2] / "src" / "tuque"
    for path in package.glob("*/**/*.py"):
        if path.relative_to(package).parts[0] in ("wire", "server"):
            words |= set(re.findall(r'b"([A-Z]{3,})\b (?=[A-Za-z])', path.read_text("utf-8")))
    assert {"ERR", "BADID", "NOJOB"} <= words
    replies = words & known
    assert words - replies <= set(
        "HELLO SYNC HEADERS DEAD PRIVATE CANCEL IDS RATE START WORKER DONE GETJOB LEASE "
        "SCHEDULE GROUP TOPIC FILTER LIMIT ENGINE CLUSTER TUBE VALUE TTL COUNT KEY "
        "QUEUE".split()
    ), words - known  # an ERR goes before these


def test_pipelined_replies_leave_together(world: World) -> None:
    """C8.2 Then it hands the journal records to their writer, then sends the bus frames, then the
    replies, with one write per connection.
    """
    line: Wire = world.wire()
    came: list[int] = []
    world.lab.after_turn = lambda _: came.append(int(world.server.figures.out_bytes))
    line.put(PING * 500)
    world.settle()
    assert line.hear() == b"+PONG\r\n" * 500
    assert set(came) <= {0, 7 * 500}


def test_a_wait_is_ended_by_another_client(world: World) -> None:
    """C7.12 UNBLOCK ends the wait of the client with that id in GETJOB, TUBE TAKE, RESULT, WAITJOB
    or VALUE WAIT: it gets its reply as at its timeout.
    """
    world.run("TUBE", "CREATE", "t", "tasks")
    job_id = world.add()
    ends: list[tuple[list[str | int], bytes]] = [
        (["GETJOB", "FROM", "none"], b"*-1\r\n"),
        (["TUBE", "TAKE", "t", "TIMEOUT", 60], b"*-1\r\n"),
        (["WAITJOB", 0, job_id.decode()], b"*0\r\n"),
        (["VALUE", "WAIT", "t", 0, "v"], b"*0\r\n"),
    ]
    for words, reply in ends:
        wire = world.wire()
        number = wire("CLIENT", "ID")
        assert world.run("CLIENT", "UNBLOCK", number) == 0
        wire.send(*words)
        assert wire.hear() == b""
        assert world.run("CLIENT", "UNBLOCK", number) == 1, words
        assert wire.hear() == reply, words
        assert world.run("CLIENT", "UNBLOCK", number) == 0
        assert wire("PING") == b"PONG"
    assert world.run("CLIENT", "UNBLOCK", 999) == 0
    assert str(world.run("CLIENT", "UNBLOCK", "x")) == "ERR the id of a client is a number"
    world.run("DEBUG", "CHECK")


def test_only_a_user_ends_its_own_waits(world: World) -> None:
    """C7.12 or 0 if that client did not wait for these, is not there, or has another user."""
    for name in ("ann", "bob"):
        world.run("ACL", "SETUSER", name, "on", "nopass", "~*", "+@all")
    ann, bob = world.wire(), world.wire()
    ann("AUTH", "ann", "pw")
    bob("AUTH", "bob", "pw")
    number = ann("CLIENT", "ID")
    ann.send("GETJOB", "FROM", "q")
    assert bob("CLIENT", "UNBLOCK", number) == 0
    assert world.run("CLIENT", "UNBLOCK", number) == 0
    other = world.wire()
    other("AUTH", "ann", "pw")
    assert other("CLIENT", "UNBLOCK", number) == 1
