"""Output to clients: one write a turn, the rest later, and the end (SPEC C8)."""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.server.loop.housekeeping import leaves_too_much
from tuque.server.net.system import IN, OUT, Poller
from tuque.server.replies.errors import look_into
from tuque.server.state.client import LIGHT, Client, Connection, Wired, weigh
from tuque.server.state.notices import leave_notices
from tuque.server.state.server import Server

DRAIN_BYTES: Final = 1 << 20  # written to one slow client per turn, at most


@final
class Output:
    """Writes to clients and closes them."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller

    def send(self, c: Connection) -> None:
        """Write what may be sent; what the socket refuses stays queued."""
        if c.has_large:
            for part in c.take_out():
                c.queue(part)
            if c.wants_write:
                self.limit_output(c)
            else:
                self.drain(c)
            return
        data = c.out[0] if len(c.out) == 1 else b"".join(c.out)
        if len(c.out) > 0:
            c.out = []
            c.out_seen = c.out_bytes = c.out_counted = 0
        size: i64 = len(data)
        if len(c.wire) > 0:
            if size > 0:
                c.queue(data)
            if c.wants_write:
                self.limit_output(c)  # the socket is full: `drain` continues when it is not
            else:
                self.drain(c)
            return
        sent: i64 = 0
        if size > 0:
            try:
                sent = c.give(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close(c)
                return
            self.s.figures.out_bytes += sent
        if sent < size:
            c.queue(data)
            c.wire_at = sent
            c.wire_bytes = size - sent
            self.wait_to_write(c)
            return
        self.on_written(c)

    def send_released(self, c: Connection) -> None:
        """Write what the journal has released, but nothing that this turn produced.

        That has no record yet, or an older reply of the client may still be due before it.
        """
        if c.wants_write:
            self.limit_output(c)
        else:
            self.drain(c)

    def drain(self, c: Connection) -> None:
        """Write queued output as the socket takes it, up to DRAIN_BYTES."""
        try:
            self.s.figures.out_bytes += c.push(DRAIN_BYTES)
        except OSError:
            self.close(c)
            return
        if len(c.wire) > 0:
            self.wait_to_write(c)
        else:
            self.on_written(c)

    def wait_to_write(self, c: Connection) -> None:
        """Write the rest when the socket takes more."""
        if not c.wants_write:
            c.wants_write = True
            self.watch(c)
        self.limit_output(c)

    def on_written(self, c: Connection) -> None:
        """The queue for the socket is empty."""
        c.wire_bytes = 0
        c.soft_since_ms = 0
        if len(c.gated) == 0:
            c.longest = 0
        if c.weight > LIGHT:
            weigh(self.s.n, c)
        if c.wants_write:
            c.wants_write = False
            self.watch(c)
        if c.is_closing and len(c.gated) + len(c.out) == 0:
            if c.lingers:
                self.linger(c)
            else:
                self.close(c)

    def break_off(self, c: Client) -> None:
        """Reply with the rule of the protocol that the client broke, and close."""
        self.s.figures.broken += 1
        c.error(b"ERR Protocol error: " + c.reader.error.encode())
        c.reader.strict = None  # the rest of the command is useless
        c.is_closing = True
        c.lingers = True
        self.s.touch(c)

    def linger(self, c: Connection) -> None:
        """[C2.10] Shut down the sending side; discard what the client still sends.

        If closed with input unread, the socket would discard the error just sent.
        """
        if c.has_ended:
            self.close(c)
            return
        c.half_since_ms = self.s.n.now_ms  # close at its end of stream, or when this is overdue
        try:
            c.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close(c)

    def limit_output(self, c: Connection) -> None:
        """[C2.6] Close a client that leaves too much unread."""
        if c.wire_bytes + c.held_bytes + c.weight > LIGHT:
            weigh(self.s.n, c)
        if leaves_too_much(self.s, c):
            self.close(c)

    def close(self, c: Connection) -> None:
        """[V6] Remove the client (V6.1) and its pending replies (V6.2)."""
        if c.is_closed:
            return
        s = self.s
        c.is_closed = True
        self.poller.drop(c.fd)
        c.sock.close()
        if isinstance(c, Client):
            s.unblock(c)
            leave_notices(s, c, list(c.watched))
            if c.is_monitor:
                s.monitors.remove(c)
            del s.clients[c.fd]
            del s.by_number[c.number]
        elif isinstance(c, Wired):
            s.part(c)
        s.leave_tubes(c.number)
        c.forget()
        weigh(s.n, c)

    def on_bug(self, c: Connection, error: Exception) -> None:
        """[C2.8] The client's input raised an internal error: close it, if the tables agree."""
        look_into(self.s, f"in what {c.address} sent", error)
        self.close(c)

    def close_all(self) -> None:
        """Close every connection; pending output is sent if possible."""
        for c in list(self.s.clients.values()):
            if len(c.gated) == 0 and not c.is_blocked:
                self.send(c)
            self.close(c)
        for w in list(self.s.wired.values()):
            if len(w.gated) == 0:
                self.send(w)
            self.close(w)

    def on_end(self, c: Connection, is_idle: bool) -> None:
        """The client has stopped sending: send pending replies first (it may be half closed).

        `is_idle`: no input waits to be run.
        """
        due = len(c.gated) + len(c.wire)
        if c.is_waiting() or c.has_ended or (due == 0 and is_idle):
            self.close(c)  # R7.1
            return
        c.has_ended = True
        if is_idle:
            c.is_closing = True
        self.watch(c)

    def watch(self, c: Connection) -> None:
        """Poll for what is expected of the client."""
        mask = 0 if c.has_ended or c.is_full else IN
        self.poller.watch(c.fd, mask | OUT if c.wants_write else mask)


# ---- After a standstill: what was not sent is not sent any more (SPEC T19.7)


def drop_unsent(s: Server, output: Output) -> i64:
    """Close connections with replies not yet sent; how many."""
    count: i64 = 0
    for c in list(s.clients.values()):
        if is_owed(c) or has_answers(c):
            output.close(c)
            count += 1
    for w in list(s.wired.values()):
        if is_owed(w):
            output.close(w)
            count += 1
    return count


def is_owed(c: Connection) -> bool:
    """Whether output is still outside the socket."""
    return len(c.out) + len(c.gated) + len(c.wire) > 0


def has_answers(c: Client) -> bool:
    """Whether replies wait behind a pending one."""
    return any(hole is not None for hole in c.holes)
