"""Requests of IPROTO: run by type, calls of tubes, how operators see them (SPEC I4-I7, C7.5)."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final, final

import msgspec
from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.core.queues.deliver import serve_ready
from tuque.server.access.login import Place, host_of, note_failure
from tuque.server.access.rights import BEGUN, OK, may_call, note_call
from tuque.server.access.tenant import no_room, over_queues, refusal
from tuque.server.commands.dispatch import tell_wakes
from tuque.server.commands.jobs import over_memory
from tuque.server.commands.tubes import RUNS
from tuque.server.log.slowlog import (
    REDACTED,
    feed_monitors,
    note_latency,
    note_slow,
)
from tuque.server.replies.errors import IDLE, core_words, look_into
from tuque.server.replies.long_commands import begin_call
from tuque.server.replies.redirects import iproto_refusal
from tuque.server.replies.tubes import (
    NULL,
    TubeCall,
    list_value,
    put_values,
    task_value,
)
from tuque.server.replies.tubes import OK as STATUS_OK
from tuque.server.replies.waiting import hold_back_wired
from tuque.server.state.client import GUEST, LongCommand, Put, Take, User, Wired
from tuque.server.state.server import Server
from tuque.server.users.users import Account
from tuque.tubes.log.leader import unheard_refusal
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.sessions import leave, session_for
from tuque.wire.commands.bound import GROWS
from tuque.wire.commands.commands import OF_TUBES
from tuque.wire.commands.tube_arguments import shown
from tuque.wire.commands.tube_table import FUNCTIONS, METHODS, Procedure
from tuque.wire.proto.iproto import (
    AUTH,
    CALL,
    CALL_16,
    E_ACCESS,
    E_FIELD_MISSING,
    E_JOURNAL,
    E_LOADING,
    E_MEMORY,
    E_MSGPACK,
    E_NO_PROC,
    E_NO_SPACE,
    E_PASSWORD,
    E_PROC,
    E_READ_ONLY,
    E_TOO_LARGE,
    E_TYPE,
    EVAL,
    EXPRESSION,
    FUNCTION,
    ID,
    LONG_FRAME,
    PING,
    SELECT,
    SPACE,
    SPACE_LAST,
    USER,
    IprotoError,
    Request,
    data_reply,
    error_reply,
    id_reply,
    map_head,
    ok_reply,
    proves,
    string,
    type_name,
)
from tuque.wire.proto.msgpack import (
    ARRAY,
    BIN,
    INT,
    MAP,
    NIL,
    STR,
    Value,
)

TAKES_MAX: Final = 100_000  # waiting on one connection; puts count with them
TRUE: Final = b"\xc3"
LARGE: Final = (
    b"Failed to allocate %d bytes for tuple: tuple is too large. "
    b"Check 'memtx_max_tuple_size' configuration option."
)
MANY: Final = b"more than %d calls of one connection wait" % TAKES_MAX

# where a Tarantool tuple has the data, for error 39
DATA_FIELDS: Final = {b"fifo": 3, b"utube": 4, b"utubettl": 9}

SHOWN_ARGS_MAX: Final = 32  # of a call in MONITOR and SLOWLOG
EVENT: Final = "iproto-request"

SCRAMBLE_BYTES: Final = 20
# one text, so that nobody learns which users there are
WAITS_ALREADY: Final = b"a log-in of this connection waits for its turn already"
NOT_PROVED: Final = b"User not found or supplied credentials are invalid"
ARGS_MAX: Final = 8  # further ones are ignored
FAILED: Final = "error %d"
TUBES: Final = b"queue.tube."
NAME_KEPT: Final = 200  # bytes of a name whose meaning is remembered
NAMES_MAX: Final = 10_000
TABLES: Final = [b"queue", b"queue.driver"]
TABLE: Final = b"attempt to call a table value"
NO_LUA: Final = b"EVAL: there is no Lua here; create_tube and the test for a tube are understood"
CREATE: Final = FUNCTIONS[b"queue.create_tube"]
LIST: Final = FUNCTIONS[b"queue.tube"]
INTERNAL: Final = b"internal error, the log of the server says more"


# ---- Calls of tubes, read and answered by the table (SPEC I6, I7)


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

    def write(self, parts: list[bytes], task: Task) -> None:
        """One element of an array."""
        parts.append(task_value(task))

    def written(self, count: i64, parts: list[bytes]) -> None:
        """Reply with an array of tasks."""
        self.answer([list_value(parts)])

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
            self.answer([TRUE if value is STATUS_OK else msgspec.msgpack.encode(value)])

    def uuid(self, uuid: bytes) -> None:
        """Reply with the bytes."""
        self.answer([string(uuid)])

    def pair(self, name: bytes, value: object) -> bytes:
        """Key and value in turn."""
        return string(name) + msgspec.msgpack.encode(value)

    def pairs(self, count: i64, parts: list[bytes]) -> None:
        """Reply with a map."""
        self.answer([map_head(int(count)) + b"".join(parts)])

    def begin(self, long_command: LongCommand) -> None:
        """Run in slices; other calls run meanwhile."""
        begin_call(self.s, self.w, self.sync, long_command)

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


# ---- Requests in MONITOR, SLOWLOG and LATENCY (SPEC I4.9, C7.5)
#
# A request is shown in words, like a RESP command: its type, the function, the arguments. A
# password's proof is hidden.


def see(s: Server, w: Wired, request: Request) -> None:
    """[C7.5] Show a running request to every monitor."""
    feed_monitors(s, w, words_of(request))


def note_spent(s: Server, request: Request, spent_ns: int) -> None:
    """Record a slow request for the slow log or the latency events."""
    if 0 <= s.slow_ns <= spent_ns:
        note_slow(s, words_of(request), spent_ns)
    note_latency(s, EVENT, spent_ns)


def words_of(request: Request) -> list[bytes]:
    """The request in words."""
    words = [type_name(request.type)]
    for key in (FUNCTION, EXPRESSION, SPACE, USER):
        value = request.body.get(int(key))
        if value is not None:
            words.append(word_of(value))
    if request.type == AUTH:
        return [*words, REDACTED]
    try:
        return words + [word_of(value) for value in request.arguments(SHOWN_ARGS_MAX)]
    except IprotoError:
        return words


def word_of(value: Value) -> bytes:
    """A value as one word: strings bare, the rest as JSON; other bytes as they are."""
    if value.kind == NIL:
        return b"null"
    if value.kind not in (ARRAY, MAP):
        return shown(value)
    if value.end - value.at > LONG_FRAME:
        return value.raw()  # to decode it would hold up all
    try:
        return msgspec.json.encode(msgspec.msgpack.decode(value.raw()))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return value.raw()


# ---- One request: log-in, call, eval (SPEC I4, I5)


def answer(s: Server, w: Wired, request: Request) -> None:
    """[I4] Run one request; the reply goes to `w.out`, now or when its wait ends."""
    s.figures.commands += 1
    written = len(w.out)
    start_ns: i64 = perf_counter_ns()
    outcome = OK
    try:
        if len(request.error) > 0:
            raise IprotoError(E_MSGPACK, request.error)  # I2.5
        run(s, w, request)
    except IprotoError as error:
        w.out.append(error_reply(request.sync, error.code, w.worded(error.text)))
        outcome = FAILED % error.code
    except TubeError as refused:
        told = iproto_refusal(s, tubes_of(s.n), refused)
        w.out.append(error_reply(request.sync, told.code, w.worded(told.text)))
        outcome = FAILED % told.code
    except Exception as fault:
        outcome = FAILED % E_PROC
        look_into(s, f"in a request of {w.address}", fault)  # C3.12
        del w.out[written:]
        w.out.append(error_reply(request.sync, E_PROC, INTERNAL))
    if s.audit is not None and w.act is not None:
        is_begun = outcome == OK and len(w.out) == written
        note_call(s, w, w.act, w.command, BEGUN if is_begun else outcome)
    w.act = None
    spent_ns: i64 = perf_counter_ns() - start_ns
    if 0 <= s.slow_ns <= spent_ns or 0 < s.latency_ms * 1_000_000 <= spent_ns:
        note_spent(s, request, spent_ns)
    if s.n.policy is not None and len(tubes_of(s.n).to_sync) > 0:
        hold_back_wired(s, tubes_of(s.n), w, request.sync, written)  # T18.5
    if len(s.n.ready) > 0:
        serve_ready(s.n)
    if len(s.n.wakes) > 0:
        tell_wakes(s)


def run(s: Server, w: Wired, request: Request) -> None:
    """Run a request by its type. Raises IprotoError."""
    type = request.type
    if type in (CALL, CALL_16):
        call(s, w, request)
        return
    if type == EVAL:
        eval_text(s, w, request)
        return
    w.command = type_name(type)
    if len(s.monitors) > 0:
        see(s, w, request)
    if type == PING:
        w.out.append(ok_reply(request.sync))  # I4.1
    elif type == SELECT:
        select(w, request)
    elif type == AUTH:
        begin_log_in(s, w, request)
    elif type == ID:
        w.out.append(id_reply(request.sync))  # I4.6
    else:
        raise IprotoError(E_TYPE, b"Unknown request type %d" % type)  # I4.7


def select(w: Wired, request: Request) -> None:
    """[I4] A schema's tables are empty (I4.2); there are no other tables (I4.3)."""
    space = request.body.get(SPACE)
    number = space.integer() if space is not None and space.kind == INT else 0
    if number > SPACE_LAST:
        raise IprotoError(E_NO_SPACE, b"Space '%d' does not exist" % number)
    w.out.append(data_reply(request.sync, []))


