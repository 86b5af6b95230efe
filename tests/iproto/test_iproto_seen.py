"""What operators see of IPROTO clients, and how they end them (SPEC I4.9, C7.2, C7.5)."""

from __future__ import annotations

import re

import pytest

from iproto_raw import login
from raw_resp import Wire
from tuque.core.queues.procedures import check
from world import World

PUT, TAKE = "queue.tube.t:put", "queue.tube.t:take"


def ask(world: World, wire: Wire, *words: str) -> bytes:
    """A RESP command and its answer."""
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    return wire.say(f"*{len(words)}\r\n{''.join(parts)}".encode())


def lines(world: World, wire: Wire) -> list[str]:
    """What a monitor was shown since the last look, without time and address."""
    told = wire.hear().decode()
    assert re.fullmatch(r"(\+\d+\.\d{6} \[[^\]]+\] [^\r]*\r\n)*", told), told
    return [line.split("] ", 1)[1] for line in told.splitlines()]


def test_monitor_shows_requests(guarded: World) -> None:
    """I4.9: "MONITOR and SLOWLOG show a request as its type, the function, and its arguments"."""
    watcher = guarded.wire()
    assert ask(guarded, watcher, "MONITOR") == b"+OK\r\n"
    admin = login(guarded, "admin")
    admin.call("queue.create_tube", "t", "fifottl", {"ttl": 5})
    admin.call(PUT, {"a": [1, None, 2.5]}, {"pri": 1})
    admin.call(PUT, b"\xff\n")
    admin.hear(admin.ask(6, {0x22: TAKE, 0x21: [0.5]}))
    admin.hear(admin.ask(8, {0x27: "return queue.tube[...] ~= nil", 0x21: ["t"]}))
    admin.hear(admin.ask(64))
    admin.hear(admin.ask(1, {0x10: 281, 0x20: []}))
    shown = lines(guarded, watcher)
    assert shown[0].startswith('"AUTH"') and "(redacted)" in shown[0]
    assert len(shown[0]) < 60, "no proof of a password"
    assert shown[1:] == [
        '"CALL" "queue.create_tube" "t" "fifottl" "{\\"ttl\\":5}"',
        '"CALL" "queue.tube.t:put" "{\\"a\\":[1,null,2.5]}" "{\\"pri\\":1}"',
        '"CALL" "queue.tube.t:put" "\\xff\\n"',
        '"CALL_16" "queue.tube.t:take" "0.5"',
        '"EVAL" "return queue.tube[...] ~= nil" "t"',
        '"PING"',
        '"SELECT" "281"',
    ]


def test_monitor_does_not_show_what_is_refused(guarded: World) -> None:
    """I4.9: "A request that is refused before it is run MONITOR does not show"."""
    watcher = guarded.wire()
    ask(guarded, watcher, "MONITOR")
    bob = login(guarded, "bob")
    assert len(lines(guarded, watcher)) == 1
    assert bob.call(PUT, 1)[1] == 42
    assert bob.hear(bob.ask(8, {0x27: "x", 0x21: []})).code == 42
    guarded.server.journal_error = "disk full"
    guarded.server.users.by_name[b"bob"].is_admin = True
    assert bob.call("queue.create_tube", "t", "fifo")[1] == 40
    guarded.server.journal_error = ""
    assert bob.call("queue.create_tube", "t", "fifo") == []
    assert lines(guarded, watcher) == ['"CALL" "queue.create_tube" "t" "fifo"']
    guarded.server.journal_error = "disk full"
    assert bob.call(PUT, 1)[1] == 40
    guarded.server.journal_error = ""
    assert bob.call("queue.tube.none:put", 1)[1] == 33
    assert lines(guarded, watcher) == []


def test_slow_requests_are_kept(guarded: World) -> None:
    """I4.9, C7.6."""
    wire = guarded.wire()
    admin = login(guarded, "admin")
    ask(guarded, wire, "CONFIG", "SET", "slowlog-log-slower-than", "-1")
    admin.call("queue.create_tube", "t", "fifo")
    assert ask(guarded, wire, "SLOWLOG", "LEN") == b":0\r\n"
    ask(guarded, wire, "CONFIG", "SET", "slowlog-log-slower-than", "0")
    ask(guarded, wire, "SLOWLOG", "RESET")
    admin.call(PUT, "x" * 500)
    admin.log_in("admin", "a")
    told = ask(guarded, wire, "SLOWLOG", "GET", "3")
    assert b"queue.tube.t:put" in told and b"x" * 128 + b"... (372 more bytes)" in told
    assert b"$4\r\nAUTH\r\n$10\r\n(redacted)" in told
    assert guarded.server.latency.events == {}
    guarded.server.latency_ms = 1
    guarded.server.slow_ns = -1
    asked = [admin.ask_call(PUT, number) for number in range(5000)]
    for sync in asked:
        admin.hear(sync)
    admin.call("queue.tube.t:truncate")
    assert "iproto-request" in guarded.server.latency.events


