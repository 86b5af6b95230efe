"""SHOW, QLEN, QSTAT, QPEEK and PAUSE: arguments, and replies from the core (SPEC S, P)."""

from __future__ import annotations

from typing import Final

from tuque.core.federation.request import pause_queue
from tuque.core.jobs.queries import qpeek, qstat, show
from tuque.core.model.work import TURN_WORK
from tuque.core.node.queue import PAUSE_IN, PAUSE_NAMES, PAUSE_OUT
from tuque.server.commands.by_id import check_ids, check_room
from tuque.server.replies.redirects import check_queue
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.tubes.model.tube import Tube
from tuque.wire.args import NOT_INT, SYNTAX, ArgError
from tuque.wire.resp import NULL_ARRAY, Status, strict_int

BACK_MAX: Final = 20_000  # requeued jobs; they are in a heap, whose end is not sorted
MUCH_BACK: Final = (
    b"ERR more than %d jobs of this queue were put back, and the newest is not known without a "
    b"look at all of them: use JSCAN QUEUE" % BACK_MAX
)


def cmd_show(s: Server, c: Client, args: list[bytes]) -> None:
    """[S1] SHOW id."""
    check_ids(s, args, 1)
    job = s.n.jobs.get(args[1])
    c.reply(None if job is None else flat(show(s.n, job)))


def cmd_qlen(s: Server, c: Client, args: list[bytes]) -> None:
    """[S2] QLEN queue."""
    check_queue(s, args[1])  # T17.3
    q = s.n.queues.get(args[1])
    c.reply(0 if q is None else int(q.length))


def cmd_qstat(s: Server, c: Client, args: list[bytes]) -> None:
    """[S2] QSTAT queue."""
    check_queue(s, args[1])
    q = s.n.queues.get(args[1])
    if q is None:
        c.reply(NULL_ARRAY)
        return
    fields = qstat(s.n, q)
    if isinstance(q, Tube):
        fields["type"] = q.type  # S2.3
    c.reply(flat(fields))


def cmd_qpeek(s: Server, c: Client, args: list[bytes]) -> None:
    """[S3] QPEEK queue count."""
    count = strict_int(args[2])
    if count is None:
        raise ArgError(NOT_INT)
    check_queue(s, args[1])
    count = max(-TURN_WORK, min(TURN_WORK, count))  # S3.2
    q = s.n.queues.get(args[1])
    if q is not None and count < 0 and len(q.back) > BACK_MAX:
        raise ArgError(MUCH_BACK)  # S3.2
    rows = qpeek(s.n, args[1], count)
    s.n.work += len(rows)
    c.reply(rows)


def cmd_pause(s: Server, c: Client, args: list[bytes]) -> None:
    """[P1] PAUSE queue option [option ...]."""
    bits = 0
    is_changed = False
    is_bcast = False
    for word in args[2:]:
        option = word.lower()
        if option == b"state":
            continue
        if option == b"bcast":
            is_bcast = True
            continue
        is_changed = True
        if option == b"in":
            bits |= PAUSE_IN
        elif option == b"out":
            bits |= PAUSE_OUT
        elif option == b"all":
            bits |= PAUSE_IN | PAUSE_OUT
        elif option == b"none":
            bits = 0  # P1.2
        else:
            raise ArgError(SYNTAX)  # P1.1
    check_queue(s, args[1])
    q = s.n.queues.get(args[1])
    if not is_changed and q is not None:
        bits = q.pause
    if is_changed or is_bcast:
        if bits != 0:
            check_room(s.n, [args[1]])  # V1.7
        pause_queue(s.n, args[1], bits, is_bcast)  # P1.3, P1.5, P1.6, P1.7
    q = s.n.queues.get(args[1])
    c.reply(Status(PAUSE_NAMES[0 if q is None else q.pause].decode()))  # P1.4


def flat(fields: dict[str, object]) -> list[object]:
    """Names and values in turn: such replies are not maps, not even in RESP3 (C6.1)."""
    items: list[object] = []
    for name, value in fields.items():
        items.append(name)
        items.append(value)
    return items
