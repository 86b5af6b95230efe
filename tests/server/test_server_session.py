"""HELLO, AUTH, PING, QUIT, RESET, SELECT and the subcommands of CLIENT (SPEC C5, C7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque import __version__
from tuque.server.commands.dispatch import execute
from world import World
from world_machines import name_of

NOAUTH = b"-NOAUTH Authentication required.\r\n"


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def test_hello_of_disque(world: World) -> None:
    node = b"*4\r\n" + bulk(name_of(0)) + bulk(b"10.0.0.1") + b"$4\r\n7711\r\n$1\r\n1\r\n"
    assert world("HELLO") == b"*3\r\n:1\r\n" + bulk(name_of(0)) + node
    world("CLUSTER LEAVING yes")
    assert world("HELLO").endswith(b"$4\r\n7711\r\n$3\r\n100\r\n")


def test_hello_of_redis(world: World) -> None:
    reply = world("HELLO 3 SETNAME worker-1")
    assert reply.startswith(b"%7\r\n$6\r\nserver\r\n")
    assert bulk(b"version") + bulk(__version__.encode()) in reply
    assert bulk(b"proto") + b":3\r\n" in reply
    assert bulk(b"id") + b":1\r\n" in reply
    assert world("CLIENT GETNAME") == bulk(b"worker-1")
    assert world("SHOW D-12345678-123456789012345678901234-0001") == b"_\r\n"
    assert world("HELLO 2").startswith(b"*14\r\n")
    assert world("SHOW D-12345678-123456789012345678901234-0001") == b"$-1\r\n"


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
def test_wrong_hello(world: World, words: str, error: bytes) -> None:
    assert world(f"HELLO {words}") == b"-" + error + b"\r\n"
    assert not world.run.c.resp3


def test_password(make_world: Callable[..., World]) -> None:
    world = make_world(journal="off", requirepass="pw")
    assert world("PING") == NOAUTH
    assert world("HELLO") == NOAUTH
    assert world("HELLO 3").startswith(b"-NOAUTH HELLO must be called with")
    assert world("AUTH wrong") == b"-ERR invalid password\r\n"
    assert world("AUTH pw") == b"+OK\r\n"
    assert world("PING") == b"+PONG\r\n"
    assert world("AUTH somebody pw").startswith(b"-WRONGPASS ")
    assert world("PING") == NOAUTH  # a wrong password ends the session's right
    assert world("HELLO 2 AUTH default pw").startswith(b"*14\r\n")
    assert world("AUTH default pw x") == b"-ERR wrong number of arguments for 'auth' command\r\n"
    assert world("RESET") == b"+RESET\r\n"
    assert world("PING") == NOAUTH


def test_a_new_password_locks_out_all(world: World) -> None:
    assert world("AUTH x") == b"-ERR Client sent AUTH, but no password is set\r\n"
    assert world("CONFIG SET requirepass pw") == b"+OK\r\n"
    assert world("PING") == NOAUTH
    other = world.wire()
    assert world("AUTH pw", by=other) == b"+OK\r\n"
    assert world("AUTH pw") == b"+OK\r\n"
    assert world("CONFIG SET requirepass new") == b"+OK\r\n"
    assert world("PING") == NOAUTH
    assert world("PING", by=other) == NOAUTH
    assert world("AUTH new") == b"+OK\r\n"
    assert world("CONFIG SET requirepass", "") == b"+OK\r\n"
    assert world("PING") == b"+PONG\r\n"


def test_ping_quit_select(world: World) -> None:
    assert world("PING") == b"+PONG\r\n"
    assert world("PING", b"a\r\nb") == bulk(b"a\r\nb")
    assert world("PING a b") == b"-ERR wrong number of arguments for 'ping' command\r\n"
    assert world("SELECT 0") == b"+OK\r\n"
    assert world("SELECT 1") == b"-ERR DB index is out of range\r\n"
    assert world("SELECT x") == b"-ERR value is not an integer or out of range\r\n"
    wire = world.run
    assert world("QUIT") == b"+OK\r\n"
    assert not wire.is_open()


def test_reset_begins_the_session_anew(world: World) -> None:
    world("HELLO 3 SETNAME x")
    world("MONITOR")
    world("CLIENT REPLY OFF")
    assert world("RESET").endswith(b' "RESET"\r\n+RESET\r\n')
    assert world("CLIENT GETNAME") == b"$-1\r\n"
    assert world.server.monitors == []


def test_names_of_clients(world: World) -> None:
    assert world("CLIENT GETNAME") == b"$-1\r\n"
    assert world("CLIENT SETNAME me") == b"+OK\r\n"
    bad = b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
    assert world("CLIENT SETNAME", "a b") == bad
    assert world("CLIENT GETNAME") == bulk(b"me")
    assert world("CLIENT SETNAME", "") == b"+OK\r\n"
    assert world("CLIENT GETNAME") == b"$-1\r\n"


def test_library_of_a_client(world: World) -> None:
    assert world("CLIENT SETINFO LIB-NAME redis-py") == b"+OK\r\n"
    assert world("CLIENT SETINFO lib-ver 8.1.0") == b"+OK\r\n"
    assert world("CLIENT SETINFO color red") == b"-ERR Unrecognized option 'color'\r\n"
    bad = b"-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"
    assert world("CLIENT SETINFO lib-name", "a b") == bad
    assert world.value("CLIENT INFO").endswith(b" resp=2 lib-name=redis-py lib-ver=8.1.0\n")


def test_list_of_clients(world: World) -> None:
    world.wire(address="unix:0")
    world.pass_ms(2500)
    lines = world.value("CLIENT LIST").decode().splitlines()
    fd = world.run.c.fd
    assert lines[0] == (
        f"id=1 addr={world.run.address} fd={fd} name= age=2 idle=0 flags=N qbuf=0 qbuf-free=0 "
        "obl=0 oll=0 omem=0 events=r cmd=client user=default"
    )
    assert "age=2 idle=2 flags=U" in lines[1] and lines[1].endswith("cmd=NULL user=default")
    assert world("CLIENT ID") == b":1\r\n"


def test_kill_by_address(world: World) -> None:
    other = world.wire()
    assert world("CLIENT KILL 1.2.3.4:5") == b"-ERR No such client\r\n"
    assert world('CLIENT KILL ADDR ""') == b":0\r\n"
    assert world("CLIENT KILL ADDR 1.2.3.4:5") == b":0\r\n"
    assert world(f"CLIENT KILL {other.address}") == b"+OK\r\n"
    assert not other.is_open()
    wire = world.run
    assert world(f"CLIENT KILL {wire.address}") == b"+OK\r\n"  # its reply goes out first
    assert not wire.is_open()


def test_kill_by_filter(world: World) -> None:
    others = [world.wire(), world.wire()]
    assert world("CLIENT KILL ID 1") == b":0\r\n"  # SKIPME
    assert world(f"CLIENT KILL ID {others[0].c.number} TYPE normal") == b":1\r\n"
    assert world(f"CLIENT KILL ADDR {others[1].address} SKIPME no") == b":1\r\n"
    assert not any(other.is_open() for other in others)
    wire = world.run
    assert world("CLIENT KILL ID 1 SKIPME no") == b":1\r\n"
    assert not wire.is_open()
    assert world("CLIENT KILL TYPE slave") == b"-ERR Unknown client type 'slave'\r\n"
    assert world("CLIENT KILL ID x") == b"-ERR value is not an integer or out of range\r\n"
    for words in ("ID 1 TYPE", "NOSUCH 1", "ID 1 SKIPME maybe"):
        said = world(f"CLIENT KILL {words}").decode()
        at = {"ID": "TYPE", "NO": "NOSUCH"}.get(words[:2], "") if "maybe" not in words else "maybe"
        assert said.startswith(f"-ERR syntax error at '{at}': use CLIENT KILL ip:port|[ID n]"), said


def test_reply_modes(world: World) -> None:
    assert world("CLIENT REPLY SKIP") == b""
    assert world("PING") == b""
    assert world("PING") == b"+PONG\r\n"
    assert world("CLIENT REPLY OFF") == b""
    assert world("PING") == b""
    assert world("CLIENT REPLY SKIP") == b""
    assert world("PING") == b"" and world("PING") == b""
    assert world("CLIENT REPLY ON") == b"+OK\r\n"
    assert world("CLIENT REPLY MAYBE").startswith(b"-ERR syntax error at 'MAYBE': use CLIENT REPLY")


def at_once(world: World, line: str) -> bytes:
    """Run a command of the first client, though all are paused."""
    c = world.run.c
    execute(world.server, c, line.encode().split())
    answer, c.out = b"".join(c.out), []
    return answer


def test_pause_of_all_clients(world: World) -> None:
    assert at_once(world, "CLIENT PAUSE 1000") == b"+OK\r\n"
    assert world.server.paused_until_ms == world.n.now_ms + 1000
    assert at_once(world, "CLIENT PAUSE 500 ALL") == b"+OK\r\n"
    assert world.server.paused_until_ms == world.n.now_ms + 1000  # a shorter one is ignored
    assert at_once(world, "CLIENT UNPAUSE") == b"+OK\r\n"
    assert world.server.paused_until_ms == world.n.now_ms
    assert at_once(world, "CLIENT PAUSE x") == b"-ERR timeout is not an integer or out of range\r\n"
    assert at_once(world, "CLIENT PAUSE -1") == b"-ERR timeout is negative\r\n"


def test_switches_that_are_off(world: World) -> None:
    for words in ("TRACKING OFF", "NO-EVICT on", "NO-TOUCH off"):
        assert world(f"CLIENT {words}") == b"+OK\r\n"
    assert world("CLIENT TRACKING ON").startswith(b"-ERR CLIENT TRACKING ON is not possible")
    wrong = (
        b"-ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
    )
    for words in ("NOSUCH", "LIST x", "PAUSE 1 WRITE"):
        assert world(f"CLIENT {words}") == wrong + b"\r\n"


def test_monitor_shows_commands_without_passwords(world: World) -> None:
    eye = world.wire()
    assert world("MONITOR", by=eye) == b"+OK\r\n"
    again = world("MONITOR", by=eye)  # seen by itself, as any command
    assert again.startswith(b"+") and again.endswith(b' "MONITOR"\r\n+OK\r\n')
    assert world.server.monitors == [eye.c]
    world("PING", b'a"b\\c\n\x00\xff')
    line = eye.hear().decode()
    stamp, _, rest = line.partition(" ")
    assert stamp[0] == "+" and len(stamp.split(".")[1]) == 6
    assert rest == f'[{world.run.address}] "PING" "a\\"b\\\\c\\n\\x00\\xff"\r\n'
    eye.c.resp3 = True
    world("PING")
    assert b" [0 %s] " % world.run.address.encode() in eye.hear()
    world("AUTH default secret")
    world("HELLO 2 SETNAME x AUTH default secret")
    world("CONFIG SET requirepass secret")
    shown = eye.hear().decode()
    assert "secret" not in shown
    assert shown.count('"(redacted)"') == 5
