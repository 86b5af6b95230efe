"""RESULT, WAITJOB and CANCEL, which may wait (SPEC W8, W9)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.life.cancel_update import on_cancel, uncancelled
from tuque.core.life.lookup import (
    CANCEL,
    LOOK,
    ask,
    may_ask,
    may_fetch,
    not_cancelled,
)
from tuque.core.life.outcomes import (
    is_agreed,
    is_settled,
    lacking,
    outcome_of,
    watch,
)
from tuque.core.life.shown import WITH_ATTEMPTS, WITH_BODY, more_of, result_fields
from tuque.core.model.errors import NOJOB
from tuque.core.model.task import Task
from tuque.core.model.work import attempt_of, run_text
from tuque.core.msgs.bus import MoreAt
from tuque.core.node.node import JOB_ENDED, WAIT_OVER, Wake
from tuque.core.tables.work import Change
from tuque.server.commands.jobs import check_ids
from tuque.server.commands.queues import flat
from tuque.server.replies.errors import core_words, error_words
from tuque.server.state.client import REPLY_OFF, REPLY_SKIPPING, Client, Wanted
from tuque.server.state.server import Server
from tuque.wire.commands.arguments import (
    ArgError,
    header_pairs,
    ranged,
    timeout_ms,
    twice,
    wrong,
    wrong_option,
)
from tuque.wire.proto.resp import array_head

BAD_NEEDED: Final = b"ERR COUNT must be a number from 1 to the number of ids"
LONG_REASON: Final = b"ERR REASON must be at most 2048 bytes"
IDS_MAX: Final = 500
MANY_IDS: Final = b"ERR too many ids for 'waitjob': at most %d" % IDS_MAX
REASON_MAX: Final = 2_048
RESULT_OPTIONS: Final = (b"WAIT",)
MORE: Final = {b"WITHBODY": WITH_BODY, b"WITHATTEMPTS": WITH_ATTEMPTS}
ASK_MS: Final = 1_000  # other nodes answer within it
BECAME: Final[list[object]] = [None, b"ended", b"flagged", b"over"]


def cmd_result(s: Server, c: Client, args: list[bytes]) -> None:
    """[W9] RESULT id [WAIT ms] [WITHBODY] [WITHATTEMPTS] (W9.1, W18.6)."""
    words = args[:2]
    check_ids(s, words, 1)
    wait_ms, more = result_options(args)
    id = words[1]
    is_now = wait_ms < 0
    wanted = Wanted([id], 0)
    wanted.more = more
    if may_fetch(s.n, id) or may_ask(s.n, id):
        wanted.is_now = is_now
        block(s, c, wanted, ASK_MS if is_now else wait_ms)
        ask_for(s, c, LOOK)  # W15.1
    elif not is_now and lacking(s.n, id, None) != 0:
        block(s, c, wanted, wait_ms)  # W15.10
    elif is_settled(s.n, id) or (is_now and s.n.life.known(id) is None):
        put_result(s, c, id, more)
    else:
        block(s, c, wanted, ASK_MS if is_now else wait_ms)  # W14.13


def result_options(args: list[bytes]) -> tuple[i64, i64]:
    """How long RESULT waits, -1: not; and what else it is to show."""
    wait_ms: i64 = -1
    more: i64 = 0
    i: i64 = 2
    while i < len(args):
        word = args[i].upper()
        bit: i64 = MORE.get(word, 0)
        if more & bit != 0 or (word == b"WAIT" and wait_ms >= 0):
            raise twice(word)
        if bit != 0:
            more |= bit
        elif word != b"WAIT" or i + 1 == len(args):
            raise wrong_option(b"RESULT", args[i], RESULT_OPTIONS)
        else:
            i += 1
            wait_ms = timeout_ms(args[i])
        i += 1
    return wait_ms, more


def cmd_waitjob(s: Server, c: Client, args: list[bytes]) -> None:
    """[W9] WAITJOB ms id [id ...] [COUNT n] (W9.2)."""
    wait_ms = timeout_ms(args[1])
    ids = args[2:]
    needed: i64 = len(ids)
    if len(ids) > 2 and ids[len(ids) - 2].upper() == b"COUNT":
        word = ids[len(ids) - 1]
        ids = ids[: len(ids) - 2]
        if len(ids) > 2 and ids[len(ids) - 2].upper() == b"COUNT":
            raise twice(b"COUNT")
        needed = ranged(word, 1, len(ids), BAD_NEEDED)
    if len(ids) > IDS_MAX:
        raise ArgError(MANY_IDS)
    check_ids(s, ids, 0)
    wanted = Wanted(ids, needed)
    wanted.said = c.said
    c.said = None
    if count_ended(s, wanted) >= needed:
        put_ended(s, c, wanted)
        return
    block(s, c, wanted, wait_ms)
    ask_for(s, c, LOOK)


def block(s: Server, c: Client, wanted: Wanted, wait_ms: i64) -> None:
    """The client waits; it is not refused when memory is short (M2.4, W8.6)."""
    if c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING:
        return
    c.is_blocked = True
    s.blocked += 1
    c.wanted = wanted
    if 0 < wait_ms < ASK_MS and not wanted.is_now:
        wanted.asks_until_ms = s.n.now_ms + ASK_MS
    watch(s.n, c.number, wanted.ids, s.n.now_ms + wait_ms if wait_ms > 0 else 0)


def ask_for(s: Server, c: Client, what: i64, reason: bytes = b"") -> None:
    """[W15] Ask other nodes about the jobs that the client waits for and this node lacks."""
    if c.wanted is not None:
        for id in c.wanted.ids:
            if must_ask(s, c.wanted, id):
                asking = ask(s.n, id, what, reason, c.wanted.more)
                if what == CANCEL:
                    c.wanted.asked[id] = asking


def must_ask(s: Server, wanted: Wanted, id: bytes) -> bool:
    """Whether another node may know of the job what the client wants, and this one lacks."""
    return may_ask(s.n, id) or (is_result(wanted) and may_fetch(s.n, id))


def is_result(wanted: Wanted) -> bool:
    """Whether it is RESULT that waits."""
    return wanted.needed == 0 and wanted.rows is None and len(wanted.changes) == 0


def has_answers(s: Server, wanted: Wanted) -> bool:
    """Whether other nodes have answered about all jobs that were asked for (W15.3)."""
    for id in wanted.ids:
        change = wanted.changes.get(id)
        if change is not None and not change.is_over:
            return False
        asking = wanted.asked.get(id) if wanted.rows is not None else s.n.life.asking.get(id)
        if change is None and asking is not None and not asking.is_told:
            return False
    return True


def awaits_result(s: Server, id: bytes) -> bool:
    """Whether another node may have the result of a job that is done (W15.10)."""
    asking = s.n.life.asking.get(id)
    if lacking(s.n, id, asking) != 0:
        return True
    return may_fetch(s.n, id) and (asking is None or not asking.is_told)


def awaits_nodes(s: Server, wanted: Wanted) -> bool:
    """Whether other nodes must still answer about a job, or confirm its end."""
    for id in wanted.ids:
        if s.n.life.known(id) is not None and not is_agreed(s.n, id):
            return True
        if id not in s.n.life.asking and must_ask(s, wanted, id):
            return True  # it comes next
    return not has_answers(s, wanted)


def waits_on(s: Server, c: Client, wanted: Wanted) -> bool:
    """[W15] The client's own time is over; whether it waits for other nodes still (W15.4)."""
    if s.n.now_ms >= wanted.asks_until_ms or not awaits_nodes(s, wanted):
        return False
    wanted.is_late = True
    ask_for(s, c, LOOK)
    s.n.life.extend(c.number, wanted.asks_until_ms)
    return True


