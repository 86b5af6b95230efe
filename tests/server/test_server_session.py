"""HELLO, AUTH, PING, QUIT, RESET, SELECT and the subcommands of CLIENT (SPEC C5, C7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from door import NODE_ID, Door, taken

from tuque import __version__

NOAUTH = b"-NOAUTH Authentication required.\r\n"


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def test_hello_of_disque(door: Door) -> None:
    node = b"*4\r\n" + bulk(NODE_ID) + b"$0\r\n\r\n$4\r\n7711\r\n$1\r\n1\r\n"
    assert door("HELLO") == b"*3\r\n:1\r\n" + bulk(NODE_ID) + node
    door("CLUSTER LEAVING yes")
    assert door("HELLO").endswith(b"$4\r\n7711\r\n$3\r\n100\r\n")


def test_hello_of_redis(door: Door) -> None:
    reply = door("HELLO 3 SETNAME worker-1")
    assert reply.startswith(b"%7\r\n$6\r\nserver\r\n")
    assert bulk(b"version") + bulk(__version__.encode()) in reply
    assert bulk(b"proto") + b":3\r\n" in reply
    assert bulk(b"id") + b":1\r\n" in reply
    assert door("CLIENT GETNAME") == bulk(b"worker-1")
    assert door("SHOW D-12345678-123456789012345678901234-0001") == b"_\r\n"
    assert door("HELLO 2").startswith(b"*14\r\n")
    assert door("SHOW D-12345678-123456789012345678901234-0001") == b"$-1\r\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("x", b"ERR Protocol version is not an integer or out of range"),
        ("1", b"NOPROTO unsupported protocol version"),
        ("4", b"NOPROTO unsupported protocol version"),
        ("3 NOSUCH", b"ERR Syntax error in HELLO option 'NOSUCH'"),
        ("3 AUTH u", b"ERR Syntax error in HELLO option 'AUTH'"),
        ("3 AUTH default pw", b"ERR Client sent AUTH, but no password is set"),
    ],
)
def test_wrong_hello(door: Door, words: str, error: bytes) -> None:
    assert door(f"HELLO {words}") == b"-" + error + b"\r\n"
    assert not door.c.resp3


def test_password(make_door: Callable[..., Door]) -> None:
    door = make_door(requirepass="pw")
    assert door("PING") == NOAUTH
    assert door("HELLO") == NOAUTH
    assert door("HELLO 3").startswith(b"-NOAUTH HELLO must be called with")
    assert door("AUTH wrong") == b"-ERR invalid password\r\n"
    assert door("AUTH pw") == b"+OK\r\n"
    assert door("PING") == b"+PONG\r\n"
    assert door("AUTH somebody pw").startswith(b"-WRONGPASS ")
    assert door("PING") == NOAUTH  # a wrong password ends the session's right
    assert door("HELLO 2 AUTH default pw").startswith(b"*14\r\n")
    assert door("AUTH default pw x") == b"-ERR wrong number of arguments for 'auth' command\r\n"
    assert door("RESET") == b"+RESET\r\n"
    assert door("PING") == NOAUTH


def test_a_new_password_locks_out_all(door: Door) -> None:
    assert door("AUTH x") == b"-ERR Client sent AUTH, but no password is set\r\n"
    assert door("CONFIG SET requirepass pw") == b"+OK\r\n"
    assert door("PING") == NOAUTH
    other = door.connect()
    assert door("AUTH pw", by=other) == b"+OK\r\n"
    assert door("AUTH pw") == b"+OK\r\n"
    assert door("CONFIG SET requirepass new") == b"+OK\r\n"
    assert door("PING") == NOAUTH
    assert door("PING", by=other) == NOAUTH
    assert door("AUTH new") == b"+OK\r\n"
    assert door("CONFIG SET requirepass", "") == b"+OK\r\n"
    assert door("PING") == b"+PONG\r\n"


def test_ping_quit_select(door: Door) -> None:
    assert door("PING") == b"+PONG\r\n"
    assert door("PING", b"a\r\nb") == bulk(b"a\r\nb")
    assert door("PING a b") == b"-ERR wrong number of arguments for 'ping' command\r\n"
    assert door("SELECT 0") == b"+OK\r\n"
    assert door("SELECT 1") == b"-ERR DB index is out of range\r\n"
    assert door("SELECT x") == b"-ERR value is not an integer or out of range\r\n"
    assert door("QUIT") == b"+OK\r\n"
    assert door.c.is_closing


def test_reset_begins_the_session_anew(door: Door) -> None:
    door("HELLO 3 SETNAME x")
    door("MONITOR")
    door("CLIENT REPLY OFF")
    assert door("RESET").endswith(b' "RESET"\r\n+RESET\r\n')
    assert door("CLIENT GETNAME") == b"$-1\r\n"
    assert door.s.monitors == []


def test_names_of_clients(door: Door) -> None:
    assert door("CLIENT GETNAME") == b"$-1\r\n"
    assert door("CLIENT SETNAME me") == b"+OK\r\n"
    bad = b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
    assert door("CLIENT SETNAME", "a b") == bad
    assert door("CLIENT GETNAME") == bulk(b"me")
    assert door("CLIENT SETNAME", "") == b"+OK\r\n"
    assert door("CLIENT GETNAME") == b"$-1\r\n"


def test_library_of_a_client(door: Door) -> None:
    assert door("CLIENT SETINFO LIB-NAME redis-py") == b"+OK\r\n"
    assert door("CLIENT SETINFO lib-ver 8.1.0") == b"+OK\r\n"
    assert door("CLIENT SETINFO color red") == b"-ERR Unrecognized option 'color'\r\n"
    bad = b"-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"
    assert door("CLIENT SETINFO lib-name", "a b") == bad
    assert door.value("CLIENT INFO").endswith(b" resp=2 lib-name=redis-py lib-ver=8.1.0\n")


def test_list_of_clients(door: Door) -> None:
    other = door.connect("unix:/run/t")
    other.is_unix = True
    door.n.now_ms += 2500
    lines = door.value("CLIENT LIST").decode().splitlines()
    fd = door.c.fd
    assert lines[0] == (
        f"id=1 addr=127.0.0.1:5001 fd={fd} name= age=2 idle=2 flags=N qbuf=0 qbuf-free=0 "
        "obl=0 oll=0 omem=0 events=r cmd=client user=default"
    )
    assert "flags=U" in lines[1] and lines[1].endswith("cmd=NULL user=default")
    assert door("CLIENT ID") == b":1\r\n"


def test_kill_by_address(door: Door) -> None:
    other = door.connect()
    assert door("CLIENT KILL 1.2.3.4:5") == b"-ERR No such client\r\n"
    assert door('CLIENT KILL ADDR ""') == b":0\r\n"
    assert door("CLIENT KILL ADDR 1.2.3.4:5") == b":0\r\n"
    assert door(f"CLIENT KILL {other.address}") == b"+OK\r\n"
    assert door.s.doomed == [other]
    assert door(f"CLIENT KILL {door.c.address}") == b"+OK\r\n"
    assert door.c.is_closing and door.c not in door.s.doomed  # its reply goes out first


def test_kill_by_filter(door: Door) -> None:
    others = [door.connect(), door.connect()]
    assert door("CLIENT KILL ID 1") == b":0\r\n"  # SKIPME
    assert door(f"CLIENT KILL ID {others[0].number} TYPE normal") == b":1\r\n"
    assert door(f"CLIENT KILL ADDR {others[1].address} SKIPME no") == b":1\r\n"
    assert door.s.doomed == others
    assert door("CLIENT KILL ID 1 SKIPME no") == b":1\r\n"
    assert door.c.is_closing
    assert door("CLIENT KILL TYPE slave") == b"-ERR Unknown client type 'slave'\r\n"
    assert door("CLIENT KILL ID x") == b"-ERR value is not an integer or out of range\r\n"
    for words in ("ID 1 TYPE", "NOSUCH 1", "ID 1 SKIPME maybe"):
        said = door(f"CLIENT KILL {words}").decode()
        at = {"ID": "TYPE", "NO": "NOSUCH"}.get(words[:2], "") if "maybe" not in words else "maybe"
        assert said.startswith(f"-ERR syntax error at '{at}': use CLIENT KILL ip:port|[ID n]"), said


def test_reply_modes(door: Door) -> None:
    assert door("CLIENT REPLY SKIP") == b""
    assert door("PING") == b""
    assert door("PING") == b"+PONG\r\n"
    assert door("CLIENT REPLY OFF") == b""
    assert door("PING") == b""
    assert door("CLIENT REPLY SKIP") == b""
    assert door("PING") == b"" and door("PING") == b""
    assert door("CLIENT REPLY ON") == b"+OK\r\n"
    assert door("CLIENT REPLY MAYBE").startswith(b"-ERR syntax error at 'MAYBE': use CLIENT REPLY")


def test_pause_of_all_clients(door: Door) -> None:
    assert door("CLIENT PAUSE 1000") == b"+OK\r\n"
    assert door.s.paused_until_ms == door.n.now_ms + 1000
    assert door("CLIENT PAUSE 500 ALL") == b"+OK\r\n"
    assert door.s.paused_until_ms == door.n.now_ms + 1000  # a shorter one is ignored
    assert door("CLIENT UNPAUSE") == b"+OK\r\n"
    assert door.s.paused_until_ms == door.n.now_ms
    assert door("CLIENT PAUSE x") == b"-ERR timeout is not an integer or out of range\r\n"
    assert door("CLIENT PAUSE -1") == b"-ERR timeout is negative\r\n"


def test_switches_that_are_off(door: Door) -> None:
    for words in ("TRACKING OFF", "NO-EVICT on", "NO-TOUCH off"):
        assert door(f"CLIENT {words}") == b"+OK\r\n"
    assert door("CLIENT TRACKING ON").startswith(b"-ERR CLIENT TRACKING ON is not possible")
    wrong = (
        b"-ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
    )
    for words in ("NOSUCH", "LIST x", "PAUSE 1 WRITE"):
        assert door(f"CLIENT {words}") == wrong + b"\r\n"


def test_monitor_shows_commands_without_passwords(door: Door) -> None:
    eye = door.connect()
    assert door("MONITOR", by=eye) == b"+OK\r\n"
    again = door("MONITOR", by=eye)  # seen by itself, as any command
    assert again.startswith(b"+") and again.endswith(b' "MONITOR"\r\n+OK\r\n')
    assert door.s.monitors == [eye]
    door("PING", b'a"b\\c\n\x00\xff')
    line = taken(eye).decode()
    stamp, _, rest = line.partition(" ")
    assert stamp[0] == "+" and len(stamp.split(".")[1]) == 6
    assert rest == '[127.0.0.1:5001] "PING" "a\\"b\\\\c\\n\\x00\\xff"\r\n'
    eye.resp3 = True
    door("PING")
    assert b" [0 127.0.0.1:5001] " in taken(eye)
    door("AUTH default secret")
    door("HELLO 2 SETNAME x AUTH default secret")
    door("CONFIG SET requirepass secret")
    shown = taken(eye).decode()
    assert "secret" not in shown
    assert shown.count('"(redacted)"') == 5