@final
class LateLogIn(LongCommand):
    """[N6] A log-in that waits for its turn (N6.1)."""

    def __init__(self, s: Server, w: Wired, request: Request, place: Place) -> None:
        super().__init__(w)
        self.s = s
        self.w = w
        self.request = request
        self.place = place

    def step(self, room: i64) -> bool:
        """Whether the turn has come."""
        self.wake_ms = self.place.comes_ms()
        return self.wake_ms <= self.s.n.now_ms

    def drop(self) -> None:
        """The connection has gone before its turn."""
        self.place.leave()

    def tell(self) -> None:
        """Log in."""
        try:
            log_in(self.s, self.w, self.request)
        except IprotoError as error:
            self.w.out.append(error_reply(self.request.sync, error.code, error.text))
        else:
            self.w.out.append(ok_reply(self.request.sync))


class UserIsOff(IprotoError):
    """The right password of a user that is off (N6.8)."""


def begin_log_in(s: Server, w: Wired, request: Request) -> None:
    """Log in now, or when it is the turn of this address and this user."""
    name = request.text(USER, b"user name")
    if w.line_ms > 0:
        raise IprotoError(E_PROC, WAITS_ALREADY)
    place = Place(s, w, name)
    if place.turn is not None:
        begin_call(s, w, request.sync, LateLogIn(s, w, request, place))
        return
    log_in(s, w, request)
    w.out.append(ok_reply(request.sync))


