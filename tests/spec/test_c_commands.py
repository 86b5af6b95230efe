"""SPEC C7-C9: session commands, the order of one turn, the words of errors."""

from __future__ import annotations

from node_by_hand import NULL, Box, Line, Wired

from tuque.server.commands.dispatch import HANDLERS
from tuque.wire.commands.commands import ROWS

PING = b"*1\r\n$4\r\nPING\r\n"


def test_ping(box: Box) -> None:
    """C7.1 PING replies `+PONG`, or its one argument as a bulk. More arguments: `-ERR wrong number
    of arguments for 'ping' command`.
    """
    assert box.run("PING") == "PONG"
    assert box.run("PING", "x") == b"x"
    assert box.run("PING", "x", "y") == "ERR wrong number of arguments for 'ping' command"


def test_client(box: Box) -> None:
    """C7.2 CLIENT LIST, GETNAME, SETNAME, ID, SETINFO, INFO, KILL, PAUSE, REPLY, TRACKING OFF,
    NO-EVICT and NO-TOUCH are supported. Another subcommand: `-ERR Syntax error, try CLIENT (LIST |
    KILL ip:port | GETNAME | SETNAME connection-name)`.
    """
    assert box.run("CLIENT", "SETNAME", "me") == "OK"
    assert b"name=me " in box.run("CLIENT", "LIST")
    assert b"name=me " in box.run("CLIENT", "INFO")
    assert box.run("CLIENT", "ID") == 1
    for words in (
        ["SETINFO", "LIB-NAME", "x"],
        ["TRACKING", "OFF"],
        ["NO-EVICT", "ON"],
        ["NO-TOUCH", "ON"],
    ):
        assert box.run("CLIENT", *words) == "OK"
    assert box.run("CLIENT", "KILL", "10.0.0.1:1") == "ERR No such client"
    bad = "ERR Client names cannot contain spaces, newlines or special characters."
    assert box.run("CLIENT", "SETNAME", "a b") == bad
    assert box.run("CLIENT", "FROB") == (
        "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
    )


def test_reply_off(box: Box) -> None:
    """C7.3 After CLIENT REPLY OFF commands run without replies. GETJOB then takes nothing, because
    its jobs would be lost.
    """
    box.add()
    assert box.run("CLIENT", "REPLY", "OFF") is None
    assert box.run("ADDJOB", "q", "b", 0) is None
    assert box.run("GETJOB", "FROM", "q") is None
    assert box.run("GETJOB", "FROM", "empty") is None
    assert not box.run.c.is_blocked
    assert box.run("CLIENT", "REPLY", "ON") == "OK"
    assert box.qlen() == 2
    assert box.run("CLIENT", "REPLY", "SKIP") is None
    assert box.run("PING") is None
    assert box.run("PING") == "PONG"


def test_reset_and_select(box: Box) -> None:
    """C7.4 RESET returns the session to C1.2 and replies `+RESET`. SELECT 0 replies `+OK`; another
    number: `-ERR DB index is out of range`.
    """
    box.run("HELLO", 3, "SETNAME", "me")
    assert box.run("RESET") == "RESET"
    assert box.run("CLIENT", "GETNAME") is NULL
    assert box.run("SELECT", 0) == "OK"
    assert box.run("SELECT", 1) == "ERR DB index is out of range"


def test_monitor(box: Box) -> None:
    """C7.5 MONITOR replies `+OK` and then sends one line per command of any client, `+<s>.<us>
    [<address>] "word" ...`.
    """
    watcher = box.session()
    assert watcher("MONITOR") == "OK"
    box.run("PING")
    assert watcher.raw().endswith(b'"PING"\r\n')
    box.run("AUTH", "hush")
    box.run("CONFIG", "SET", "requirepass", "hush")
    shown = watcher.raw()
    assert shown.count(b"\r\n") == 2
    assert b"hush" not in shown


