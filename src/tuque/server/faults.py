"""Errors that are bugs of ours: what is said, and whether the node may go on (SPEC C3.12).

An assertion that fails stops the node: what it holds is not what it thinks. Any other
exception in a command is told to its client, and the node goes on if its tables still agree.
"""

from __future__ import annotations

from typing import Final

from tuque.core.procedures import check
from tuque.server.clients import Client
from tuque.server.state import Server, log

INTERNAL: Final = b"ERR internal error, the log of the server says more"


def on_fault(s: Server, c: Client, name: str, written: int) -> None:
    """The command raised what it must not raise. AssertionError when the node must stop."""
    log.error("internal error in %s, asked by %s", name, c.address, exc_info=True)
    check(s.n)
    del c.out[written:]
    if c.is_blocked and c.number not in s.n.waiters:
        c.is_blocked = False
        s.blocked -= 1
    c.error(INTERNAL)


def drop_turn(s: Server) -> None:
    """Forget what the turn that broke off did: no client was told of it, nothing is recorded."""
    if s.n.records is not None and s.committer is not None:
        s.n.records.take()
        s.n.records = None
    s.restart_after_ms = -1
    for c in s.clients.values():
        c.out = []
    for w in s.wired.values():
        w.out = []
