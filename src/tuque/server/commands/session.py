"""HELLO, AUTH, PING, QUIT, RESET, SELECT: the session of one client (SPEC C5, C7)."""

from __future__ import annotations

from typing import Final

from tuque import __version__
from tuque.cluster.member import PRIORITY_AVOID, PRIORITY_UP
from tuque.server.access.login import log_in, log_out
from tuque.server.access.rights import NOAUTH
from tuque.server.config.config import announced_port
from tuque.server.replies.redirects import own_host
from tuque.server.state.client import REPLY_ON, Client
from tuque.server.state.notices import leave_notices
from tuque.server.state.server import Server
from tuque.server.users.users import DEFAULT
from tuque.wire.commands.arguments import NOT_INT, ArgError
from tuque.wire.proto.resp import strict_int

NOPROTO: Final = b"NOPROTO unsupported protocol version"
CLIENT_NAME_BYTES: Final = 1_024
LONG_NAME: Final = b"ERR the name has %d bytes: at most %d"
BAD_NAME: Final = b"ERR Client names cannot contain spaces, newlines or special characters."
HELLO_NOAUTH: Final = (
    b"NOAUTH HELLO must be called with the client already authenticated, otherwise the "
    b"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
    b"select the RESP protocol version at the same time"
)


def cmd_hello(s: Server, c: Client, args: list[bytes]) -> None:
    """[C5] HELLO: Disque's list of nodes; with a version, Redis' greeting."""
    if len(args) == 1:
        if s.is_nobody(c):
            raise ArgError(NOAUTH)
        c.reply([1, s.n.node_id, *known_nodes(s, own_host(s, c))])  # C5.1
        return
    version = strict_int(args[1])
    if version is None:
        raise ArgError(b"ERR Protocol version is not an integer or out of range")
    if version < 2 or version > 3:
        raise ArgError(NOPROTO)
    user, password, _ = hello_options(args)
    if password is not None:
        log_in(s, c, user, password, greet, args)
    elif s.is_nobody(c):
        raise ArgError(HELLO_NOAUTH)
    else:
        greet(s, c, args)


def greet(s: Server, c: Client, args: list[bytes]) -> None:
    """[C5] Set protocol and name, and reply with what the server is (C5.2)."""
    version = strict_int(args[1])
    assert version is not None
    name = hello_options(args)[2]
    if name is not None:
        c.name = name
    c.resp3 = version == 3
    if not c.resp3:
        leave_notices(s, c, list(c.watched))
    c.reply(
        {
            "server": "tuque",
            "version": __version__,
            "proto": int(version),
            "id": int(c.number),
            "mode": "standalone",
            "role": "master",
            "modules": [],
        }
    )


def known_nodes(s: Server, own: str) -> list[list[bytes]]:
    """[K8] Id, address, port and priority of each node (K8.1), this one at `own` first."""
    priority = PRIORITY_AVOID if s.is_parting() or s.conflict else PRIORITY_UP
    port = announced_port(s.cfg)
    rows = [[s.n.node_id, own.encode(), b"%d" % port, b"%d" % priority]]
    for one in s.members.alive():
        if one.host and one.port:
            rows.append([one.node_id, one.host.encode(), b"%d" % one.port, b"%d" % one.priority()])
    return rows


def hello_options(args: list[bytes]) -> tuple[bytes, bytes | None, bytes | None]:
    """User, password and name of `HELLO <version> ...`; None if not given."""
    user, password, name = DEFAULT, None, None
    i = 2
    while i < len(args):
        word = args[i].upper()
        if word == b"AUTH" and i + 2 < len(args):
            user, password = args[i + 1], args[i + 2]
            i += 3
        elif word == b"SETNAME" and i + 1 < len(args):
            name = checked_name(args[i + 1], BAD_NAME)
            i += 2
        else:
            raise ArgError(b"ERR Syntax error in HELLO option '%s'" % args[i])
    return user, password, name


def checked_name(name: bytes, error: bytes) -> bytes:
    """The name if it is short, printable and without spaces; else raises ArgError."""
    if len(name) > CLIENT_NAME_BYTES:
        raise ArgError(LONG_NAME % (len(name), CLIENT_NAME_BYTES))  # L2.9
    if any(not 33 <= byte <= 126 for byte in name):
        raise ArgError(error)
    return name


def cmd_auth(s: Server, c: Client, args: list[bytes]) -> None:
    """[C5.3] AUTH [user] password."""
    if len(args) > 3:
        raise ArgError(b"ERR wrong number of arguments for 'auth' command")
    log_in(s, c, args[1] if len(args) == 3 else DEFAULT, args[len(args) - 1], say_ok, args)


def say_ok(s: Server, c: Client, args: list[bytes]) -> None:
    """The client has logged in."""
    c.ok()


def cmd_ping(s: Server, c: Client, args: list[bytes]) -> None:
    """[C7.1] PING [message]."""
    if len(args) > 2:
        raise ArgError(b"ERR wrong number of arguments for 'ping' command")
    if len(args) == 2:
        c.reply(args[1])
    else:
        c.out.append(b"+PONG\r\n")


def cmd_echo(s: Server, c: Client, args: list[bytes]) -> None:
    """[C7.1] ECHO message: `redis-cli --pipe` ends its stream with one."""
    c.reply(args[1])


def cmd_quit(s: Server, c: Client, args: list[bytes]) -> None:
    """[C3.1] QUIT: reply +OK, then close."""
    c.ok()
    c.is_closing = True


def cmd_reset(s: Server, c: Client, args: list[bytes]) -> None:
    """[C7.4] RESET: back to a new session."""
    if c.is_monitor:
        c.is_monitor = False
        s.monitors.remove(c)
    leave_notices(s, c, list(c.watched))
    log_out(s, c)
    c.name = b""
    c.resp3 = False
    c.reply_mode = REPLY_ON
    c.out.append(b"+RESET\r\n")


def cmd_select(s: Server, c: Client, args: list[bytes]) -> None:
    """[C7.4] SELECT 0."""
    index = strict_int(args[1])
    if index is None:
        raise ArgError(NOT_INT)
    if index != 0:
        raise ArgError(b"ERR DB index is out of range")
    c.ok()
