"""START, WORKING, PROGRESS, RELEASE, FAIL, DONE, UPDATEJOB: the work on a job (SPEC W)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.life.cancel_update import on_update
from tuque.core.life.outcomes import end_done, on_done
from tuque.core.life.runs import on_fail, on_progress, on_release, on_work
from tuque.core.life.start import if_open, start
from tuque.core.model.errors import GIVEN_AWAY, NOJOB, NOTDELIVERED, Refusal
from tuque.core.model.job import Update
from tuque.core.model.task import Task
from tuque.core.model.work import (
    ATTEMPTS_MAX,
    CRASHED,
    FAILED_BY_WORKER,
    NEVER_S,
    TIMED_OUT,
    run_text,
)
from tuque.core.queues.ends import life_of
from tuque.core.queues.work_copies import letters_of
from tuque.core.work.rules import BACK, DIED, GONE
from tuque.server.access.tenant import check_growth
from tuque.server.commands.jobs import check_acted, job_named
from tuque.server.commands.results import wait_for_update
from tuque.server.replies.errors import core_words, error_words
from tuque.server.state.client import NONE_HANDED, Client
from tuque.server.state.server import Server
from tuque.wire.commands.arguments import (
    PRI_MAX,
    ArgError,
    Misuse,
    headers,
    in_range,
    ms_in_range,
    not_this,
    seconds_ms,
    twice,
    worker_name,
    wrong,
    wrong_option,
)
from tuque.wire.proto.resp import array_head, int_reply, put_bulk

BAD_RUN: Final = b"ERR invalid run token '%s'"
UNDELIVERED: Final = b"NOTDELIVERED Job was not delivered yet: GETJOB delivers it after its delay"
RUN_SHOWN: Final = 64  # bytes of a word that is no run token
LONG_REASON: Final = b"ERR REASON must be at most 2048 bytes"
LONG_PROGRESS: Final = b"ERR PROGRESS takes at most 4096 bytes"
BAD_CAUSE: Final = b"ERR CAUSE must be failed, crashed or timeout"
FAIL_CAUSES: Final = (FAILED_BY_WORKER, CRASHED, TIMED_OUT)  # W5.6

REASON_MAX: Final = 2_048
DETAIL_MAX: Final = 65_536  # longer ones are cut
PROGRESS_MAX: Final = 4_096
LARGE_RESULT: Final = (
    b"ERR the job is done, but its result of %d bytes is not kept here: "
    b"its outcome has %d bytes with it, results-max-bytes is %d"
)
DONE_OPTIONS: Final = (b"RESULT",)
FAIL_OPTIONS: Final = (b"DELAY", b"REASON", b"DETAIL", b"CAUSE")
UPDATE_OPTIONS: Final = (b"BODY", b"DELAY", b"TTL", b"ATTEMPTS", b"PRI", b"HEADERS")
IDS_MAX: Final = 500  # ids of one START, RELEASE, DONE or CANCEL


def run_in(s: Server, word: bytes, of: bytes = b"") -> i64:
    """The run token in the word; 0 for `-`; or raise. `of`: the id, if it is one of several."""
    run = s.tokens.run_in(word)
    if run < 0:
        error = BAD_RUN % word[:RUN_SHOWN]
        raise ArgError(error if len(of) == 0 else b"%s of %s" % (error, of))
    return run


def worker_of(s: Server, c: Client) -> bytes:
    """The worker's name of a connection that gave none (W2.4)."""
    if len(c.worker) == 0:
        c.worker = b"client %d of %s" % (int(c.number), s.n.node_id[:8])
    return c.worker


def check_pairs(s: Server, args: list[bytes], first: i64) -> bool:
    """Check words that are ids and runs in turn. Raises before any change.

    True if all runs are one: a worker's first runs of all its jobs are.
    """
    size: i64 = len(args)
    if (size - first) % 2 != 0 or size == first:
        raise wrong(b"%s takes an id and a run in turn" % args[0].upper())
    check_acted(s, args, first, 2)
    run = run_in(s, args[first + 1], args[first] if size - first > 2 else b"")
    is_same = True
    i = first + 3
    while i < size:
        if run_in(s, args[i], args[i - 1]) != run:
            is_same = False
        i += 2
    return is_same


