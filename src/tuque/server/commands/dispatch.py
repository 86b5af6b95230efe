"""One command: the checks in their order, the call into the core, the reply (SPEC C3).

The commands of the job cycle live here; the others are in the modules that
`tuque.server.admin.registry` names, as functions of (server, client, args).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack import on_deadletter
from tuque.core.copies.add import fill_in, for_queue, on_addjob, refusal
from tuque.core.model.errors import (
    ACKED_ALREADY,
    NOJOB,
    PAUSED,
    TASK_APART,
)
from tuque.core.model.job import ACKED, WAIT_REPL, AddSpec, Job
from tuque.core.model.stats import tenant_of
from tuque.core.model.task import Task
from tuque.core.node.node import (
    DATA_RESET,
    GOT_JOBS,
    HOME_MOVED,
    JOB_ENDED,
    NODE_DOUBLE,
    NODE_LEAVING,
    TIMED_OUT,
    WITH_RUN,
    Wake,
)
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.dedupe import (
    follow,
    is_unsure,
    keep_key,
    keys_refusal,
    must_wait,
    same_job,
)
from tuque.core.queues.deliver import (
    on_getjob,
    on_poll,
    serve_ready,
    wait,
)
from tuque.core.queues.procedures import memory_level
from tuque.core.staged.stage import ask_copies
from tuque.server.access.login import is_one_too_many
from tuque.server.access.rights import FULL, denial, may_stay, note_act
from tuque.server.access.tenant import check_growth, check_names
from tuque.server.commands.jobs import (
    DISKFULL,
    check_acted,
    check_room,
    cmd_ack,
    over_memory,
    put_more,
)
from tuque.server.commands.queue_settings import reply_purged
from tuque.server.commands.results import reply_ended
from tuque.server.commands.values import reply_values
from tuque.server.commands.work import tell_cancelled, worker_of
from tuque.server.log.log import warn_once
from tuque.server.log.slowlog import feed_monitors, note_latency, note_slow
from tuque.server.replies.errors import (
    CONFLICT,
    IDLE,
    LEAVING,
    core_words,
    error_words,
    load_share,
    on_fault,
    worded,
)
from tuque.server.replies.redirects import (
    check_queue,
    check_strange,
    check_tasks,
    moved_text,
    refusal_text,
)
from tuque.server.replies.tubes import reply_take, reply_take_iproto
from tuque.server.replies.waiting import (
    await_copies,
    hold_back,
    keep_order,
    late_refusal,
    new_reply,
)
from tuque.server.state.client import (
    LARGE_BYTES,
    ORDINARY,
    REPLY_OFF,
    REPLY_ON,
    REPLY_SKIP,
    REPLY_SKIPPING,
    TURN_BYTES,
    Client,
    Wanted,
    memory_of,
    weigh,
)
from tuque.server.state.server import Server
from tuque.tubes.groups import FIRST_WATCHER
from tuque.tubes.groups import wake as wake_group
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.add_options import addjob_options
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    getjob_options,
    timeout_ms,
)
from tuque.wire.commands.commands import Command, bound_of, unit_of
from tuque.wire.commands.rows import LIGHT_WORK, LONG_WORD, long_word
from tuque.wire.proto.resp import array_head, bulk_head

Handler = Callable[[Server, Client, list[bytes]], None]
HANDLERS: Final[dict[bytes, Handler]] = {}  # by lower-case name; filled by registry.py

# [C9] the first words of errors
TUBE_LETTERS: Final = b"ERR '%s' is a tube: dead letters go to a queue"
LOADING: Final = b"LOADING Tuque is loading its journal, %d %% done: try again soon"

LONG_WORD_GIVEN: Final = b"ERR word %d of '%s' has %d bytes: at most %d, only a body may have more"
TOO_MANY_WORDS: Final = b"ERR too many words for '%s': at most %d in one command"

SMALL_WORDS: Final = 16
PLAIN_LAST: Final = 4  # ADDJOB, GETJOB and acks cost by L2.8
NAME_BYTES: Final = 128  # shown of an unknown command's name
REASON_MAX: Final = 2048  # bytes; the event stream keeps less
HTTP_WORDS: Final = [b"POST", b"HOST:"]


def execute(s: Server, c: Client, args: list[bytes]) -> None:
    """[C3] Run one command of a client that is neither blocked (C3.9) nor closing."""
    if c.user is None and s.acl.is_guarded and is_one_too_many(s, c):
        return
    command = s.last_command
    if command is None or args[0] != s.last_word:
        command = find(s, args[0])
        if command is None:
            s.figures.turned_down += 1
            unknown(s, c, args[0])
            return
    start_ns = begin_ns(s)
    written: i64 = len(c.out)
    account = c.user  # as it was: the command may log out
    refused = refuse(s, c, command, args)
    if refused is not None:
        s.figures.turned_down += 1
        c.error(refused)
    else:
        if len(s.monitors) > 0:
            feed_monitors(s, c, args)
        c.commands += 1
        c.command = command.name
        try:
            run(s, c, command, args)
        except ArgError as error:
            c.error(worded(error, command, args))  # C4.6
        except TubeError as refused_there:
            c.error(refusal_text(s, refused_there))  # T17.3
        except Exception as fault:
            on_fault(s, c, command.name, written, fault)
        note_time(s, command, args, start_ns)
    if s.audit is not None and account is not None:
        note_act(s, c, account, command, args, written)
        s.mark_ns = 0
    if c.reply_mode != REPLY_ON:
        quiet(c, written)
    if s.n.policy is not None and len(tubes_of(s.n).to_sync) > 0:
        hold_back(s, tubes_of(s.n), c, written)  # T18.5
    if len(c.holes) > 0:
        keep_order(s.n, c, written)
    if not c.is_dirty:
        s.touch(c)
    if len(s.n.ready) > 0:
        serve_ready(s.n)
        s.mark_ns = 0
    if len(s.n.wakes) > 0 or len(s.n.life.calls) > 0:
        tell_wakes(s)
        s.mark_ns = 0


def begin_ns(s: Server) -> i64:
    """When a command begins: at the end of the last one, unless something else ran since."""
    at_ns = s.mark_ns
    if at_ns == 0:
        return s.system.work_ns()
    s.mark_ns = 0
    return at_ns


def note_time(s: Server, command: Command, args: list[bytes], start_ns: i64) -> None:
    """Count a command that has ended; keep one that took long for SLOWLOG and LATENCY."""
    ended_ns: i64 = s.system.work_ns()
    spent_ns = ended_ns - start_ns
    s.mark_ns = ended_ns  # the next command begins
    if command.code > PLAIN_LAST or len(args) > SMALL_WORDS:
        s.note_long(spent_ns)
    command.calls += 1
    command.usec_ns += spent_ns
    s.figures.commands += 1
    if 0 <= s.slow_ns <= spent_ns:
        note_slow(s, args, spent_ns)
    if s.latency_ms > 0 and spent_ns >= s.latency_ms * 1_000_000:
        note_latency(s, "fast-command" if command.is_fast else "command", spent_ns)


def unknown(s: Server, c: Client, word: bytes) -> None:
    """Reply to an unknown command (C3.2), or close on HTTP (C2.7)."""
    if word[:5].upper() in HTTP_WORDS:
        warn_once(s.n.now_ms, c.address, "it speaks HTTP; did a web page send it here?")
        s.figures.broken += 1
        c.is_closing = True
        s.touch(c)
        return
    written: i64 = len(c.out)
    name = word[:NAME_BYTES].decode("utf-8", "backslashreplace")
    c.error(b"ERR unknown command '%s'" % name.encode())
    if c.reply_mode != REPLY_ON:
        quiet(c, written)
    s.touch(c)


def find(s: Server, word: bytes) -> Command | None:
    """The command of that name in any case; the next one often has the same."""
    command = s.by_name.get(word)
    if command is None:
        command = lookup(s, word)
    s.last_word = word
    s.last_command = command
    return command


def lookup(s: Server, word: bytes) -> Command | None:
    """The command of that name in any case; caches the spelling."""
    command = s.table.get(word.upper())
    if command is not None and len(s.by_name) < 1000:
        s.by_name[word] = command
    return command


def is_long(s: Server, args: list[bytes]) -> bool:
    """[L2] Whether the command may be long: it waits once the turn has used its share (L2.3)."""
    command = s.by_name.get(args[0])
    if command is None:
        command = lookup(s, args[0])
    if command is None:
        return False
    bound = bound_of(command.name, args)
    return bound.work > LIGHT_WORK and not (command.code == 1 and is_small(args))


def is_small(args: list[bytes]) -> bool:
    """Whether a GETJOB asks for few jobs of few queues, and begins none."""
    if len(args) > SMALL_WORDS:
        return False
    for i in range(1, len(args) - 1):
        if len(args[i + 1]) > 2 and args[i].upper() == b"COUNT":
            return False
        if len(args[i]) == 5 and args[i].upper() == b"START":
            return False
    return True


# a stopping node sends these to other nodes; what ends jobs it does itself (C11.2)
SENT_AWAY: Final = frozenset(("ADDJOB", "GETJOB", "TOPIC", "PING"))


def refuse(s: Server, c: Client, command: Command, args: list[bytes]) -> bytes | None:
    """The reason to refuse the command, in the order of C3.3-C3.7, C3.11; None to run it."""
    if not command.takes(len(args)):
        return b"ERR wrong number of arguments for '%s' command" % command.wire_name
    if len(args) > command.words:
        return TOO_MANY_WORDS % (command.wire_name, command.words)  # L2.4
    if c.reader.has_long:
        at = long_word(command.name, args)
        if at >= 0:
            return LONG_WORD_GIVEN % (at + 1, command.wire_name, len(args[at]), LONG_WORD)  # L2.9
    if s.acl.is_guarded:
        denied = denial(s, c, command, args)
        if denied is not None:
            return denied
    if c.place != ORDINARY and not may_stay(s, c, command, args):
        return FULL  # C1.12
    if memory_level(s.n) > 0:
        unit = unit_of(command.name, args) if command.unit is None else command.unit
        short = over_memory(s.n, unit.memory)
        if len(short) > 0:
            return way_to_leader(s, command, args) or short
    if len(s.journal_error) > 0 and (command.is_write or command.name == "PING"):
        way = way_to_leader(s, command, args)
        return way or b"MISCONF Errors writing to the AOF file: " + s.journal_error.encode()
    if command.is_denyoom and s.is_disk_short() and command.name != "ENQUEUE":
        return way_to_leader(s, command, args) or DISKFULL  # J6.9
    if len(s.end_asked) > 0 and command.name in SENT_AWAY:
        return LEAVING  # C11.2
    if s.is_loading and not command.is_loading:
        return LOADING % int(load_share(s.committer))
    if s.n.is_double and (command.group in ("jobs", "queues") or command.name == "PING"):
        return IDLE.get(s.idle, CONFLICT)  # C3.11, K6.4, K1.4
    return None


def way_to_leader(s: Server, command: Command, args: list[bytes]) -> bytes:
    """[C3] The redirect if the command is about a tube that another node leads (C3.6); or b""."""
    unit = command.unit
    if unit is None:
        unit = unit_of(command.name, args)
    try:
        for queue in unit.queues(args):
            check_queue(s, queue)
        if unit.jobs_from > 0:
            check_tasks(s, args, unit.jobs_from, 1)
            check_strange(s, args, unit.jobs_from, 1)
    except HomeError as error:
        return refusal_text(s, error)
    except TubeError:
        pass
    return b""


def run(s: Server, c: Client, command: Command, args: list[bytes]) -> None:
    """Call the command's function; frequent commands skip the table. Others cost a unit (L2.10)."""
    code = command.code
    if code == 0:
        cmd_addjob(s, c, args)
    elif code == 1:
        cmd_getjob(s, c, args)
    elif code <= 4:
        cmd_ack(s, c, args, code)
    else:
        least = bound_of(command.name, args).least if command.is_container else command.least
        s.n.work += least - 1  # L2.10: the loop counts the call itself
        HANDLERS[command.wire_name](s, c, args)
    rest = c.long_command
    if rest is not None:  # it runs in slices
        rest.words_bytes = memory_of([args])
        weigh(s.n, c)  # M5.1


