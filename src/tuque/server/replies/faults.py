"""Internal errors: what is replied, and whether the node may go on (SPEC C3.12).

An exception in a command or in a client's input gives that client an error or closes its
connection. The node goes on if its tables are consistent; otherwise it stops.
"""

from __future__ import annotations

from typing import Final

from tuque.core.queues.procedures import check
from tuque.server.state.client import Client
from tuque.server.state.state import Server

INTERNAL: Final = b"ERR internal error, the log of the server says more"


def on_fault(s: Server, c: Client, name: str, written: int, error: Exception) -> None:
    """The command raised an unexpected exception. AssertionError when the node must stop."""
    look_into(s, f"in {name}, asked by {c.address}", error)
    del c.out[written:]
    if c.is_blocked and c.chore is None and c.number not in s.n.waiters:
        c.is_blocked = False
        s.blocked -= 1
    c.error(INTERNAL)


def look_into(s: Server, what: str, error: Exception) -> None:
    """Count and log an internal error. AssertionError when the node's tables are inconsistent."""
    s.bugs.tell(s.n.now_ms, what, error)
    check(s.n)


def drop_turn(s: Server) -> None:
    """Discard what the failed turn did: no client has a reply, nothing is recorded."""
    if s.n.records is not None and s.committer is not None:
        s.n.records.take()
        s.n.records = None
    s.restart_after_ms = -1
    for c in s.clients.values():
        c.out = []
    for w in s.wired.values():
        w.out = []
