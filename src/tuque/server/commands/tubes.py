"""TUBE over RESP, and the procedures on tasks for RESP and IPROTO (SPEC T5, T15, I6)."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.errors import LEAVING as LEAVING_CODE
from tuque.core.model.task import Task
from tuque.server.commands import tube_admin, tube_leaders
from tuque.server.commands.jobs import DISKFULL
from tuque.server.commands.tube_leaders import await_home
from tuque.server.commands.tube_slices import (
    DROP,
    KICK,
    RELEASE_ALL,
    TRUNCATE,
    Tasks,
    TubeChore,
)
from tuque.server.replies.errors import LEAVING, reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import tube_named
from tuque.server.replies.tubes import (
    Run,
    TubeCall,
    await_room,
    put_none,
    put_task,
)
from tuque.server.state.client import REPLY_OFF, REPLY_SKIPPING, Client, LongCommand
from tuque.server.state.server import Server
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.sessions import dashed
from tuque.wire.commands.arguments import ArgError, WrongWords
from tuque.wire.commands.tube_table import PROCEDURES, WORDS, Procedure
from tuque.wire.proto.resp import array_head, put_value

FEW_KICKED: Final = 999  # so many may run beside calls that wait for copies (T15.11)
PLAIN: Final = PutSpec()  # no options

USER: Final = b"default"  # of a client that is nobody yet (T15.9)
PUT: Final = WORDS[b"PUT"]
TAKE: Final = WORDS[b"TAKE"]
ACK: Final = WORDS[b"ACK"]


# ---- Procedures on tasks, for RESP and IPROTO (SPEC T5)


def put(call: TubeCall) -> None:
    """[T5] Put a task; if the tube is full and there is a timeout, wait for room (T7)."""
    spec = call.put_spec() if call.given > 0 else PLAIN
    waits = spec.timeout_ms > 0
    if waits:
        call.may_wait()
    task = operations.put(
        call.n, call.t, call.at, call.body, call.form, spec, call.client, call.serial()
    )
    if task is not None:
        call.task(task)
    elif waits:
        call.await_room()
    else:
        call.no_task(is_full=True)


def take(call: TubeCall) -> None:
    """[T5] Take a task; if there is none and there is a timeout, wait."""
    if call.is_unread():
        return
    task = operations.take(call.n, call.t, call.at, call.client)
    if task is not None:
        call.task(task)
    elif call.timeout_ms == 0:
        call.no_task()
    elif call.s.is_parting():
        raise TubeError(LEAVING_CODE)  # T15.6, I7.6
    else:
        call.may_wait()
        call.await_task(i64(0) if call.timeout_ms < 0 else call.n.now_ms + call.timeout_ms)


def ack(call: TubeCall) -> None:
    """[T5] End the task."""
    call.task(operations.ack(call.n, call.t, call.at, call.client, call.number, call.token))


def release(call: TubeCall) -> None:
    """[T5] Make the task READY or DELAYED."""
    delay_ms: i64 = call.options.delay_ms if call.options.delay_ms > 0 else 0
    call.task(
        operations.release(call.n, call.t, call.at, call.client, call.number, delay_ms, call.token)
    )


def touch(call: TubeCall) -> None:
    """[T5] Extend the task's times; an increment of 0 changes nothing."""
    more_ms: i64 = call.timeout_ms if call.timeout_ms > 0 else 0
    task = operations.touch(call.n, call.t, call.at, call.client, call.number, more_ms, call.token)
    if task is None:
        call.no_task()
    else:
        call.task(task)


def bury(call: TubeCall) -> None:
    """[T5] Make the task BURIED."""
    call.task(operations.bury(call.n, call.t, call.at, call.number, call.token))


def peek(call: TubeCall) -> None:
    """[T5] Show the task."""
    call.task(operations.peek(call.n, call.t, call.at, call.number))


def delete(call: TubeCall) -> None:
    """[T5] Remove the task, whoever has it."""
    call.task(operations.delete(call.n, call.t, call.at, call.number))


def kick(call: TubeCall) -> None:
    """[T5] Make buried tasks READY; a count below 0 is returned unchanged."""
    if call.options.count < 0:
        call.value(int(call.options.count))
    elif call.options.count <= FEW_KICKED:
        call.value(int(operations.kick(call.n, call.t, call.at, call.options.count)))
    else:
        call.begin(TubeChore(call, KICK))


def truncate(call: TubeCall) -> None:
    """[T2] Remove all tasks."""
    call.begin(TubeChore(call, TRUNCATE))


def release_all(call: TubeCall) -> None:
    """[T2] Make all taken tasks READY."""
    call.begin(TubeChore(call, RELEASE_ALL))


def drop(call: TubeCall) -> None:
    """[T2] Remove the tube."""
    call.begin(TubeChore(call, DROP))


def tasks(call: TubeCall) -> None:
    """[T5] Tasks in a state, in the order of (pri, id)."""
    if call.options.count == 0:
        call.written(0, [])
    else:
        call.begin(Tasks(call))