def quiet(c: Client, written: i64) -> None:
    """CLIENT REPLY OFF and SKIP: drop the reply."""
    if c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING:
        del c.out[written:]
    if c.reply_mode == REPLY_SKIPPING:
        c.reply_mode = REPLY_ON
    elif c.reply_mode == REPLY_SKIP:
        c.reply_mode = REPLY_SKIPPING


def cmd_addjob(s: Server, c: Client, args: list[bytes]) -> None:
    """ADDJOB queue body ms-timeout [options] (R1.1-R1.10)."""
    n = s.n
    if n.prompt_count != s.prompt_then:
        s.settle_plain()
    spec = s.plain_spec if len(args) == 4 else spec_of(s, args)
    wait_ms = timeout_ms(args[3])
    spec = for_queue(n, args[1], spec)
    if len(spec.key) > 0 and answer_same(s, c, args, spec, wait_ms):
        return
    refused = refusal(n, args[1], spec)
    if refused is None and s.is_crowded:
        refused = late_refusal(s, spec)
    if refused is None and len(spec.key) > 0:
        refused = keys_refusal(n, 1, tenant_of(args[1]))  # Z4.6
    if refused is not None:
        c.error(core_words(refused))
        return
    serial = c.first_serial + len(c.holes)
    job = on_addjob(n, args[1], args[2], spec, c.number, serial, wait_ms)
    if len(spec.key) > 0:
        is_waiting = job.state == WAIT_REPL and not spec.is_async
        keep_key(n, args[1], spec.key, spec.key_ttl_ms, job, is_waiting)
    if job.state == WAIT_REPL and not spec.is_async:
        await_copies(s, c)
        if spec.with_new:
            c.told_new[serial] = True
    elif spec.with_new:
        c.out.append(new_reply(job.id, not spec.has_met))  # Z4.7, T44.4
    else:
        c.out.append(b"+%s\r\n" % job.id)


