"""CLIENT: list and change connections (SPEC C7.2)."""

from __future__ import annotations

import re
from typing import Final

from tuque.core.node.node import TIMED_OUT, WAIT_OVER, Wake
from tuque.core.queues.procedures import stop_waiting
from tuque.server.commands.session import BAD_NAME, checked_name
from tuque.server.replies.errors import reply_help
from tuque.server.state.client import REPLY_OFF, REPLY_ON, REPLY_SKIP, Client, Connection, Wired
from tuque.server.state.server import Server
from tuque.wire.commands.arguments import (
    NOT_INT,
    ArgError,
    Misuse,
    timeout_ms,
)
from tuque.wire.proto.resp import strict_int

SPACES: Final = re.compile(rb"[\x00-\x20]")  # a line has none of these
PARTS_COUNTED: Final = 32  # parts of unsent replies that a line counts, for a unit
LINE_WORK: Final = 5  # units for a line of CLIENT LIST
SHOWN_MAX: Final = 200  # bytes of a function's name
BAD_ID: Final = b"ERR the id of a client is a number"
BAD_CLIENT: Final = (
    b"ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
)


def cmd_client(s: Server, c: Client, args: list[bytes]) -> None:
    """[C7.2] CLIENT subcommand [argument ...]."""
    word = args[1].upper()
    count = len(args)
    if word == b"LIST" and count == 2:
        lines = [client_line(s, other) for other in s.clients.values()]
        lines += [wired_line(s, w) for w in s.wired.values()]
        s.n.work += LINE_WORK * len(lines)
        c.reply(b"".join([line + b"\n" for line in lines]))
    elif word == b"INFO" and count == 2:
        s.n.work += len(c.out) // PARTS_COUNTED
        c.reply(client_line(s, c) + info_tail(c) + b"\n")
    elif word == b"ID" and count == 2:
        c.reply(int(c.number))
    elif word == b"GETNAME" and count == 2:
        c.reply(c.name if c.name else None)
    elif word == b"SETNAME" and count == 3:
        c.name = checked_name(args[2], BAD_NAME)
        c.ok()
    elif word == b"SETINFO" and count == 4:
        set_info(c, args[2], args[3])
    elif word == b"KILL" and count == 3:
        kill_address(s, c, args[2])
    elif word == b"KILL" and count > 3:
        kill_matching(s, c, args)
    elif word == b"UNBLOCK" and count == 3:
        unblock(s, c, args[2])
    elif word == b"PAUSE" and (count == 3 or (count == 4 and args[3].upper() == b"ALL")):
        pause(s, c, args[2])
    elif word == b"UNPAUSE" and count == 2:
        if s.paused_until_ms > s.n.now_ms:
            s.paused_until_ms = s.n.now_ms  # the pump goes on with what was put off
        c.ok()
    elif word == b"REPLY" and count == 3:
        set_reply(c, args[2].upper())
    elif not set_switch(c, word, args):
        other_word(s, c, word)


def other_word(s: Server, c: Client, word: bytes) -> None:
    """HELP, or the error for an unknown subcommand."""
    if word == b"HELP":
        reply_help(s, c, b"CLIENT")
    else:
        raise ArgError(BAD_CLIENT)


def unblock(s: Server, c: Client, word: bytes) -> None:
    """[C7] UNBLOCK id: the wait of another client of this user ends as at its timeout (C7.12)."""
    number = strict_int(word)
    if number is None:
        raise ArgError(BAD_ID)
    other = s.by_number.get(number)
    is_over = other is not None and user_of(other) == user_of(c) and end_wait(s, other)
    c.reply(int(is_over))


def user_of(c: Client) -> bytes:
    """The user's name; empty: it needs none."""
    return b"" if c.user is None else c.user.name


def end_wait(s: Server, c: Client) -> bool:
    """Whether the client waited for jobs, ends of jobs or values; it gets its reply soon."""
    wanted = c.wanted
    if wanted is not None and not wanted.is_now:
        s.n.wakes.append(Wake(c.number, WAIT_OVER, [], 0))
        return True
    if not c.is_blocked or c.number not in s.n.waiters:
        return False
    stop_waiting(s.n, c.number)
    s.n.wakes.append(Wake(c.number, TIMED_OUT, [], 0))
    return True


def client_line(s: Server, c: Client) -> bytes:
    """One connection in one line, without a line end."""
    unrun = c.todo_bytes + c.reader.held_bytes()
    line = line_of(s, c, c.name, client_flags(c), int(unrun))
    user = s.acl.default.name if c.user is None else c.user.name
    if s.is_nobody(c):
        user = b"(none)"
    return line + b" cmd=%s user=%s" % (c.command.lower().encode() or b"NULL", user)


def wired_line(s: Server, w: Wired) -> bytes:
    """The same for an IPROTO connection, with its user and the last function called."""
    flags = b"b" if w.is_waiting() else b""
    flags += b"c" if w.is_closing else b""
    line = line_of(s, w, b"", flags or b"N", int(w.reader.held_bytes))
    word, user = (SPACES.sub(b"?", told[:SHOWN_MAX]) for told in (w.command, w.user.name))
    return line + b" cmd=%s user=%s proto=iproto" % (word, user)


