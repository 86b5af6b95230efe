"""The IPROTO door of tubes: reads calls and writes replies by the table (SPEC I6, I7)."""

from __future__ import annotations

from typing import Final, final

import msgspec
from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.server.replies.chores import begin_call
from tuque.server.replies.iproto_replies import NULL, list_value, put_values, task_value
from tuque.server.rights.wired import may_call
from tuque.server.state.chore import Chore
from tuque.server.state.iproto_connection import Put, Take, Wired
from tuque.server.state.state import Server
from tuque.server.tubes.call import OK, TubeCall
from tuque.server.tubes.procedures import RUNS
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks import operations
from tuque.wire.commands.rights import OF_TUBES
from tuque.wire.commands.tube_table import Procedure
from tuque.wire.proto.iproto import (
    E_ACCESS,
    E_FIELD_MISSING,
    E_PROC,
    E_TOO_LARGE,
    IprotoError,
    map_head,
    string,
)
from tuque.wire.proto.msgpack import Value

TAKES_MAX: Final = 100_000  # waiting on one connection; puts count with them
TRUE: Final = b"\xc3"
LARGE: Final = (
    b"Failed to allocate %d bytes for tuple: tuple is too large. "
    b"Check 'memtx_max_tuple_size' configuration option."
)
MANY: Final = b"more than %d calls of one connection wait" % TAKES_MAX

# where a Tarantool tuple has the data, for error 39
DATA_FIELDS: Final = {b"fifo": 3, b"utube": 4, b"utubettl": 9}


def run_function(call: IprotoCall, args: list[Value]) -> None:
    """[I6] Call a function of the queue. Raises IprotoError and TubeError."""
    call.p.read_values(args, call, None)
    if call.tube is not None:
        call.tube = call.w.own(call.tube)  # N10.2
    check_tube(call)
    if call.p.is_known and call.tube is not None:
        tube = call.t.by_name.get(call.tube)
        if tube is None:
            raise IprotoError(E_PROC, b"attempt to index a nil value")
        call.go_to(tube)
    RUNS[call.p.code](call)


def check_tube(call: IprotoCall) -> None:
    """[N8] Raise if the table of users hides the tube that the arguments name (N8.2)."""
    account = call.w.user.account
    if account is None or call.tube is None or len(call.word) == 0:
        return
    if not may_call(call.s, call.w, account, OF_TUBES[call.p.code], call.tube):
        text = b"Execute access to function '%s' is denied for user '%s'"
        raise IprotoError(E_ACCESS, text % (call.word, call.user))


def run_method(call: IprotoCall, args: list[Value], tube: Tube) -> None:
    """[I6] Call a method of a tube. Raises IprotoError and TubeError."""
    p = call.p
    call.go_to(tube)  # T17.4
    if tube.sync > 1 and call.w.uncopied >= TAKES_MAX:
        raise IprotoError(E_PROC, MANY)
    if p.is_put and len(args) == 0:
        field = DATA_FIELDS.get(tube.type, 8)
        text = b"Tuple field %d required by space format is missing"
        raise IprotoError(E_FIELD_MISSING, text % field)  # I6.7
    p.read_values(args, call, tube.driver)
    if len(call.body) > call.s.max_bulk:
        raise IprotoError(E_TOO_LARGE, LARGE % len(call.body))
    call.join_session()  # its own user's session (I5.8)
    RUNS[p.code](call)


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class IprotoCall(TubeCall):
    """A call over IPROTO."""

    def __init__(self, s: Server, p: Procedure, w: Wired, sync: int, is_16: bool) -> None:
        super().__init__(s, p, w, w.user.name)
        self.w = w
        self.sync = sync
        self.is_16 = is_16
        self.word = b""  # the function called, unless it was granted

    def sees(self, tube: bytes) -> bool:
        """Whether the user may see the tube."""
        user = self.w.user
        return user.sees(tube) or self.t.rights.may_read(user.holders, tube)

    def named(self, tube: bytes) -> bytes:
        """Without the user's tenant."""
        return self.w.named(tube)

    def full(self, tube: bytes) -> bytes:
        """With the user's tenant."""
        return self.w.own(tube)

    def answer(self, found: list[bytes]) -> None:
        """[I3] Reply with values (I3.2, I3.3)."""
        put_values(self.w, self.sync, self.is_16, found)

    def serial(self) -> i64:
        """The serial of the next put or claim that waits."""
        return self.w.next_serial

    def may_wait(self) -> None:
        """[I7] Raise if too many calls wait (I7.2)."""
        if len(self.w.takes) + len(self.w.puts) >= TAKES_MAX:
            raise IprotoError(E_PROC, MANY)

    def may_read(self, tube: Tube) -> None:
        """[I5] Raise for a user who may not call the tube: its figures are hidden, too (I5.7)."""
        user = self.w.user
        if self.sees(tube.name) or (user.account is not None and self.tube is None):
            return  # a list leaves out what the user may not see (N2.5)
        text = b"Read access to space '%s' is denied for user '%s'"
        raise IprotoError(E_ACCESS, text % (tube.name, user.name))

    def task(self, task: Task) -> None:
        """Reply as in I3.5."""
        self.answer([task_value(task)])

    def tasks(self, found: list[Task]) -> None:
        """Reply with an array of tasks."""
        self.answer([list_value([task_value(task) for task in found])])

    def no_task(self, is_full: bool = False) -> None:
        """Reply with no value, or nil."""
        self.answer([NULL] if is_full else [])

    def value(self, value: object) -> None:
        """Reply with the value where the call has one; bytes become a string unchanged."""
        if not self.p.is_told:
            self.answer([])
        elif isinstance(value, bytes):
            self.answer([string(value)])
        elif isinstance(value, list):
            self.answer([list_value([string(name) for name in value])])
        elif isinstance(value, int) and value < 0:
            self.answer([b"\xd3" + value.to_bytes(8, "big", signed=True)])
        else:
            self.answer([TRUE if value is OK else msgspec.msgpack.encode(value)])

    def uuid(self, uuid: bytes) -> None:
        """Reply with the bytes."""
        self.answer([string(uuid)])

    def pair(self, name: bytes, value: object) -> bytes:
        """Key and value in turn."""
        return string(name) + msgspec.msgpack.encode(value)

    def pairs(self, count: i64, parts: list[bytes]) -> None:
        """Reply with a map."""
        self.answer([map_head(int(count)) + b"".join(parts)])

    def begin(self, chore: Chore) -> None:
        """Run in slices; other calls run meanwhile."""
        begin_call(self.s, self.w, self.sync, chore)

    def await_task(self, until_ms: i64) -> None:
        """[I7] Wait under a number of its own (I7.1)."""
        s = self.s
        number = s.next_number
        s.next_number += 1
        operations.wait(self.n, self.t, self.at, self.client, until_ms, number)
        s.takes[number] = Take(self.w, self.sync, self.is_16, self.at.name)
        self.w.takes[number] = None

    def await_room(self) -> None:
        """[I7] Wait under its serial (I7.4)."""
        w = self.w
        w.puts[int(w.next_serial)] = Put(self.sync, self.is_16)
        w.next_serial += 1

    def await_home(self) -> None:
        """Wait likewise."""
        w = self.w
        w.claims[int(w.next_serial)] = Put(self.sync, self.is_16)
        w.next_serial += 1