def test_config_get(box: Box) -> None:
    """C7.7 CONFIG GET takes one or more patterns and returns each matching option once.
    `requirepass` and other secrets are shown as `********`, or as empty if they are not set.
    """
    assert box.run("CONFIG", "GET", "requirepass") == [b"requirepass", b""]
    assert box.run("CONFIG", "GET", "hz", "h?", "none") == [b"hz", b"10"]
    box.run("CONFIG", "SET", "requirepass", "hush")
    box.run("AUTH", "hush")
    both = box.run("CONFIG", "GET", "requirepass", "hz")
    assert both == [b"requirepass", b"********", b"hz", b"10"]


def test_every_command_is_answered(box: Box) -> None:
    """C7.6 docs/commands.md specifies TIME, COMMAND [COUNT|INFO|DOCS|LIST], SLOWLOG, LATENCY,
    CONFIG, DEBUG, SHUTDOWN and BGREWRITEAOF.
    """
    direct = {"ADDJOB", "GETJOB", "ACKJOB", "FASTACK", "DELJOB"}
    names = [name for name, *_ in ROWS]
    for name in names:
        assert name in direct or name.lower().encode() in HANDLERS, name
    assert box.run("COMMAND", "COUNT") == len(names)
    assert sorted(row[0].decode().upper() for row in box.run("COMMAND")) == sorted(names)
    assert sorted(word.decode().upper() for word in box.run("COMMAND", "LIST")) == sorted(names)
    seconds, micros = box.run("TIME")
    assert int(seconds) > 1_700_000_000
    assert 0 <= int(micros) < 1_000_000


def test_one_write_for_many_commands(wired: Wired) -> None:
    """C8.1 The node reads all sockets that have input, and runs all commands, connection by
    connection.
    """
    one, two = wired.line(), wired.line()
    one.sock.sendall(b"ADDJOB q a 0\r\nADDJOB q b 0\r\n")
    two.sock.sendall(b"QLEN q\r\n")
    assert len(one.read().split()) == 2
    assert two.read() in (b":2\r\n", b":0\r\n")


def test_first_words(box: Box) -> None:
    """C9.1 The first word of an error is one of these; clients may rely on it."""
    known = set(
        "ERR BADID NOREPL MAXLEN PAUSED NOJOB ACKED NOTDELIVERED TOOLATE LEAVING NOAUTH OOM "
        "MISCONF LOADING NOPROTO DENIED CONFLICT FENCED NOGROUP NOBATCH NOSTAGE NOWORKER "
        "NOREACH FEWCOPIES TUBESAPART "
        "NOTUBE NOTASK NOTTAKEN WRONGTUBE STALE ATWORK CANCELLED DEAD NOPERM WRONGPASS "
        "QUOTA DUPLICATE NOSCHEDULE NOJOBGROUP".split()
    )
    import re
    from pathlib import Path

    import tuque

    words = set()
    for path in Path(tuque.__file__).parent.glob("*/**/*.py"):
        if path.relative_to(Path(tuque.__file__).parent).parts[0] in ("wire", "server"):
            words |= set(re.findall(r'b"([A-Z]{3,})\b (?=[A-Za-z])', path.read_text("utf-8")))
    assert {"ERR", "BADID", "NOJOB"} <= words
    replies = words & known
    assert words - replies <= set(
        "HELLO SYNC HEADERS DEAD PRIVATE CANCEL IDS RATE START WORKER DONE GETJOB LEASE "
        "SCHEDULE GROUP TOPIC FILTER LIMIT ENGINE".split()
    ), words - known  # an ERR goes before these


def test_pipelined_replies_leave_together(wired: Wired) -> None:
    """C8.2 Then it hands the journal records to their writer, then sends the bus frames, then the
    replies, with one write per connection.
    """
    line: Line = wired.line()
    line.sock.sendall(PING * 500)
    wired.pump.turn(10)
    wired.pump.turn(0)
    assert line.sock.recv(1 << 16) == b"+PONG\r\n" * 500