def line_of(s: Server, c: Connection, name: bytes, flags: bytes, unrun: int) -> bytes:
    """The part that the lines of all connections begin with."""
    unread = c.wire_bytes + c.held_bytes + sum([len(part) for part in c.out])
    fields = [
        b"id=%d" % c.number,
        b"addr=" + c.address.encode(),
        b"fd=%d" % c.fd,
        b"name=" + name,
        b"age=%d" % ((s.n.now_ms - c.ctime_ms) // 1000),
        b"idle=%d" % ((s.n.now_ms - c.last_ms) // 1000),
        b"flags=" + flags,
        b"qbuf=%d" % unrun,
        b"qbuf-free=0",
        b"obl=0",
        b"oll=%d" % (len(c.wire) + len(c.gated) + len(c.out)),
        b"omem=%d" % unread,
        b"events=" + (b"rw" if c.wants_write else b"r"),
    ]
    return b" ".join(fields)


def client_flags(c: Client) -> bytes:
    """Letters for the state of the connection; N: no flag is set."""
    flags = b"O" if c.is_monitor else b""
    flags += b"b" if c.is_waiting() else b""
    flags += b"c" if c.is_closing else b""
    flags += b"U" if c.is_unix else b""
    return flags or b"N"


def info_tail(c: Client) -> bytes:
    """The fields that CLIENT INFO adds to the line of CLIENT LIST."""
    proto = b"3" if c.resp3 else b"2"
    return b" resp=%s lib-name=%s lib-ver=%s" % (proto, c.lib_name, c.lib_version)


def set_info(c: Client, key: bytes, value: bytes) -> None:
    """CLIENT SETINFO LIB-NAME|LIB-VER value."""
    name = key.lower()
    if name not in (b"lib-name", b"lib-ver"):
        raise ArgError(b"ERR Unrecognized option '%s'" % key)
    checked_name(value, b"ERR %s cannot contain spaces, newlines or special characters." % name)
    if name == b"lib-name":
        c.lib_name = value
    else:
        c.lib_version = value
    c.ok()


def set_reply(c: Client, mode: bytes) -> None:
    """CLIENT REPLY ON|OFF|SKIP; only ON is answered."""
    if mode == b"ON":
        c.reply_mode = REPLY_ON
        c.ok()
    elif mode == b"OFF":
        c.reply_mode = REPLY_OFF
    elif mode == b"SKIP":
        if c.reply_mode != REPLY_OFF:
            c.reply_mode = REPLY_SKIP
    else:
        raise Misuse(mode)


def set_switch(c: Client, word: bytes, args: list[bytes]) -> bool:
    """TRACKING, NO-EVICT, NO-TOUCH: accepted as OFF only; there is nothing to switch."""
    if len(args) < 3:
        return False
    value = args[2].upper()
    if word in (b"NO-EVICT", b"NO-TOUCH") and len(args) == 3:
        if value not in (b"ON", b"OFF"):
            raise Misuse(args[2])
    elif word == b"TRACKING":
        if value == b"ON":
            raise ArgError(b"ERR CLIENT TRACKING ON is not possible: there are no keys to track")
        if value != b"OFF":
            raise Misuse(args[2])
    else:
        return False
    c.ok()
    return True


def pause(s: Server, c: Client, word: bytes) -> None:
    """CLIENT PAUSE ms: no client's commands run until then; the longer of two pauses wins."""
    until_ms = s.n.now_ms + timeout_ms(word)
    if until_ms > s.paused_until_ms:
        s.paused_until_ms = until_ms
    c.ok()


def kill_address(s: Server, c: Client, address: bytes) -> None:
    """CLIENT KILL ip:port."""
    for other in connections(s):
        if other.address.encode() == address:
            c.ok()
            kill(s, c, other)
            return
    raise ArgError(b"ERR No such client")


def kill_matching(s: Server, c: Client, args: list[bytes]) -> None:
    """CLIENT KILL [ID n] [TYPE normal] [ADDR a] [SKIPME yes|no]."""
    if len(args) % 2 != 0:
        raise Misuse(args[-1])
    number, skips_me = 0, True
    address: bytes | None = None
    for i in range(2, len(args), 2):
        word, value = args[i].upper(), args[i + 1]
        if word == b"ID":
            given = strict_int(value)
            if given is None or given < 1:
                raise ArgError(NOT_INT)
            number = int(given)
        elif word == b"TYPE":
            if value.lower() != b"normal":
                raise ArgError(b"ERR Unknown client type '%s'" % value)
        elif word == b"ADDR":
            address = value
        elif word == b"SKIPME" and value.lower() in (b"yes", b"no"):
            skips_me = value.lower() == b"yes"
        else:
            raise Misuse(value if word == b"SKIPME" else args[i])
    chosen = [
        other
        for other in connections(s)
        if (number in (0, int(other.number)))
        and (address is None or other.address.encode() == address)
        and not (skips_me and other is c)
    ]
    c.reply(len(chosen))
    for other in chosen:
        kill(s, c, other)


def connections(s: Server) -> list[Connection]:
    """All connected clients, over RESP and IPROTO."""
    return [*s.clients.values(), *s.wired.values()]


def kill(s: Server, c: Client, other: Connection) -> None:
    """Close a connection: the caller's own after its reply, another one at the end of this turn."""
    other.is_closing = True  # do not run what it has pipelined
    if other is c:
        return
    s.doomed.append(other)
    if isinstance(other, Client):  # it gets no jobs for the rest of this turn
        s.unblock(other)
    elif isinstance(other, Wired):
        s.unwait(other)