def cmd_cancel(s: Server, c: Client, args: list[bytes]) -> None:
    """[W8] CANCEL [REASON text] [id ...]: what became of each (W8.4)."""
    if len(args) == 1:
        c.out.append(array_head(0))  # W1.8
        return
    first: i64 = 1
    reason = b""
    if args[1].upper() == b"REASON":
        if len(args) < 4:
            raise wrong(b"CANCEL REASON needs a text, and an id")
        reason = args[2]
        if len(reason) > REASON_MAX:
            raise ArgError(LONG_REASON)
        first = 3
        if args[3].upper() == b"REASON":
            raise twice(b"REASON")
    check_ids(s, args, first)
    wanted = Wanted(args[first:], 0, True)
    s.n.work += len(wanted.ids) - 1
    refuse_tasks(s, wanted.ids)
    rows: list[object] = []
    is_asking = False
    for id in wanted.ids:
        if may_ask(s.n, id):
            is_asking = True
            rows.append(None)
        else:
            became, refused, change = on_cancel(s.n, id, reason)
            if refused is not None:
                raise ArgError(core_words(refused))
            if change is not None:
                is_asking = True
                wanted.changes[id] = change
            rows.append(BECAME[became] if change is None else None)
    if not is_asking:
        put_cancelled(s, c, wanted, rows)
        return
    wanted.rows = rows
    block(s, c, wanted, ASK_MS)
    ask_for(s, c, CANCEL, reason)


def refuse_tasks(s: Server, ids: list[bytes]) -> None:
    """[W8] Raise if one of the ids is of a task without runs, before any is cancelled (W8.6)."""
    for id in ids:
        task = s.n.jobs.get(id)
        refused = uncancelled(s.n, task) if isinstance(task, Task) else None
        if refused is not None:
            raise ArgError(core_words(refused))