def spec_of(s: Server, args: list[bytes]) -> AddSpec:
    """The settled options of an ADDJOB; later ones often have the same."""
    if s.n.is_leaving:
        return fill_in(s.n, addjob_options(args))
    spec = s.specs.find(args)
    if spec is None:
        spec = fill_in(s.n, addjob_options(args))
        s.specs.keep(args, spec)
    return spec


def answer_same(s: Server, c: Client, args: list[bytes], spec: AddSpec, wait_ms: i64) -> bool:
    """[Z4] Reply to an ADDJOB with a known key, now or when its job is safe (Z4.2, Z4.4)."""
    n = s.n
    id = same_job(n, args[1], spec.key)
    if len(id) == 0:
        return False
    n.keys.hits += 1
    if not spec.is_async and (must_wait(n, id) or is_unsure(n, id)):
        serial = c.first_serial + len(c.holes)
        follow(n, id, c.number, serial, wait_ms)
        ask_copies(n, id)
        await_copies(s, c)
        if spec.with_new:
            c.told_new[serial] = False
    elif spec.with_new:
        c.out.append(new_reply(id, False))  # Z4.7
    else:
        c.out.append(b"+%s\r\n" % id)
    return True


def cmd_getjob(s: Server, c: Client, args: list[bytes]) -> None:
    """[V1] ON COMMAND GETJOB [options] FROM queue ..."""
    n = s.n
    spec = getjob_options(args)
    if c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING:
        return  # nobody would read the reply: the jobs stay queued (C7.3)
    for name in spec.queues:
        check_queue(s, name)  # T17.3
    if spec.extras & WITH_RUN:
        c.begins_as = c.own(spec.worker) if len(spec.worker) > 0 else worker_of(s, c)
    jobs = on_getjob(n, c.number, spec.queues, spec.count)
    if len(jobs) > 0:
        put_jobs(s, c, jobs, spec.extras)  # V1.3
    elif spec.no_hang:
        c.out.append(b"_\r\n" if c.resp3 else b"*-1\r\n")  # V1.4
        on_poll(n, spec.queues)
    elif s.is_parting():
        c.error(LEAVING)  # V1.5, K9.1
    else:
        check_names(s, c.user, spec.queues)  # V1.7
        until_ms: i64 = 0
        if spec.timeout_ms > 0:
            until_ms = n.now_ms + spec.timeout_ms
        c.is_blocked = True
        s.blocked += 1
        wait(n, c.number, spec.queues, spec.count, spec.extras, until_ms)