def fields(line: str) -> dict[str, str]:
    """The fields of a line of CLIENT LIST."""
    return dict(word.split("=", 1) for word in line.split(" "))


def listed(world: World, wire: Wire) -> list[dict[str, str]]:
    """What CLIENT LIST tells of IPROTO connections."""
    told = ask(world, wire, "CLIENT", "LIST").decode().split("\r\n", 1)[1]
    rows = [fields(line) for line in told.strip().splitlines()]
    assert sum("proto" not in row for row in rows) == 1, "the asking connection"
    return [row for row in rows if row.get("proto") == "iproto"]


def test_client_list(guarded: World) -> None:
    """I4.9: "CLIENT LIST shows the connections with `user`, `proto=iproto`"."""
    wire = guarded.wire()
    admin, guest = login(guarded, "admin"), guarded.iproto()
    admin.call("queue.create_tube", "t", "fifo")
    admin.ask_call(TAKE)
    guest.call("bad name\n of nothing")
    one, two = listed(guarded, wire)
    assert (one["user"], one["cmd"], one["flags"]) == ("admin", TAKE, "b")
    assert (two["user"], two["cmd"], two["flags"]) == ("guest", "bad?name??of?nothing", "N")
    assert one["id"] != two["id"] and int(one["fd"]) > 0 and one["qbuf"] == "0"


@pytest.mark.parametrize("way", ["ID", "ADDR"])
def test_client_kill(guarded: World, way: str) -> None:
    """I4.9: "CLIENT KILL closes them": nothing is taken or put by their calls (I7.5)."""
    wire = guarded.wire()
    admin, other = login(guarded, "admin"), login(guarded, "admin")
    other.call("queue.create_tube", "t", "limfifottl", {"capacity": 1})
    admin.ask_call(TAKE)
    other.call("queue.create_tube", "u", "limfifottl", {"capacity": 1})
    other.call("queue.tube.u:put", 1)
    admin.ask_call("queue.tube.u:put", 2, {"timeout": 100})
    (row, _) = listed(guarded, wire)
    assert row["flags"] == "b"
    if way == "ID":
        killed = ask(guarded, wire, "CLIENT", "KILL", "ID", row["id"])
    else:
        w = guarded.server.wired_by_number[int(row["id"])]
        w.address = "10.0.0.9:4"
        killed = ask(guarded, wire, "CLIENT", "KILL", "ADDR", "10.0.0.9:4", "TYPE", "normal")
    assert killed == b":1\r\n" and not admin.is_open() and len(listed(guarded, wire)) == 1
    assert other.call("queue.tube.u:delete", 0)[0][1] == "-"
    assert other.call("queue.statistics", "u")[0]["tasks"]["total"] == 0
    assert other.call(PUT, "x") == [[0, "r", "x"]]
    check(guarded.n)
    assert ask(guarded, wire, "CLIENT", "KILL", "10.0.0.9:5").startswith(b"-ERR No such client")


def test_a_killed_client_takes_nothing_in_the_same_turn(guarded: World) -> None:
    """V6.1: what comes in the rest of the turn is for others."""
    wire = guarded.wire()
    admin = login(guarded, "admin")
    admin.call("queue.create_tube", "t", "fifo")
    admin.ask_call(TAKE)
    (row,) = listed(guarded, wire)
    kill = f"*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$2\r\nID\r\n${len(row['id'])}\r\n{row['id']}\r\n"
    put = "*4\r\n$4\r\nTUBE\r\n$3\r\nPUT\r\n$1\r\nt\r\n$1\r\nx\r\n"
    told = wire.say((kill + put).encode())
    assert told.startswith(b":1\r\n*6\r\n:0\r\n+READY")
    conn = login(guarded, "admin")
    assert conn.call(TAKE, 0) == [[0, "t", b"x"]]
    assert conn.call("queue.statistics", "t")[0]["calls"]["take"] == 1