def cmd_start(s: Server, c: Client, args: list[bytes]) -> None:
    """[W2] START [WORKER name] [id ...]: for each id a run, or an error (W2.6)."""
    if len(args) == 1:
        c.out.append(array_head(0))  # W1.8
        return
    first: i64 = 1
    worker = b""
    if len(args[1]) == 6 and args[1].upper() == b"WORKER":
        if len(args) < 4:
            raise wrong(b"START WORKER needs a name, and an id")
        worker = worker_name(c.own(args[2]))
        first = 3
        if args[3].upper() == b"WORKER":
            raise twice(b"WORKER")
    else:
        worker = worker_of(s, c)
    check_acted(s, args, first)  # W2.1
    n = s.n
    n.work += 3 * (len(args) - first) - 1
    c.out.append(array_head(len(args) - first))
    begun: list[bytes] = []
    i = first
    while i < len(args):
        job, refused = if_open(n, args[i], job_named(n, args[i], c.handed, i - first))
        i += 1
        if job is not None:
            life, refused = start(n, job, worker, c.number)
            if life is not None:
                if first == 3:
                    begun.append(job.id)
                c.out.append(s.tokens.start_reply(life, i64(job.retry_s), isinstance(job, Task)))
        if refused is not None:
            words = UNDELIVERED if refused.code == NOTDELIVERED else core_words(refused)
            c.out.append(c.error_bytes(words))
    if len(begun) > 0:  # the worker has a name of its own
        s.workers.note(n, worker, begun)


def why_not(s: Server, refused: Refusal) -> bytes:
    """The error about a job; a node that leaves has given its jobs to others (K7.9)."""
    if refused.code == NOJOB and s.n.is_leaving and s.n.others != 0:
        return error_words(GIVEN_AWAY)
    return core_words(refused)


def cmd_working(s: Server, c: Client, args: list[bytes]) -> None:
    """WORKING id [run]: the reply is the retry time (Q8.6, W3)."""
    words = args[:2]
    check_acted(s, words, 1)
    run: i64 = run_in(s, args[2]) if len(args) > 2 else 0
    refused = on_work(s.n, words[1], run, c.number)
    if refused is not None:
        c.error(why_not(s, refused))
        return
    if len(s.workers.by_name) > 0:
        life = life_of(s.n, words[1])
        if life is not None and life.worker in s.workers.by_name:
            s.workers.note(s.n, life.worker, [words[1]])
    c.out.append(int_reply(i64(s.n.jobs[words[1]].retry_s)))


def cmd_progress(s: Server, c: Client, args: list[bytes]) -> None:
    """[W3] PROGRESS id run bytes (W3.4)."""
    words = args[:2]
    check_acted(s, words, 1)
    run = run_in(s, args[2])
    if len(args[3]) > PROGRESS_MAX:
        raise ArgError(LONG_PROGRESS)
    refused = on_progress(s.n, words[1], run, args[3], c.number)
    if refused is not None:
        c.error(why_not(s, refused))
    else:
        c.ok()


def cmd_release(s: Server, c: Client, args: list[bytes]) -> None:
    """[W4] RELEASE [DELAY s] [id run ...]: the reply is how many were given back (W4.1)."""
    if len(args) == 1:
        c.out.append(int_reply(0))  # W1.8
        return
    first: i64 = 1
    delay_ms: i64 = 0
    if args[1].upper() == b"DELAY":
        if len(args) == 2:
            raise Misuse(args[1])
        delay_ms = seconds_ms(args[2])
        first = 3
        if len(args) > 3 and args[3].upper() == b"DELAY":
            raise twice(b"DELAY")
    check_pairs(s, args, first)
    size: i64 = len(args)
    s.n.work += (size - first) // 2 - 1
    done: i64 = 0
    i = first
    while i < size:
        if on_release(s.n, args[i], run_in(s, args[i + 1]), delay_ms, c.number):
            done += 1
        i += 2
    c.out.append(int_reply(done))


def cmd_fail(s: Server, c: Client, args: list[bytes]) -> None:
    """[W5] FAIL id run [DELAY s] [REASON text] [DETAIL bytes] [CAUSE word] [FINAL] (W5.5)."""
    words = args[:2]
    check_acted(s, words, 1)
    run = run_in(s, args[2])
    delay_ms: i64 = -1
    reason = b""
    detail = b""
    cause = FAILED_BY_WORKER
    is_final = False
    said: list[bytes] = []
    i: i64 = 3
    while i < len(args):
        word = args[i].upper()
        if word in said:
            raise twice(word)
        said.append(word)
        if word == b"FINAL":
            is_final = True
            i += 1
            continue
        if word not in FAIL_OPTIONS or i + 1 == len(args):
            raise wrong_option(b"FAIL", args[i], FAIL_OPTIONS)
        value = args[i + 1]
        if word == b"DELAY":
            delay_ms = seconds_ms(value)
        elif word == b"REASON":
            if len(value) > REASON_MAX:
                raise ArgError(LONG_REASON)
            reason = value
        elif word == b"DETAIL":
            detail = value[:DETAIL_MAX]
        else:
            if value not in FAIL_CAUSES:
                raise not_this(BAD_CAUSE, value)
            cause = value
        i += 2
    dead_in = letters_of(s.n, words[1])
    became, wait_ms, refused = on_fail(
        s.n, words[1], run, delay_ms, reason, detail, is_final, c.number, cause
    )
    if refused is not None:
        c.error(why_not(s, refused))
    else:
        put_failed(c, became, wait_ms, dead_in)