def put_jobs(s: Server, c: Client, jobs: list[Job], extras: i64) -> None:
    """Write the reply of GETJOB."""
    out = c.out
    out.append(array_head(len(jobs)))
    c.hand(jobs)
    if extras != 0:
        put_more(s, c, jobs, extras)
        return
    user = c.user if c.is_tenant() else None
    for job in jobs:
        if user is None:
            out.append(s.n.queues[job.queue].reply_head)
        else:
            out.append(user.head(job.queue))
        out.append(job.id)
        out.append(b"\r\n")
        out.append(bulk_head(len(job.body)))
        out.append(job.body)
        if len(job.body) > LARGE_BYTES:
            c.has_large = True
        out.append(b"\r\n")


def cmd_deadletter(s: Server, c: Client, args: list[bytes]) -> None:
    """DEADLETTER id queue [REASON text] [BODY bytes] (Q10.1, Q10.4)."""
    reason = b""
    body: bytes | None = None
    i = 3
    while i < len(args):
        word = args[i].upper()
        if i + 1 == len(args):
            raise Misuse(args[i])
        if word == b"REASON":
            reason = args[i + 1]
            if len(reason) > REASON_MAX:
                raise ArgError(b"ERR REASON must be at most %d bytes" % REASON_MAX)
        elif word == b"BODY":
            body = args[i + 1]
        else:
            raise Misuse(args[i])
        i += 2
    words = args[:2]
    check_acted(s, words, 1)
    job = s.n.jobs.get(words[1])
    if job is None or job.state == WAIT_REPL:
        raise ArgError(error_words(NOJOB))
    if job.state == ACKED:
        raise ArgError(error_words(ACKED_ALREADY))
    what = tubes_of(s.n).what_is(job) if isinstance(job, Task) else b""
    if len(what) > 0:
        raise ArgError(error_words(TASK_APART, (job.id, what)))  # T1.11
    q = s.n.queues.get(args[2])
    if q is not None and q.policy is not None:
        raise ArgError(TUBE_LETTERS % args[2])  # T1.6
    if q is not None and q.pause & PAUSE_IN:
        raise ArgError(error_words(PAUSED))
    if body is not None:
        check_growth(s, c.user, job, body)
        if len(body) > len(job.body):
            check_room(s.n, [])  # M2.4
    c.out.append(b"+%s\r\n" % on_deadletter(s.n, job, args[2], reason, body).id)


