"""TUBE: the words of its commands, and what tubes answer (SPEC T15).

Here are the calls that workers and producers make all day; those of operators are in
admin.py.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from tuque.core.repair.evict import make_room
from tuque.server.commands.by_id import OOM
from tuque.server.commands.dispatch import EVICT_PER_COMMAND
from tuque.server.replies.chores import begin
from tuque.server.replies.help import reply_help
from tuque.server.replies.tube_replies import await_room, put_none, put_task
from tuque.server.state.client import REPLY_OFF, REPLY_SKIPPING, Client
from tuque.server.state.state import Server
from tuque.server.tubes.admin import (
    cfg,
    changes,
    create,
    drivers,
    drop,
    identify_client,
    info,
    list_tubes,
    register_driver,
    release_all,
    statistics,
    subscribe,
    tasks,
    truncate,
    unsubscribe,
)
from tuque.server.tubes.chores import KICK, TubeChore
from tuque.server.tubes.grants import grant_calls, grants, revoke_calls
from tuque.server.tubes.homes import home, state
from tuque.server.tubes.words import client_session, tube_here
from tuque.tubes.model.errors import LEAVING
from tuque.tubes.model.options import PutSpec
from tuque.tubes.model.registry import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import ops
from tuque.wire.args import ArgError, ranged
from tuque.wire.resp import int_reply
from tuque.wire.tube_args import (
    NUMBER_MAX,
    pairs,
    put_options,
    span_ms,
    take_token,
    task_number,
    token_of,
)

FEW_KICKED: Final = 999  # as many run beside calls that wait for copies (T15.11)
WRONG: Final = b"ERR Wrong TUBE subcommand or number of arguments"
BAD_COUNT: Final = b"ERR count must be a number from 0 to 4503599627370496"
PLAIN: Final = PutSpec()  # no options given
TIMEOUT_ONLY: Final = [b"TIMEOUT"]
RELEASE_WORDS: Final = [b"DELAY", b"TOKEN"]

Sub = Callable[[Server, Client, Tubes, list[bytes]], None]


def cmd_tube(s: Server, c: Client, args: list[bytes]) -> None:
    """[T15] TUBE subcommand [argument ...]; the first words are looked for in `SUBCOMMANDS`."""
    count: i64 = len(args)
    word = args[1]
    if word == b"PUT" and count >= 4:  # the frequent ones directly
        put(s, c, tubes_of(s.n), args)
    elif word == b"TAKE" and 3 <= count <= 5:
        take(s, c, tubes_of(s.n), args)
    elif word == b"ACK" and 4 <= count <= 6:
        ack(s, c, tubes_of(s.n), args)
    else:
        run_word(s, c, args)


def run_word(s: Server, c: Client, args: list[bytes]) -> None:
    """Look the word up and run what it stands for."""
    count = len(args)
    word = args[1].upper()
    row = SUBCOMMANDS.get(word)
    if row is None:
        if word == b"HELP" and count == 2:
            reply_help(s, c, b"TUBE")
            return
        raise ArgError(WRONG)
    least, most, run = row
    if count < least or (most > 0 and count > most):
        raise ArgError(WRONG)
    run(s, c, tubes_of(s.n), args)


def check_growth(s: Server) -> None:
    """[T15] What adds tasks or tubes is refused as ADDJOB is when memory is short (T15.6)."""
    n = s.n
    if n.limits.memory_bytes > 0 and n.used_bytes() * 20 > n.limits.memory_bytes * 19:
        if not make_room(n, EVICT_PER_COMMAND):
            raise ArgError(OOM)
    if n.is_leaving:
        raise ArgError(LEAVING)


def create_tube(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE CREATE tube type [options]."""
    check_growth(s)
    create(s, c, t, args)


