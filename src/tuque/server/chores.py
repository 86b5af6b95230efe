"""Long commands have their share of each turn, one after the other (SPEC L2).

A command that is longer than a turn goes on in the next ones. Its client is blocked meanwhile, as
in a GETJOB that waits; all other clients are served.
"""

from tuque.core.work import PIECE, TURN_WORK
from tuque.server.chore import Chore
from tuque.server.clients import REPLY_OFF, REPLY_SKIPPING, Client
from tuque.server.faults import on_fault
from tuque.server.state import Server
from tuque.server.tube_sync import hold_back
from tuque.server.tube_where import refusal_text
from tuque.tubes.errors import TubeError
from tuque.tubes.hooks import tubes_of
from tuque.wire.args import ArgError


def begin(s: Server, c: Client, chore: Chore) -> None:
    """[L2] Run the command now as far as this turn allows, the rest later (L2.2)."""
    room = TURN_WORK - s.n.work
    if room > 0 and len(s.chores) == 0 and chore.step(room):
        chore.is_over = True
        chore.tell()
        return
    chore.name = c.command
    chore.is_muted = c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING
    c.is_blocked = True
    c.chore = chore
    s.chores.append(chore)


def run_chores(s: Server) -> None:
    """[L2] Go on with what is left of long commands, until the turn has done its share (L2.2)."""
    n = s.n
    if s.paused_until_ms > n.now_ms:
        return
    while len(s.chores) > 0 and n.work < TURN_WORK:
        chore = s.chores.pop(0)
        if chore.is_over:
            continue
        before = n.work
        room = TURN_WORK - before
        run_piece(s, chore, room if room < PIECE else PIECE)
        if n.work == before:
            n.work += 1
        if not chore.is_over:
            s.chores.append(chore)


def run_piece(s: Server, chore: Chore, room: int) -> None:
    """One share of a command; its reply when that was the last one."""
    c = chore.c
    assert isinstance(c, Client)
    written = len(c.out)
    try:
        if not chore.step(room):
            c.last_ms = s.n.now_ms
            return
        chore.tell()
    except ArgError as error:
        c.error(error.text)
    except TubeError as refused:
        c.error(refusal_text(s, refused))  # T17.3
    except Exception as fault:
        on_fault(s, c, chore.name, written, fault)
    chore.is_over = True
    if c.chore is not chore:
        c.out = []  # the client has gone
        return
    c.chore = None
    c.is_blocked = False
    c.last_ms = s.n.now_ms
    if chore.is_muted:
        del c.out[written:]
    if s.n.policy is not None and len(tubes_of(s.n).to_sync) > 0:
        hold_back(s, tubes_of(s.n), c, written)  # T18.5
    s.touch(c)
    if len(c.todo) > 0 or c.reader.error or c.has_ended:
        s.resumed.append(c)