def tell_wakes(s: Server) -> None:
    """Reply to clients whose wait is over, and let their pending commands run."""
    if len(s.n.life.calls) > 0:
        tell_cancelled(s)
    wakes = s.n.wakes
    s.n.wakes = []
    for wake in wakes:
        if wake.client < FIRST_WATCHER and s.n.policy is not None:
            wake_group(tubes_of(s.n), wake.client)
            continue
        if wake.why >= JOB_ENDED and s.woken_bytes > TURN_BYTES:
            put_off(s, wake)  # L2.8
            continue
        c = s.by_number.get(wake.client)
        if c is None and len(s.takes) > 0:
            reply_take_iproto(s, wake)
        if c is None or not c.is_blocked:
            continue
        if wake.why >= JOB_ENDED and (c.wanted is None or not reply_waiting(s, c, c.wanted, wake)):
            continue  # W9.2, T72.1
        c.is_blocked = False
        s.blocked -= 1
        c.last_ms = s.n.now_ms
        if wake.why < JOB_ENDED:
            tell(s, c, wake)
        s.note_woken(c)
        s.touch(c)
        if len(c.todo) > 0 or c.reader.error:
            s.resumed.append(c)


def reply_waiting(s: Server, c: Client, wanted: Wanted, wake: Wake) -> bool:
    """What the client waits for has news; whether its wait is over."""
    if wanted.purge is not None:
        is_over = reply_purged(c, wanted.purge)
    elif len(wanted.tube) > 0:
        is_over = reply_values(s, c, wanted, wake)
    else:
        is_over = reply_ended(s, c, wake)
    if is_over:
        s.n.life.unwatch(c.number)
    return is_over


def put_off(s: Server, wake: Wake) -> None:
    """Reply in the next turn to a client that waits for ends of jobs."""
    before = s.late_wakes.get(wake.client)
    if before is not None:
        before.name = wake.name = b""  # of several values
    if before is None or before.why == JOB_ENDED:
        s.late_wakes[int(wake.client)] = wake


def tell(s: Server, c: Client, wake: Wake) -> None:
    """Reply to a GETJOB, or to a take, that waited."""
    if c.is_taking:
        reply_take(s, c, wake)
    elif wake.why == GOT_JOBS:
        put_jobs(s, c, wake.jobs, wake.extras)
    elif wake.why == NODE_LEAVING:
        c.error(LEAVING)
    elif wake.why == NODE_DOUBLE:
        c.error(CONFLICT)
    elif wake.why == HOME_MOVED:
        c.error(moved_text(s, wake.queue))
    else:
        assert wake.why == TIMED_OUT or wake.why == DATA_RESET
        c.out.append(b"_\r\n" if c.resp3 else b"*-1\r\n")