def log_in(s: Server, w: Wired, request: Request) -> None:
    """[I5] ON REQUEST AUTH: log in as that user; after a failure, as guest (I5.4)."""
    name = request.text(USER, b"user name")
    try:
        user = proved_user(s, w, request)
    except IprotoError as error:
        become(s, w, s.users.guest)
        note_failure(s, w, name, not isinstance(error, UserIsOff))  # N6.3, N6.8
        raise
    s.acl.guesses.proved(host_of(w), name)
    if user.account is not None:
        full = no_room(s, w.user.account, user.account)
        if full is not None:
            raise IprotoError(E_PROC, full)  # N11.4
    become(s, w, user)
    w.stranger_ms = 0


def proved_user(s: Server, w: Wired, request: Request) -> User:
    """The user whose password the client has proved (I5.2). Raises IprotoError (I5.4)."""
    name = request.text(USER, b"user name")
    told = request.arguments(2)
    user = s.users.by_name.get(name)
    account = s.acl.by_name.get(name) if user is None else None
    if len(told) == 0 and name == GUEST and user is not None:
        return user  # I5.3
    if len(told) < 2 or told[1].kind not in (STR, BIN):
        raise IprotoError(E_MSGPACK, b"Invalid MsgPack - authentication request body")
    scramble = told[1].payload()
    if len(scramble) != SCRAMBLE_BYTES:
        raise IprotoError(E_MSGPACK, b"Invalid MsgPack - invalid scramble size")
    if account is not None:
        for secret in account.secrets.wired:
            if proves(scramble, secret, w.salt):
                if not account.is_on:
                    raise UserIsOff(E_PASSWORD, NOT_PROVED)
                user = User(name, secret, False)
                user.account = account  # N8.1
                return user
    elif user is not None and len(user.secret) > 0 and proves(scramble, user.secret, w.salt):
        return user
    raise IprotoError(E_PASSWORD, NOT_PROVED)