def wait_for_update(s: Server, c: Client, id: bytes, change: Change) -> None:
    """[W10] The client of an UPDATEJOB waits for the holders (W10.3)."""
    wanted = Wanted([id], 0, True)
    wanted.changes[id] = change
    block(s, c, wanted, 0)


def put_updated(c: Client, wanted: Wanted) -> None:
    """Reply to UPDATEJOB."""
    for change in wanted.changes.values():
        if change.refused is not None:
            c.error(core_words(change.refused))
        else:
            c.ok()


def put_cancelled(s: Server, c: Client, wanted: Wanted, rows: list[object]) -> None:
    """Reply to CANCEL: what became of each job here, or as other nodes said (W8.4, W15.5)."""
    c.out.append(array_head(len(rows)))
    for i in range(len(rows)):
        id = wanted.ids[i]
        became = rows[i]
        change = wanted.changes.get(id)
        asking = wanted.asked.get(id)
        if change is not None:
            became = BECAME[change.became]
        elif asking is not None:
            became = BECAME[asking.became]
            s.n.life.cancelling.pop(id, None)
        refused = not_cancelled(s.n, id, asking) if became is None and change is None else None
        if refused is not None and refused.code != NOJOB:
            c.out.append(c.error_bytes(core_words(refused)))
        else:
            c.reply(became)


def reply_ended(s: Server, c: Client, wake: Wake) -> bool:
    """[W9] A job that the client waits for has ended; whether its wait is over."""
    wanted = c.wanted
    assert wanted is not None
    if wake.why == JOB_ENDED and not is_over(s, wanted):
        if wanted.rows is None:
            ask_for(s, c, LOOK)
        return False
    if wake.why == WAIT_OVER and waits_on(s, c, wanted):
        return False
    c.wanted = None
    rows = wanted.rows
    if rows is not None:
        put_cancelled(s, c, wanted, rows)
    elif len(wanted.changes) > 0:
        put_updated(c, wanted)
    elif wanted.needed == 0:
        put_result(s, c, wanted.ids[0], wanted.more)
    else:
        put_ended(s, c, wanted)
    return True


def is_over(s: Server, wanted: Wanted) -> bool:
    """Whether the client has waited enough."""
    if wanted.is_now:
        return has_answers(s, wanted)
    if wanted.is_late and not awaits_nodes(s, wanted):
        return True
    if is_result(wanted) and awaits_result(s, wanted.ids[0]):
        return False
    return count_ended(s, wanted) >= max(1, wanted.needed)


def count_ended(s: Server, wanted: Wanted) -> i64:
    """How many of the jobs have ended, or are dead letters (W9.2)."""
    count: i64 = 0
    for id in wanted.ids:
        if is_over_for(s, id):
            count += 1
    return count


def is_over_for(s: Server, id: bytes) -> bool:
    """Whether a wait for the job is over; not before other nodes were asked (W15.1)."""
    if id not in s.n.life.asking and may_ask(s.n, id):
        return False
    return is_settled(s.n, id)


def put_result(s: Server, c: Client, id: bytes, asked: i64) -> None:
    """Reply to RESULT."""
    fields, refused = result_fields(s.n, id)
    more = more_of(s.n, id, asked) if fields is not None else None
    if more is not None and not c.sees(more.queue):
        fields = None  # another node knows the job, and the user may not (N2.4)
    if fields is None:
        c.error(error_words(NOJOB) if refused is None else core_words(refused))
        return
    worker = fields["worker"]
    if isinstance(worker, bytes):
        fields["worker"] = c.named(worker)
    put_more(c, fields, more, asked)
    c.reply(flat(fields))


def put_more(c: Client, fields: dict[str, object], more: MoreAt | None, asked: i64) -> None:
    """[W18] Body and attempts, as asked; null and none of a job of which they are not known."""
    if asked & WITH_BODY:
        fields["queue"] = None if more is None else c.named(more.queue)
        fields["added-ms"] = 0 if more is None else more.added_ms
        fields["headers"] = [] if more is None else header_pairs(more.headers)
        fields["body"] = None if more is None else more.body
    if asked & WITH_ATTEMPTS:
        rows: list[object] = []
        for one in [] if more is None else more.attempts:
            run = i64(one.run)
            row: list[object] = [int(attempt_of(run)), run_text(run), c.named(one.worker)]
            row += [one.began_ms, one.ended_ms, one.state, one.reason, one.detail]
            rows.append(row)
        fields["attempts"] = rows


def put_ended(s: Server, c: Client, wanted: Wanted) -> None:
    """Reply to WAITJOB: id and outcome of those that ended."""
    rows: list[object] = []
    for id in wanted.ids:
        if is_over_for(s, id):
            word = outcome_of(s.n, id)
            shown = id if wanted.said is None else wanted.said.get(id, id)
            rows.append([shown, word if len(word) > 0 else b"dead"])
    c.reply(rows)
