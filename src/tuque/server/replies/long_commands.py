"""Long commands get a share of each turn, one after another (SPEC L2).

A command longer than a turn continues in the next ones. Meanwhile its client is blocked, as in a
waiting GETJOB; all other clients are served.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.core.queues.procedures import FAR
from tuque.server.replies.errors import INTERNAL, look_into, on_fault
from tuque.server.replies.redirects import iproto_refusal, refusal_text
from tuque.server.replies.waiting import hold_back, hold_back_wired
from tuque.server.state.client import (
    REPLY_OFF,
    REPLY_SKIPPING,
    TURN_BYTES,
    Chore,
    Client,
    Wired,
    weigh,
)
from tuque.server.state.server import Server
from tuque.tubes.model.errors import TubeError
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError
from tuque.wire.proto.iproto import E_PROC, error_reply

LEAST_PIECE: Final = 100  # units of one long command, in a turn that others have used up


def begin(s: Server, c: Client, chore: Chore) -> None:
    """[L2] Run the command as far as this turn allows, the rest later (L2.2)."""
    room = min(TURN_WORK - s.n.work, PIECE)
    if room > 0 and len(s.chores) == 0 and chore.step(room):
        chore.is_over = True
        chore.tell()
        return
    chore.name = c.command
    chore.is_muted = c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING
    c.is_blocked = True
    c.chore = chore
    s.chores.append(chore)


def begin_call(s: Server, w: Wired, sync: int, chore: Chore) -> None:
    """The same for an IPROTO call."""
    room = min(TURN_WORK - s.n.work, PIECE)
    if room > 0 and len(s.chores) == 0 and chore.step(room):
        chore.tell()
        return
    chore.sync = sync
    w.uncopied += 1  # the connection waits for it
    w.chores += 1
    s.chores.append(chore)


def run_chores(s: Server) -> None:
    """[L2] Continue long commands until the turn's share is used (L2.2)."""
    n = s.n
    running = s.chores
    if s.has_parted:
        s.has_parted = False
        drop_parted(running)
        drop_parted(s.resting)
    if s.paused_until_ms > n.now_ms:
        return
    if len(s.resting) > 0:
        wake_rested(s)
    most = s.figures.much_bytes + TURN_BYTES
    has_run = False
    while len(running) > 0 and s.figures.much_bytes < most:  # L2.8
        if has_run and n.work >= TURN_WORK:
            return
        chore = running.pop(0)
        if chore.is_over:
            chore.drop()
            continue
        has_run = True
        before = n.work
        began_ns: i64 = s.system.work_ns()
        room = max(LEAST_PIECE, min(TURN_WORK - before, PIECE))
        if isinstance(chore.c, Client):
            run_piece(s, chore, chore.c, room)
        elif isinstance(chore.c, Wired):
            run_call(s, chore, chore.c, room)
        s.note_long(s.system.work_ns() - began_ns)
        if not chore.is_over and n.policy is not None:
            tubes_of(n).to_sync = {}  # the last slice waits for the copies of all
        if n.work == before:
            n.work += 1
        if not chore.is_over:
            line = s.resting if chore.wake_ms > n.now_ms else running
            line.append(chore)


def drop_parted(line: list[Chore]) -> None:
    """End those whose client has gone, unless they go on without it, and free them (L2.2)."""
    kept: list[Chore] = []
    for one in line:
        if one.c.is_closed and not one.goes_on:
            one.drop()
        else:
            kept.append(one)
    line[:] = kept


def next_chore_ms(s: Server) -> i64:
    """When the first of those that rest goes on; FAR: there is none."""
    at_ms: i64 = FAR
    for chore in s.resting:
        if chore.wake_ms < at_ms:
            at_ms = chore.wake_ms
    return at_ms


def wake_rested(s: Server) -> None:
    """Those that have rested go on."""
    resting: list[Chore] = []
    for chore in s.resting:
        if chore.wake_ms > s.n.now_ms:
            resting.append(chore)
        else:
            s.chores.append(chore)
    s.resting = resting


def run_call(s: Server, chore: Chore, w: Wired, room: i64) -> None:
    """One slice of an IPROTO call; replies after the last one."""
    t = tubes_of(s.n)
    written = len(w.out)
    try:
        if not chore.step(room):
            w.last_ms = s.n.now_ms
            weigh(s.n, w)
            return
        chore.tell()
    except TubeError as refused:
        told = iproto_refusal(s, t, refused)
        w.out.append(error_reply(chore.sync, told.code, w.worded(told.text)))
    except Exception as fault:
        look_into(s, f"in a long call of {w.address}", fault)
        del w.out[written:]
        w.out.append(error_reply(chore.sync, E_PROC, INTERNAL))
    chore.is_over = True
    w.uncopied -= 1
    w.chores -= 1
    w.last_ms = s.n.now_ms
    hold_back_wired(s, t, w, chore.sync, written)  # T18.5
    s.figures.much_bytes += w.take_much()
    s.touch(w)


def run_piece(s: Server, chore: Chore, c: Client, room: i64) -> None:
    """One slice of a command; replies after the last one."""
    written = len(c.out)
    try:
        if not chore.step(room):
            c.last_ms = s.n.now_ms
            weigh(s.n, c)
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
    s.figures.much_bytes += c.take_much()
    s.touch(c)
    if len(c.todo) > 0 or c.reader.error or c.has_ended:
        s.resumed.append(c)