# the function of each procedure in the table (wire/commands/tube_table.py)
BY_NAME: Final[dict[str, Run]] = {
    "CREATE": tube_admin.create,
    "PUT": put,
    "TAKE": take,
    "ACK": ack,
    "RELEASE": release,
    "TOUCH": touch,
    "BURY": bury,
    "KICK": kick,
    "PEEK": peek,
    "DELETE": delete,
    "TASKS": tasks,
    "TRUNCATE": truncate,
    "RELEASEALL": release_all,
    "DROP": drop,
    "INFO": tube_admin.info,
    "LIST": tube_admin.list_tubes,
    "STATISTICS": tube_admin.statistics,
    "STATE": tube_leaders.state,
    "HOME": tube_leaders.home,
    "CFG": tube_admin.cfg,
    "IDENTIFY": tube_admin.identify_client,
    "CHANGES": tube_admin.changes,
    "SUBSCRIBE": tube_admin.subscribe,
    "UNSUBSCRIBE": tube_admin.unsubscribe,
    "GRANT": tube_admin.grant_calls,
    "REVOKE": tube_admin.revoke_calls,
    "GRANTS": tube_admin.grants,
    "DRIVERS": tube_admin.drivers,
    "REGISTERDRIVER": tube_admin.register_driver,
    "grant_role": tube_admin.grant_role,
    "on_task_change": tube_admin.on_task_change,
}
RUNS: Final[list[Run]] = [BY_NAME[one.name] for one in PROCEDURES]  # by code


# ---- TUBE over RESP: words read and replies written by the table (SPEC T15)


def cmd_tube(s: Server, c: Client, args: list[bytes]) -> None:
    """[T15] TUBE word [argument ...]; calls frequent procedures directly."""
    word = args[1]
    if word == b"PUT":
        put(read(s, c, PUT, args))
    elif word == b"TAKE":
        take(read(s, c, TAKE, args))
    elif word == b"ACK":
        ack(read(s, c, ACK, args))
    else:
        p = WORDS.get(word.upper())
        if p is not None:
            RUNS[p.code](read(s, c, p, args))
        elif len(args) == 2 and word.upper() == b"HELP":
            reply_help(s, c, b"TUBE")
        else:
            raise WrongWords(b"TUBE")


def read(s: Server, c: Client, p: Procedure, args: list[bytes]) -> TubeCall:
    """The call for these words, after all checks of the table. Raises ArgError, TubeError."""
    call = RespCall(s, p, c)
    p.read_words(args, call)
    if call.tube is not None and (p.is_home or p.is_known):
        call.go_to(tube_named(call.n, call.t, call.tube))
    if p.is_growing:
        check_growth(s)
    call.join_session()
    return call


def check_growth(s: Server) -> None:
    """[T15] Refuse commands that add tasks or tubes when the disk is short (T15.6)."""
    if s.is_disk_short():
        raise ArgError(DISKFULL)
    if s.is_parting():
        raise ArgError(LEAVING)


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class RespCall(TubeCall):
    """A call of a RESP client."""

    def __init__(self, s: Server, p: Procedure, c: Client) -> None:
        super().__init__(s, p, c, USER if c.user is None else c.user.name)
        self.c = c

    def sees(self, tube: bytes) -> bool:
        """Whether the client's user may see the tube."""
        return self.c.sees(tube)

    def named(self, tube: bytes) -> bytes:
        """Without the tenant of the client's user."""
        return self.c.named(tube)

    def serial(self) -> i64:
        """The serial of the next command that waits."""
        return self.c.put_serial + 1

    def is_unread(self) -> bool:
        """True after CLIENT REPLY OFF or SKIP."""
        return self.c.reply_mode == REPLY_OFF or self.c.reply_mode == REPLY_SKIPPING

    def task(self, task: Task) -> None:
        """Reply as in T15.3."""
        put_task(self.c.out, task)

    def write(self, parts: list[bytes], task: Task) -> None:
        """One element of an array."""
        put_task(parts, task)

    def written(self, count: i64, parts: list[bytes]) -> None:
        """Reply with an array of tasks."""
        self.c.out.append(array_head(count))
        self.c.out.extend(parts)

    def no_task(self, is_full: bool = False) -> None:
        """Reply with a null array."""
        put_none(self.c)

    def value(self, value: object) -> None:
        """Reply as `put_value` writes it."""
        self.c.reply(value)

    def uuid(self, uuid: bytes) -> None:
        """Reply with the text of the uuid (T15.7)."""
        self.c.reply(dashed(uuid))

    def pair(self, name: bytes, value: object) -> bytes:
        """Key and value in turn."""
        parts: list[bytes] = []
        put_value(parts, name, self.c.resp3)
        put_value(parts, value, self.c.resp3)
        return b"".join(parts)

    def pairs(self, count: i64, parts: list[bytes]) -> None:
        """Reply with a map; in RESP2 an array."""
        self.c.out.append(b"%%%d\r\n" % count if self.c.resp3 else b"*%d\r\n" % (2 * count))
        self.c.out.extend(parts)

    def begin(self, long_command: LongCommand) -> None:
        """Run in slices; the client is blocked meanwhile."""
        begin(self.s, self.c, long_command)

    def await_task(self, until_ms: i64) -> None:
        """Block the client meanwhile."""
        self.c.is_taking = True
        self.c.is_blocked = True
        self.s.blocked += 1
        operations.wait(self.n, self.t, self.at, self.client, until_ms)

    def await_room(self) -> None:
        """Block the client meanwhile."""
        await_room(self.s, self.c)

    def await_home(self) -> None:
        """Block the client meanwhile."""
        await_home(self.s, self.c)