def become(s: Server, w: Wired, user: User) -> None:
    """[I5] Give the connection to the user; it leaves another user's session (I5.8)."""
    if user is w.user:
        return
    s.trust(w, user)
    t = tubes_of(s.n)
    leave(s.n, t, w.number)
    if len(w.takes) > 0:
        session_for(s.n, t, w.number, user.name)


@final
class Name:
    """What a called name means: a procedure, of the queue or of a tube, or why none."""

    def __init__(self, p: Procedure | None) -> None:
        self.p = p
        self.is_method = p is None
        self.tube = b""
        self.why_not = b""  # the name exists but cannot be called
        self.meant: Procedure | None = None  # of a tube that cannot be called here (I4.4)


NAMES: Final[dict[bytes, Name]] = {}  # cache, the same for every connection


def call(s: Server, w: Wired, request: Request) -> None:
    """[I4] ON REQUEST CALL: rights (I5.7), meaning (I4.4), the node's checks, the reply."""
    word = request.text(FUNCTION, b"function name")
    w.command = word
    t = tubes_of(s.n)
    is_granted = False
    account = w.user.account
    if not w.user.may_all():
        is_granted = not w.is_tenant() and t.rights.may(w.user.holders, word)  # N10.7
        if not is_granted and account is None:
            note_denied(s, w, word)
            raise denied(w, word)
    name = NAMES.get(word)
    if name is None:
        name = look_up(word, is_granted)
    p = name.p
    if p is not None:
        w.act = OF_TUBES[p.code]
    if account is not None and not is_granted and not account.is_full:
        unit_of = p or name.meant
        if unit_of is None or not may_call(s, w, account, OF_TUBES[unit_of.code], w.own(name.tube)):
            raise denied(w, word)
    tube = t.by_name.get(w.own(name.tube)) if name.is_method else None
    if name.is_method and (tube is None or (p is None and len(name.why_not) == 0)):
        unheard = unheard_refusal(s.n, t) if tube is None else None
        if unheard is not None:
            raise IprotoError(E_LOADING, core_words(unheard).partition(b" ")[2])  # T15.5
        raise IprotoError(E_NO_PROC, b"Procedure '%s' is not defined" % word)
    args = request.arguments(ARGS_MAX)
    if p is None:
        raise IprotoError(E_PROC, name.why_not)
    check_node(s, p.is_write, p.is_growing, OF_TUBES[p.code].memory)
    if len(s.monitors) > 0:
        see(s, w, request)
    one = IprotoCall(s, p, w, request.sync, request.type == CALL_16)
    one.word = b"" if is_granted else word
    if tube is None:
        run_function(one, args)
    elif p.is_put and account is not None and account.home is not None:
        put_of_tenant(one, account, args, tube)
    else:
        run_method(one, args, tube)


def put_of_tenant(call: IprotoCall, account: Account, args: list[Value], tube: Tube) -> None:
    """[N11] A put, if the quotas of the user's tenant leave room (N11.2, N11.9)."""
    size = len(args[0].raw()) if len(args) > 0 else 0
    refused = over_queues(call.s, account, [tube.name])  # N11.9
    if refused is None:
        refused = refusal(call.s, account, 1, size, True)
    if refused is not None:
        raise IprotoError(E_PROC, refused)
    run_method(call, args, tube)