def put(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE PUT tube body [options]: the task, null when the tube is full."""
    tube = tube_here(s, t, args[2])
    spec = PLAIN
    form: i64 = 0
    if len(args) > 4:
        spec = PutSpec()
        form = put_options(args, spec)
    check_growth(s)
    task = ops.put(s.n, t, tube, args[3], form, spec, c.number, c.put_serial + 1)
    if task is not None:
        put_task(c.out, task)
    elif spec.timeout_ms > 0:
        await_room(s, c)
    else:
        put_none(c)


def take(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE TAKE tube [TIMEOUT sec]: the task, null when none came in time."""
    timeout_ms: i64 = -1  # for ever
    if len(args) == 5 and args[3] == b"TIMEOUT":
        timeout_ms = span_ms(args[4], b"TIMEOUT")
    elif len(args) > 3:
        timeout_ms = span_ms(pairs(args, 3, TIMEOUT_ONLY)[b"TIMEOUT"], b"TIMEOUT")
    tube = tube_here(s, t, args[2])
    if c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING:
        return  # nobody would see the task (C7.3)
    client_session(s, t, c)
    task = ops.take(s.n, t, tube, c.number)
    if task is not None:
        put_task(c.out, task)
    elif timeout_ms == 0:
        put_none(c)
    elif s.n.is_leaving:
        c.error(LEAVING)
    else:
        c.is_taking = True
        c.is_blocked = True
        s.blocked += 1
        until_ms: i64 = 0 if timeout_ms < 0 else s.n.now_ms + timeout_ms
        ops.wait(s.n, t, tube, c.number, until_ms)


def ack(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE ACK tube id [TOKEN t]: the task, DONE."""
    number = task_number(args[3])
    token = take_token(args, 4)
    tube = tube_here(s, t, args[2])
    client_session(s, t, c)
    put_task(c.out, ops.ack(s.n, t, tube, c.number, number, token))


def release(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE RELEASE tube id [DELAY sec] [TOKEN t]: the task, READY or DELAYED."""
    number = task_number(args[3])
    found = pairs(args, 4, RELEASE_WORDS)
    delay_ms = span_ms(found.get(b"DELAY", b"0"), b"DELAY")
    tube = tube_here(s, t, args[2])
    client_session(s, t, c)
    put_task(c.out, ops.release(s.n, t, tube, c.number, number, delay_ms, token_of(found)))


def touch(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE TOUCH tube id sec [TOKEN t]: the task, null when the increment is 0."""
    number = task_number(args[3])
    increment_ms = span_ms(args[4], b"the increment")
    token = take_token(args, 5)
    tube = tube_here(s, t, args[2])
    client_session(s, t, c)
    task = ops.touch(s.n, t, tube, c.number, number, increment_ms, token)
    if task is None:
        put_none(c)
    else:
        put_task(c.out, task)


def bury(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE BURY tube id [TOKEN t]: the task, BURIED."""
    number = task_number(args[3])
    token = take_token(args, 4)
    put_task(c.out, ops.bury(s.n, t, tube_here(s, t, args[2]), number, token))


def kick(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE KICK tube count: how many buried tasks are READY again."""
    count = ranged(args[3], 0, NUMBER_MAX, BAD_COUNT)
    tube = tube_here(s, t, args[2])
    if count <= FEW_KICKED:
        c.out.append(int_reply(ops.kick(s.n, t, tube, count)))
    else:
        begin(s, c, TubeChore(s, t, c, tube, KICK, count))


def peek(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE PEEK tube id: the task as it is."""
    number = task_number(args[3])
    put_task(c.out, ops.peek(s.n, t, tube_here(s, t, args[2]), number))


def delete(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE DELETE tube id: the task, DONE, whoever held it."""
    number = task_number(args[3])
    put_task(c.out, ops.delete(s.n, t, tube_here(s, t, args[2]), number))


# least and most words (0: no limit), and what runs
SUBCOMMANDS: Final[dict[bytes, tuple[int, int, Sub]]] = {
    b"PUT": (4, 0, put),
    b"TAKE": (3, 5, take),
    b"ACK": (4, 6, ack),
    b"RELEASE": (4, 8, release),
    b"TOUCH": (5, 7, touch),
    b"BURY": (4, 6, bury),
    b"KICK": (4, 4, kick),
    b"PEEK": (4, 4, peek),
    b"DELETE": (4, 4, delete),
    b"CREATE": (4, 0, create_tube),
    b"DROP": (3, 3, drop),
    b"TRUNCATE": (3, 3, truncate),
    b"RELEASEALL": (3, 3, release_all),
    b"TASKS": (4, 6, tasks),
    b"INFO": (3, 3, info),
    b"LIST": (2, 2, list_tubes),
    b"STATISTICS": (2, 3, statistics),
    b"STATE": (2, 3, state),
    b"HOME": (3, 5, home),
    b"CFG": (2, 0, cfg),
    b"IDENTIFY": (2, 3, identify_client),
    b"CHANGES": (3, 7, changes),
    b"SUBSCRIBE": (3, 0, subscribe),
    b"UNSUBSCRIBE": (2, 0, unsubscribe),
    b"DRIVERS": (2, 2, drivers),
    b"REGISTERDRIVER": (3, 3, register_driver),
    b"GRANT": (4, 0, grant_calls),
    b"REVOKE": (4, 0, revoke_calls),
    b"GRANTS": (2, 3, grants),
}
