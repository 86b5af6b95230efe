"""The RESP door of tubes: TUBE, its words read and its replies written by the table (SPEC T15)."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.core.repair.drain import make_room
from tuque.server.commands.by_id import oom_text
from tuque.server.commands.dispatch import EVICT_PER_COMMAND
from tuque.server.replies.chores import begin
from tuque.server.replies.help import reply_help
from tuque.server.replies.redirects import tube_named
from tuque.server.replies.tube_replies import await_room, put_none, put_task, put_tasks
from tuque.server.replies.words import LEAVING
from tuque.server.state.chore import Chore
from tuque.server.state.client import REPLY_OFF, REPLY_SKIPPING, Client
from tuque.server.state.state import Server
from tuque.server.tubes.call import TubeCall
from tuque.server.tubes.homes import await_home
from tuque.server.tubes.procedures import RUNS
from tuque.server.tubes.tasks import ack, put, take
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.sessions import dashed
from tuque.wire.commands.arguments import ArgError, WrongWords
from tuque.wire.commands.tube_table import WORDS, Procedure
from tuque.wire.proto.resp import put_value

USER: Final = b"default"  # of a client that is nobody yet (T15.9)
PUT: Final = WORDS[b"PUT"]
TAKE: Final = WORDS[b"TAKE"]
ACK: Final = WORDS[b"ACK"]


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
        call.go_to(tube_named(call.t, call.tube))
    if p.is_growing:
        check_growth(s)
    call.join_session()
    return call


def check_growth(s: Server) -> None:
    """[T15] Refuse commands that add tasks or tubes as ADDJOB is, when memory is short (T15.6)."""
    n = s.n
    if n.limits.memory_bytes > 0 and n.used_bytes() * 4 > n.limits.memory_bytes * 3:
        if not make_room(n, EVICT_PER_COMMAND):
            raise ArgError(oom_text(n))
    if n.is_leaving:
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

    def tasks(self, found: list[Task]) -> None:
        """Reply with an array of tasks."""
        put_tasks(self.c.out, found)

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

    def begin(self, chore: Chore) -> None:
        """Run in slices; the client is blocked meanwhile."""
        begin(self.s, self.c, chore)

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