def note_denied(s: Server, w: Wired, word: bytes) -> None:
    """[N9] Remember for the audit what was called; of strangers nothing is (N9.1)."""
    if s.audit is not None and w.user.name != GUEST:
        p = look_up(word, True).p  # not kept among the known names
        if p is not None:
            w.act = OF_TUBES[p.code]


def denied(w: Wired, word: bytes) -> IprotoError:
    """[I5] The error for a call without the right to it (I5.7)."""
    text = b"Execute access to function '%s' is denied for user '%s'"
    return IprotoError(E_ACCESS, text % (word, w.user.name))


def look_up(word: bytes, is_granted: bool) -> Name:
    """[I4] Resolve the name of a procedure; tubes' names with `.` or `:` resolve to none."""
    name = Name(FUNCTIONS.get(word))
    prefix, colon, method = word.rpartition(b":")
    if name.p is not None:
        pass
    elif word in TABLES:
        name.is_method = False
        name.why_not = TABLE
    elif word.startswith(TUBES):
        tube = prefix[len(TUBES) :] if colon else word[len(TUBES) :]
        if b"." not in tube and b":" not in tube:
            name.tube = tube
            if colon:
                name.p = METHODS.get(method)
            else:
                name.why_not = TABLE
        elif colon:
            name.tube, name.meant = tube, METHODS.get(method)
        elif tube.rpartition(b".")[2] in METHODS:
            name.tube = tube.rpartition(b".")[0]
            name.why_not = b"attempt to index field 'raw' (a nil value)"
    elif is_granted and colon:  # a prefix chosen by the operator
        name.tube = prefix.rpartition(b".")[2]
        name.p = METHODS.get(method)
        return name
    if word.startswith(b"queue") and len(word) <= NAME_KEPT and len(NAMES) < NAMES_MAX:
        NAMES[word] = name
    return name


def check_node(s: Server, is_write: bool, is_growing: bool, kind: str) -> None:
    """[I4] Apply the checks that RESP commands pass to a call, too (I4.8).

    `kind`: what it does to memory.
    """
    n = s.n
    if s.is_loading:
        raise IprotoError(E_LOADING, b"Instance bootstrap hasn't finished yet")
    short = over_memory(n, kind)
    if len(short) > 0:
        raise IprotoError(E_MEMORY, b"Failed to allocate memory: " + short.partition(b" ")[2])
    if len(s.journal_error) > 0 and is_write:
        raise IprotoError(E_JOURNAL, b"Failed to write to disk: " + s.journal_error.encode())
    if s.is_disk_short() and is_growing:
        raise IprotoError(E_JOURNAL, b"Failed to write to disk: it is nearly full")
    if n.is_double:
        other = b"another node has the id of this one"
        alone = b"this node is no member of its cluster"
        raise IprotoError(E_READ_ONLY, alone if s.idle in IDLE else other)


def eval_text(s: Server, w: Wired, request: Request) -> None:
    """[I4] ON REQUEST EVAL (I4.5)."""
    text = request.text(EXPRESSION, b"expression")
    if not w.user.may_all():
        told = b"Execute access to universe '' is denied for user '%s'"
        raise IprotoError(E_ACCESS, told % w.user.name)
    check_node(s, True, True, GROWS)
    w.command = b"eval"
    if len(s.monitors) > 0:
        see(s, w, request)
    count = request.argument_count()
    if count in (2, 3) and b"create_tube" in text:
        p = CREATE
    elif count == 1 and b"queue.tube[" in text and b"~= nil" in text.partition(b"queue.tube[")[2]:
        p = LIST
    else:
        raise IprotoError(E_PROC, NO_LUA)
    w.act = OF_TUBES[p.code]
    run_function(IprotoCall(s, p, w, request.sync, False), request.arguments(ARGS_MAX))