def put_failed(c: Client, became: i64, wait_ms: i64, dead_in: bytes) -> None:
    """The reply to FAIL (W5.5)."""
    if became == BACK:
        c.reply([b"retry", int(wait_ms)])
    elif became == DIED:
        c.reply([b"dead", c.named(dead_in)])
    elif became == GONE:
        c.reply([b"expired", None])
    else:
        c.reply([b"cancelled", None])


def cmd_done(s: Server, c: Client, args: list[bytes]) -> None:
    """[W7] DONE id run [RESULT bytes] | DONE [id run ...]: how many ended now (W7.1)."""
    if len(args) == 1:
        c.out.append(int_reply(0))  # W1.8
        return
    result: bytes | None = None
    words = args
    if len(args) == 5 and args[3].upper() == b"RESULT":
        result = args[4]
        words = args[:3]
    elif args[len(args) - 1].upper() == b"RESULT":
        raise wrong_option(b"DONE", args[len(args) - 1], DONE_OPTIONS)
    elif len(args) > 5 and b"RESULT" in (args[3].upper(), args[len(args) - 2].upper()):
        if args[3].upper() == args[5].upper():
            raise twice(b"RESULT")
        raise wrong(b"DONE with RESULT takes one id and its run")
    is_same = check_pairs(s, words, 1)
    size: i64 = len(words)
    s.n.work += size // 2 - 1
    run = run_in(s, words[2])
    done: i64 = 0
    large = s.n.life.results_large
    i: i64 = 1
    while i < size:
        if not is_same:
            run = run_in(s, words[i + 1])
        job = job_named(s.n, words[i], c.handed, i // 2)
        if job is not None:
            is_done = end_done(s.n, job, run, result, c.number)
        else:
            is_done = on_done(s.n, words[i], run, result, c.number)
        if is_done:
            done += 1
        i += 2
    c.handed = NONE_HANDED
    if result is not None and s.n.life.results_large != large:
        sizes = (len(result), int(s.n.life.large_bytes), int(s.n.limits.results_bytes))
        c.error(LARGE_RESULT % sizes)  # W7.4
    else:
        c.out.append(int_reply(done))


def cmd_updatejob(s: Server, c: Client, args: list[bytes]) -> None:
    """[W10] UPDATEJOB id [BODY b] [DELAY s] [TTL s] [ATTEMPTS n] [PRI n] [HEADERS n k v ...]."""
    words = args[:2]
    check_acted(s, words, 1)
    update = Update()
    said: list[bytes] = []
    i: i64 = 2
    while i < len(args):
        word = args[i].upper()
        if word in said:
            raise twice(word)
        said.append(word)
        if word not in UPDATE_OPTIONS or i + 1 == len(args):
            raise wrong_option(b"UPDATEJOB", args[i], UPDATE_OPTIONS)
        value = args[i + 1]
        i += 2
        if word == b"BODY":
            update.body = value
        elif word == b"DELAY":
            update.delay_ms = seconds_ms(value)
        elif word == b"TTL":
            update.ttl_ms = ms_in_range(word, value, 0)
            if update.ttl_ms == 0:
                update.ttl_ms = NEVER_S * 1000  # W1.5
        elif word == b"ATTEMPTS":
            update.attempts = in_range(word, value, 1, ATTEMPTS_MAX)
        elif word == b"PRI":
            update.pri = in_range(word, value, 0, PRI_MAX)
        else:
            update.headers, i = headers(args, i - 1)
    check_growth(s, c.user, s.n.jobs.get(words[1]), update.body, update.headers)
    refused, change = on_update(s.n, words[1], update)
    if refused is not None:
        c.error(why_not(s, refused))
    elif change is not None:
        wait_for_update(s, c, words[1], change)
    else:
        c.ok()


def tell_cancelled(s: Server) -> None:
    """[W8] Push to the connections whose runs were cancelled or are over (W8.2)."""
    calls = s.n.life.calls
    s.n.life.calls = []
    for number, id, run in calls:
        c = s.by_number.get(number)
        if c is not None and c.resp3 and not c.is_closing:
            c.out.append(b">3\r\n$10\r\njob-cancel\r\n")
            put_bulk(c.out, id)
            put_bulk(c.out, run_text(run))
            s.touch(c)
