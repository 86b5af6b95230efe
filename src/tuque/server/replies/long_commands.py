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
    Client,
    LongCommand,
    Wired,
    weigh,
)
from tuque.server.state.server import Server
from tuque.tubes.model.errors import TubeError
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError
from tuque.wire.proto.iproto import E_PROC, error_reply

LEAST_PIECE: Final = 100  # units of one long command, in a turn that others have used up


def begin(s: Server, c: Client, long_command: LongCommand) -> None:
    """[L2] Run the command as far as this turn allows, the rest later (L2.2)."""
    room = min(TURN_WORK - s.n.work, PIECE)
    if room > 0 and len(s.long_commands) == 0 and long_command.step(room):
        long_command.is_over = True
        long_command.tell()
        return
    long_command.name = c.command
    long_command.is_muted = c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING
    c.is_blocked = True
    c.long_command = long_command
    s.long_commands.append(long_command)


def begin_call(s: Server, w: Wired, sync: int, long_command: LongCommand) -> None:
    """The same for an IPROTO call."""
    room = min(TURN_WORK - s.n.work, PIECE)
    if room > 0 and len(s.long_commands) == 0 and long_command.step(room):
        long_command.tell()
        return
    long_command.sync = sync
    w.uncopied += 1  # the connection waits for it
    w.long_commands += 1
    s.long_commands.append(long_command)


def run_long_commands(s: Server) -> None:
    """[L2] Continue long commands until the turn's share is used (L2.2)."""
    n = s.n
    running = s.long_commands
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
        long_command = running.pop(0)
        if long_command.is_over:
            long_command.drop()
            continue
        has_run = True
        before = n.work
        began_ns: i64 = s.system.work_ns()
        room = max(LEAST_PIECE, min(TURN_WORK - before, PIECE))
        if isinstance(long_command.c, Client):
            run_piece(s, long_command, long_command.c, room)
        elif isinstance(long_command.c, Wired):
            run_call(s, long_command, long_command.c, room)
        s.note_long(s.system.work_ns() - began_ns)
        if not long_command.is_over and n.policy is not None:
            tubes_of(n).to_sync = {}  # the last slice waits for the copies of all
        if n.work == before:
            n.work += 1
        if not long_command.is_over:
            line = s.resting if long_command.wake_ms > n.now_ms else running
            line.append(long_command)


def drop_parted(line: list[LongCommand]) -> None:
    """End those whose client has gone, unless they go on without it, and free them (L2.2)."""
    kept: list[LongCommand] = []
    for one in line:
        if one.c.is_closed and not one.goes_on:
            one.drop()
        else:
            kept.append(one)
    line[:] = kept


def next_long_command_ms(s: Server) -> i64:
    """When the first of those that rest goes on; FAR: there is none."""
    at_ms: i64 = FAR
    for long_command in s.resting:
        if long_command.wake_ms < at_ms:
            at_ms = long_command.wake_ms
    return at_ms


def wake_rested(s: Server) -> None:
    """Those that have rested go on."""
    resting: list[LongCommand] = []
    for long_command in s.resting:
        if long_command.wake_ms > s.n.now_ms:
            resting.append(long_command)
        else:
            s.long_commands.append(long_command)
    s.resting = resting


def run_call(s: Server, long_command: LongCommand, w: Wired, room: i64) -> None:
    """One slice of an IPROTO call; replies after the last one."""
    t = tubes_of(s.n)
    written = len(w.out)
    try:
        if not long_command.step(room):
            w.last_ms = s.n.now_ms
            weigh(s.n, w)
            return
        long_command.tell()
    except TubeError as refused:
        told = iproto_refusal(s, t, refused)
        w.out.append(error_reply(long_command.sync, told.code, w.worded(told.text)))
    except Exception as fault:
        look_into(s, f"in a long call of {w.address}", fault)
        del w.out[written:]
        w.out.append(error_reply(long_command.sync, E_PROC, INTERNAL))
    long_command.is_over = True
    w.uncopied -= 1
    w.long_commands -= 1
    w.last_ms = s.n.now_ms
    hold_back_wired(s, t, w, long_command.sync, written)  # T18.5
    s.figures.much_bytes += w.take_much()
    s.touch(w)


def run_piece(s: Server, long_command: LongCommand, c: Client, room: i64) -> None:
    """One slice of a command; replies after the last one."""
    written = len(c.out)
    try:
        if not long_command.step(room):
            c.last_ms = s.n.now_ms
            weigh(s.n, c)
            return
        long_command.tell()
    except ArgError as error:
        c.error(error.text)
    except TubeError as refused:
        c.error(refusal_text(s, refused))  # T17.3
    except Exception as fault:
        on_fault(s, c, long_command.name, written, fault)
    long_command.is_over = True
    if c.long_command is not long_command:
        c.out = []  # the client has gone
        return
    c.long_command = None
    c.is_blocked = False
    c.last_ms = s.n.now_ms
    if long_command.is_muted:
        del c.out[written:]
    if s.n.policy is not None and len(tubes_of(s.n).to_sync) > 0:
        hold_back(s, tubes_of(s.n), c, written)  # T18.5
    s.figures.much_bytes += c.take_much()
    s.touch(c)
    if len(c.todo) > 0 or c.reader.error or c.has_ended:
        s.resumed.append(c)
