"""Groups and children with news: the leader looks at them, some in each turn (SPEC T50)."""

from __future__ import annotations

from typing import Final

from tuque.server.state.state import Server
from tuque.tubes.groups import look, next_member
from tuque.tubes.model.tubes import Tubes

PER_TURN: Final = 50  # looked at in one turn


def look_at_groups(s: Server, t: Tubes) -> None:
    """[T50] Look at what has news; nothing is changed while the journal cannot be written."""
    if len(s.journal_error) > 0:
        return
    for _ in range(PER_TURN):
        task = next_member(s.n, t)
        if task is None:
            return
        look(s.n, t, task)
