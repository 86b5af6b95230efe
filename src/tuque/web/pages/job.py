"""One job: what happened to it, where is it, when is it next? And the actions on it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tuque.aio import Client
from tuque.client.api import PRI
from tuque.client.commands.work import Attempt
from tuque.clusterview.work import Copy, JobFacts, job_of
from tuque.errors import BadId, Error, NoJob, ReplyError
from tuque.logtext import HIDDEN
from tuque.web.actions import (
    Field,
    Outcome,
    Proposal,
    Refused,
)
from tuque.web.pages.queue import PRI_WORDS, add_to
from tuque.web.show.text import forms, link, num, plural, span
from tuque.web.site import Ask, Page, shared

# ---- One job to another queue. The broker has no word for it: it is put off, added there,
# cancelled.
#
# Decides in which order. A job with a RETRY is never lost: if the console dies on the way, it is in
# both queues once its pause is over. A job with RETRY 0 is never there twice: it may be lost.


PAUSE_S: Final = 60.0  # so long nobody gets the job that is moved
NO_END_S: Final = 1_000_000_000  # a longer TTL is none
OVER: Final = "It had ended, or a worker got it meanwhile."


async def moved(facts: JobFacts, to: str) -> str:
    """Moves a job that nobody works on; returns its new id. Refused or Error: it was not moved."""
    best = facts.best
    one = next((one for one in facts.copies if one.info is best), None)
    if best is None or one is None or best.body is None or best.queue is None:
        raise Refused("No node has this job any more.")
    if to == best.queue:
        raise Refused(f"It is in {to} already.")
    client = one.node.client
    left_s = (facts.due_ms or 0) / 1000
    if best.retry_s == 0:
        if not await is_cancelled(client, facts.id, f"moved to {to}"):
            raise Refused(OVER)
        return await added(client, facts, to, left_s)
    await client.updatejob(facts.id, delay=min(PAUSE_S, max(best.ttl_s - 1, 1)))
    try:
        id = await added(client, facts, to, left_s)
    except Error:
        await client.updatejob(facts.id, delay=left_s)
        raise
    if not await is_cancelled(client, facts.id, f"moved to {to} as {id}"):
        await is_cancelled(client, id, "its first one was done meanwhile")
        raise Refused(OVER)
    return id


async def added(client: Client, facts: JobFacts, to: str, left_s: float) -> str:
    """The job again in the other queue, with all that it was added with."""
    best, work = facts.best, facts.work
    assert best is not None and best.body is not None
    options: dict[str, Any] = {}
    pri = pri_of(facts)
    if work is not None:
        options = {
            "attempts": work.attempts or None,
            "backoff": work.backoff,
            "dead": None if work.dead == f"{best.queue}.dead" else work.dead,
            "keep": work.keep_s or None,
            "keep_body": work.keep_body and work.keep_s > 0,
            "time_limit": work.time_limit_s or None,
            "headers": work.headers or None,
        }
    return await client.addjob(
        to,
        best.body,
        replicate=best.repl or None,
        delay=left_s or None,
        retry=best.retry_s,
        ttl=0 if best.ttl_s > NO_END_S else max(best.ttl_s, 1),
        pri=None if pri == PRI else pri,
        dedupe=f"move:{facts.id}",
        **options,
    )


def pri_of(facts: JobFacts) -> int:
    """The PRI of a job like this one in a queue; that of a task means nothing there."""
    best = facts.best
    return PRI if best is None or best.number is not None else best.pri


async def is_cancelled(client: Client, id: str, reason: str) -> bool:
    """Cancels a job, so that whoever waits for its result hears why; False: it runs, or is over."""
    (became,) = await client.cancel(id, reason=reason)
    return became == "ended"


# ---- The steps of a chain, as its jobs carry them: the next ones in a header, the next id in a
# result.
#
# What programs of other making put there is shown as it is, or not at all.


HEADER: Final = "tuque-chain"  # the names of the steps that follow, as JSON (SPEC U11.1, U11.6)
AFTER: Final = "tuque-after"  # the job of the step before (SPEC U11.3)
NEXT: Final = "tuque-next"  # in the result of a step (SPEC U11.2)
MSGPACK_OPENS: Final = b"\xc1"  # how the worker begins a result in MessagePack
RESULT_MAX: Final = 1_024  # bytes of a result that may name the next step


def following(headers: Mapping[str, str]) -> list[str]:
    """[O14] The names of the steps that follow the job (O14.31); none if it is no step."""
    try:
        found = json.loads(headers.get(HEADER, "[]"))
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return []
    return [name for one in found if (name := _shown(one))]


def _shown(step: object) -> str:
    """The name of a step, or those of the tasks of a group; empty if it is neither."""
    if isinstance(step, str):
        return step
    names = step.get("g") if isinstance(step, dict) else None
    if not isinstance(names, list):
        return ""
    return "a group: " + ", ".join(one for one in names if isinstance(one, str))


def next_id(result: bytes | None) -> str:
    """[O14] The id of the next step that the result names (O14.31); empty if it names none."""
    if not result or len(result) > RESULT_MAX:
        return ""
    is_json = not result.startswith(MSGPACK_OPENS)
    try:
        value: Any = msgspec.json.decode(result) if is_json else msgspec.msgpack.decode(result[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    found = value.get(NEXT) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


# ---- job


NET: Final = (200.0, 112.0, 70.0)  # middle and radius of the ring of nodes


class Step(msgspec.Struct, frozen=True):
    """One point on the way of a job; at_s is unix s, 0: not known."""

    kind: str  # new, wait, bad, ok, now, ahead
    at_s: float
    title: str
    text: str = ""
    took: str = ""


class Disc(msgspec.Struct, frozen=True):
    """A node in the picture of copies."""

    name: str
    x: float
    y: float
    has: str  # has, none, away
    is_queued: bool
    words: str
    is_top: bool


WORDS: Final = {
    "scheduled": ("idle", "waits for its first time"),
    "waiting": ("ok", "waits in its queue"),
    "delivered": ("ok", "is handed out"),
    "running": ("ok", "is at work"),
    "back-off": ("warn", "waits for its next attempt"),
    "dead": ("bad", "is a dead letter"),
    "done": ("ok", "is done"),
    "cancelled": ("gone", "was cancelled"),
}


ENDS: Final = {"Cancel the job": "cancelled", "Delete": "deleted", "Move": "moved"}  # actions


class Ended(msgspec.Struct, frozen=True):
    """What an action of this console made of a job that no node knows any more."""

    became: str
    who: str
    at_s: float


def ended_here(ask: Ask, id: str) -> Ended | None:
    """[O14] How a job was ended in this console, as far as it keeps the log (O14.12)."""
    for one in ask.site.log.latest:
        if one.what in ENDS and one.jobs and one.about.partition(" ")[0] == id:
            return Ended(ENDS[one.what], one.who, one.at_s)
    return None


async def job(ask: Ask) -> Page:
    """What happened to it, where is it, when next?"""
    id = ask.word("id")
    now_s = time.time()
    try:
        facts = await job_of(ask.site.watch.nodes, id)
    except BadId:
        facts = JobFacts(id, [], None, None)
    best, letter = facts.best, facts.dead
    queue, headers, body = call_of(facts)
    clock_s = ask.view.clock_s + (now_s - ask.view.at_s)
    work = facts.work
    kind, words = state_words(facts)
    ended = None if facts.is_known else ended_here(ask, id)
    return Page(
        "job",
        {
            **shared(ask, "queues"),
            "id": id,
            "facts": facts,
            "ended": ended,
            "times": times(facts),
            "info": best,
            "letter": letter,
            "result": facts.result,
            "queue": queue,
            "state_kind": kind,
            "state_words": words,
            "steps": way(facts, clock_s) + ahead(following(headers)),
            "before_id": headers.get(AFTER, ""),
            "next_id": next_id(facts.result.result if facts.result else None),
            "discs": discs(facts.copies),
            "wanted_copies": best.repl if best else 0,
            "there": sum(one.info is not None for one in facts.copies),
            "forms": forms(body) if body is not None else [],
            "body_size": len(body) if body is not None else 0,
            "result_forms": forms(facts.result.result)
            if facts.result is not None and facts.result.result is not None
            else [],
            "task": headers.get("tuque-task", ""),
            "headers": headers,
            "work": work,
            "traceback": facts.result.detail.decode("utf-8", "replace") if facts.result else "",
        },
        200 if facts.is_known or facts.away or (ended and ended.became != "deleted") else 404,
    )


def call_of(facts: JobFacts) -> tuple[str | None, Mapping[str, str], bytes | None]:
    """Queue, headers and body: of its dead letter, a copy, or its outcome."""
    letter, best, work, kept = facts.dead, facts.best, facts.work, facts.result
    if letter is not None:
        return letter.queue, letter.headers, letter.body or (best.body if best else None)
    if best is not None:
        return best.queue, work.headers if work else {}, best.body
    return (None, {}, None) if kept is None else (kept.queue or None, kept.headers, kept.body)


def state_words(facts: JobFacts) -> tuple[str, str]:
    """The state as a shape and words."""
    result, best = facts.result, facts.best
    if facts.schedule:
        paused = facts.plan is not None and facts.plan.paused
        kind = "pause" if paused else "idle"
        return kind, f"is the schedule {facts.schedule}" + (", paused" if paused else "")
    if best is not None and best.children:
        return "idle", f"is a group of {plural(best.children, 'child', 'children')}"
    if best is not None and best.child:
        return "idle", "is the record of a child in a group"
    if result is not None:
        kind, words = WORDS.get(result.state, ("idle", result.state))
        due_ms = best.next_requeue_within_ms if best else None
        if result.state == "back-off" and due_ms:
            words += f", in {span(due_ms / 1000)}"
        if result.state == "running" and result.worker:
            words += f" at {result.worker}"
        return kind, words
    return ("idle", best.state) if best else ("gone", "is not known")


def ahead(names: list[str]) -> list[Step]:
    """[O14] The steps of a chain that follow the job (O14.31)."""
    return [Step("ahead", 0, f"Then {name}", "next step of its chain") for name in names]


def times(facts: JobFacts) -> str:
    """[O14] When a schedule makes jobs (O14.20); empty if that is not known, or it is none."""
    plan = facts.plan
    if plan is None:
        return ""
    every = f"{plan.cron} in {plan.tz or 'UTC'}" if plan.cron else f"every {span(plan.every_s)}"
    return f"{every}, {plural(plan.fired, 'job')} made so far"


def way(facts: JobFacts, now_s: float) -> list[Step]:
    """Its life so far, and what comes next."""
    best, result, letter = facts.best, facts.result, facts.dead
    if best is None:
        return ended_way(facts)
    steps = []
    added_s = best.ctime_ns / 1e9
    if added_s:
        copies = f"{best.repl} copies wanted" if best.repl > 1 else "one copy"
        steps.append(Step("new", added_s, f"Added at {facts.id[2:10]}", copies))
    if best.delay_s:
        steps.append(Step("wait", 0, "First delay", "", span(best.delay_s)))
    steps += handed_out(facts, added_s + best.delay_s)
    steps += failures(facts)
    if result is not None:
        steps += now_steps(facts, now_s, span(max(0.0, now_s - added_s)) if added_s else "")
    due_ms = facts.due_ms
    is_open = result is None or result.state not in ("dead", "done", "cancelled", "waiting")
    if is_open and best.state != "acked" and due_ms:
        number = (result.attempt + 1) if result is not None and result.state == "back-off" else None
        title = f"Attempt {number}" if number else "Comes back, unless it ends before"
        title = "Makes a job" if facts.schedule else title
        title = title if best.is_job or facts.schedule else "Its leader looks at it"
        of = f" of {result.of}" if number and result is not None and result.of else ""
        steps.append(
            Step("ahead", now_s + due_ms / 1000, title + of, "", f"in {span(due_ms / 1000)}")
        )
    if letter is not None:
        steps.append(Step("ahead", letter.ends_ms / 1000, "Forgotten, unless it is retried before"))
    return steps


def handed_out(facts: JobFacts, due_s: float) -> list[Step]:
    """Its first wait, and its deliveries, as far as the nodes know them."""
    first_s, last_s = facts.first_delivery_s, facts.last_delivery_s
    if not first_s:
        return []
    waited = span(max(0.0, first_s - due_s)) if due_s else ""
    queue = facts.dead.origin if facts.dead else facts.best.queue if facts.best else ""
    steps = [
        Step("wait", 0, f"Waited in {queue}", "", waited),
        Step("ok", first_s, "Handed out"),
    ]
    again = facts.deliveries - 1
    if again > 0 and facts.work is None:
        steps.append(Step("wait", 0, f"Came back {plural(again, 'time')}", "nobody had acked it"))
        steps.append(Step("ok", last_s, "Handed out again", "", span(last_s - first_s)))
    return steps


def ended_way(facts: JobFacts) -> list[Step]:
    """The life of a job that has ended, as its outcome has it (O14.12)."""
    result = facts.result
    if result is None or not result.added_ms:
        return []
    added_s = result.added_ms / 1000
    since = span(max(0.0, result.ended_ms / 1000 - added_s))
    return [Step("new", added_s, "Added"), *failures(facts), now_step(facts, since)]


FAILURES: Final = {"failed": "failed", "crashed": "crashed", "timeout": "was over its time limit"}


def failures(facts: JobFacts) -> list[Step]:
    """The attempts that are over: the last 16."""
    result = facts.result
    if result is None:
        return []
    return [over_step(one, result.of) for one in result.attempts if one.ended_ms]


def over_step(one: Attempt, attempts: int) -> Step:
    """An attempt that is over: when it failed, or of one that ended the job when it began."""
    of = f" of {attempts}" if attempts else ""
    title = f"Attempt {one.attempt}{of}"
    took = span((one.ended_ms - one.began_ms) / 1000) if one.began_ms else ""
    if one.state not in FAILURES:
        return Step("ok", one.began_ms / 1000, f"{title} began", one.worker, took)
    text = f"{one.worker} · {one.reason}" if one.worker and one.reason else one.worker or one.reason
    return Step("bad", one.ended_ms / 1000, f"{title} {FAILURES[one.state]}", text, took)


def now_steps(facts: JobFacts, now_s: float, since: str) -> list[Step]:
    """The run of now with the wait before it, and where the job stands."""
    work = facts.work
    run = work.run if work else None
    steps = []
    if work is not None and run is not None and run.state == "running":
        last = work.last_failure
        if last is not None:
            waited_s = max(0.0, (run.since_ms - last.at_ms) / 1000)
            steps.append(Step("wait", 0, "Back-off, and the wait in its queue", "", span(waited_s)))
        of = f" of {work.attempts}" if work.attempts else ""
        ran = span(max(0.0, now_s - run.since_ms / 1000))
        begun = f"Attempt {run.attempt}{of} began"
        steps.append(Step("ok", run.since_ms / 1000, begun, run.worker, f"{ran} ago"))
    return [*steps, now_step(facts, since)]


def now_step(facts: JobFacts, since: str) -> Step:
    """Where it stands."""
    result = facts.result
    assert result is not None
    _, words = state_words(facts)
    kind = {"done": "ok", "dead": "bad", "cancelled": "bad"}.get(result.state, "now")
    of = f" of {result.of}" if result.of else ""
    text = f"Attempt {result.attempt}{of}" if result.state in ("running", "delivered") else ""
    if result.state == "cancelled":
        text = result.reason
    if result.progress:
        text += f" · progress {result.progress.decode('utf-8', 'replace')}"
    return Step(kind, result.ended_ms / 1000, words[:1].upper() + words[1:], text, since)


def discs(copies: list[Copy]) -> list[Disc]:
    """The nodes on a ring, those that have the job filled."""
    found = []
    x, y, radius = NET
    for i, one in enumerate(copies):
        angle = -math.pi / 2 + 2 * math.pi * i / max(1, len(copies))
        has = "has" if one.info is not None else "none" if one.is_up else "away"
        due_ms = one.info.next_requeue_within_ms if one.info is not None else None
        is_queued = one.info is not None and one.info.state == "queued"
        words = "has it queued" if is_queued else f"due in {span(due_ms / 1000)}" if due_ms else ""
        found.append(
            Disc(
                one.node.short,
                round(x + (radius + 50) * math.cos(angle), 1),
                round(y + radius * math.sin(angle), 1),
                has,
                is_queued,
                words or {"has": "has it", "none": "no copy", "away": "silent"}[has],
                i == 0,
            )
        )
    return found


def described(facts: JobFacts) -> str:
    """A job in a line, for dialogs."""
    best = facts.best
    return f"{facts.id} in {best.queue}, {num(len(best.body or b''))} bytes" if best else facts.id


# ---- Actions on one job: run now, cancel, delete, edit, add again, move


EDITED_MAX = 64 * 1024  # bytes of a body that is changed in a browser


async def facts_of(ask: Ask, is_delete: bool = False) -> JobFacts:
    """[O14] The job as nodes know it now. Refused if none does, or it is none (O14.20, O14.31)."""
    try:
        facts = await job_of(ask.site.watch.nodes, ask.word("id"))
    except BadId:
        raise Refused("This is no id of a job.") from None
    if facts.best is None:
        raise Refused("No node has this job any more.")
    if facts.schedule and not is_delete:
        raise Refused(f"This is the schedule {facts.schedule}: the page Schedules changes it.")
    if facts.best.children:
        raise Refused("This is a group of jobs: its own page cancels it.")
    if facts.best.child:
        raise Refused("This is no job, but how a group notes the end of one: see the group.")
    return facts


async def asked(ask: Ask, name: str, words: tuple[str, str], follows: list[str]) -> Proposal:
    """A dialog about one job."""
    facts = await facts_of(ask, name == "delete")
    title, button = words
    state = f"Now it {state_words(facts)[1]}."
    return Proposal(
        name,
        title,
        button,
        button,
        described(facts),
        [state, *follows],
        [("id", facts.id)],
        count=1,
    )


async def propose_run(ask: Ask) -> Proposal:
    """Queue it now?"""
    return await asked(
        ask,
        "run",
        ("Run this job now?", "Run now"),
        ["It enters its queue at once; what is left of its delay or back-off is skipped."],
    )


async def run(ask: Ask) -> Outcome:
    """Queues it at a node that has it; a dead letter begins anew."""
    facts = await facts_of(ask)
    if facts.dead is not None:
        return await replay(ask, facts)
    for one in facts.copies:
        if one.info is not None and one.info.state == "active":
            if await one.node.client.enqueue(facts.id):
                return Outcome("Queued now.", link("job", id=facts.id), 1)
    raise Refused("It is in its queue already, or somebody works on it.")


async def replay(ask: Ask, facts: JobFacts) -> Outcome:
    """A dead letter back to its queue."""
    assert facts.dead is not None
    for one in facts.copies:
        if one.info is not None and await one.node.client.dead_replay(
            facts.dead.queue, ids=[facts.id]
        ):
            note = f"Back in {facts.dead.origin}, with its first attempt."
            return Outcome(note, link("job", id=facts.id), 1)
    raise Refused("It is no dead letter any more.")


async def propose_cancel(ask: Ask) -> Proposal:
    """Cancel it?"""
    found = await asked(
        ask,
        "cancel",
        ("Cancel this job?", "Cancel the job"),
        ["If it waits, it ends and never runs.", "If a worker has it, the worker is notified."],
    )
    found.is_danger = True
    found.fields = [Field("reason", "Why? Those who wait for its result see it.")]
    return found


async def cancel(ask: Ask) -> Outcome:
    """Cancels it, at any node."""
    facts = await facts_of(ask)
    nodes = ask.site.watch.nodes.up()
    (became,) = await nodes[0].client.cancel(facts.id, reason=ask.word("reason") or "by hand")
    notes = {
        "ended": "Cancelled: it never runs.",
        "flagged": "Its worker was notified, and may still finish it.",
        "over": "It had ended before.",
    }
    if became is None:
        raise Refused("No node has this job any more.")
    if isinstance(became, ReplyError):
        raise Refused(str(became))
    return Outcome(notes[became], link("job", id=facts.id), 0 if became == "over" else 1)


async def propose_delete(ask: Ask) -> Proposal:
    """Delete it at all nodes?"""
    found = await asked(
        ask,
        "delete",
        ("Delete this job on all nodes?", "Delete"),
        ["Its body, its attempts and its result are gone.", "This cannot be undone."],
    )
    found.is_danger = True
    facts = await facts_of(ask, is_delete=True)
    if facts.schedule:
        found.title, found.follows = f"Drop the schedule {facts.schedule}?", drops(facts)
    return found


def drops(facts: JobFacts) -> list[str]:
    """[O14] What becomes of a schedule that is deleted (O14.20)."""
    queue = facts.best.queue if facts.best else "its queue"
    return [
        f"This is no job: it is the schedule {facts.schedule} of {queue}, which makes jobs.",
        "It makes no more of them. Those that it has made stay.",
        "This cannot be undone. To hold it for a while, pause it on the page Schedules.",
    ]


async def delete(ask: Ask) -> Outcome:
    """Removes it at every node that has it."""
    facts = await facts_of(ask, is_delete=True)
    if facts.dead is not None:
        queue = facts.dead.queue
        done = 0
        for one in facts.copies:
            if one.info is not None:
                done += await one.node.client.dead_purge(queue, ids=[facts.id])
        return Outcome("Deleted." if done else "It was gone already.", link("dead", queue=queue), 1)

    async def removed(client: Client) -> int:
        return await client.deljob(facts.id)

    done = sum((await ask.site.watch.nodes.ask(removed)).values())
    if not done:
        raise NoJob("it was gone already")
    best = facts.best
    return Outcome("Deleted.", link("queue", name=best.queue if best else ""), 1)


async def propose_edit(ask: Ask) -> Proposal:
    """Another body: for this job if it waits, or for a new one?"""
    facts = await facts_of(ask)
    best = facts.best
    body = (facts.dead.body if facts.dead else None) or (best.body if best else None) or b""
    if len(body) > EDITED_MAX:
        raise Refused(f"Its body has {len(body):,} bytes; here at most {EDITED_MAX:,} are edited.")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Refused("Its body is no text: it cannot be edited here.") from None
    if HIDDEN.search(text.replace("\n", "")):
        raise Refused("Its body has control characters: it cannot be edited here.")
    queue = facts.dead.origin if facts.dead else best.queue if best else ""
    task = headers_of(facts).get("tuque-task", "")
    attempts = facts.dead.of if facts.dead else facts.work.attempts if facts.work else 0
    return Proposal(
        "edit",
        "Edit and add again",
        "Go on",
        "Edit",
        described(facts),
        [
            "As a new job, with the headers of this one, which stays as it is.",
            "Or in place, if nobody works on it: same id, same place.",
        ],
        [("id", facts.id)],
        [
            Field("how", "What", "add a new job", "select", ("add a new job", "change this job")),
            Field("queue", "Queue of a new job", queue or ""),
            Field("body", "Body", text, "area"),
            Field("task", "Task of a new job (empty: none)", task),
            Field("retry", "Retry of a new job, s", str(best.retry_s if best else 60), "number"),
            Field("attempts", "Attempts of a new job (0: no limit)", str(attempts), "number"),
            Field("pri", PRI_WORDS, str(pri_of(facts)), "number"),
            Field("ttl", "TTL, s (0: never expires)", "86400", "number"),
        ],
        count=1,
    )


async def edit(ask: Ask) -> Outcome:
    """Changes it, or adds the new one."""
    facts = await facts_of(ask)
    body = ask.word("body").replace("\r\n", "\n")
    if ask.word("how") != "change this job":
        id = await add_to(ask, ask.word("queue"), body, headers_of(facts))
        return Outcome(f"Added {id}.", link("job", id=id), 1)
    failed: Error | None = None
    for one in facts.copies:
        if one.info is not None:
            try:
                await one.node.client.updatejob(facts.id, body=body)
            except Error as err:
                failed = err
                continue
            return Outcome("Changed.", link("job", id=facts.id), 1)
    raise Refused(f"It could not be changed: {failed}")


def headers_of(facts: JobFacts) -> dict[str, str]:
    """Its headers."""
    return facts.dead.headers if facts.dead else facts.work.headers if facts.work else {}


async def propose_move(ask: Ask) -> Proposal:
    """Into another queue?"""
    found = await asked(
        ask,
        "move",
        ("Move this job to another queue?", "Move"),
        [
            "It gets a new id there, with its body, headers and options; its attempts begin anew.",
            "Whoever waits for its result here sees that it was cancelled, and where it went.",
            "If the console dies meanwhile, the job may be in both queues; with RETRY 0, in none.",
        ],
    )
    facts = await facts_of(ask)
    if facts.dead is not None:
        found.follows[1:] = ["It goes there under its id, and begins with its first attempt."]
    found.fields = [Field("to", "To the queue", facts.dead.origin if facts.dead else "")]
    return found


async def move(ask: Ask) -> Outcome:
    """Moves it; a dead letter is replayed there."""
    facts, to = await facts_of(ask), ask.word("to").strip()
    if not to:
        raise Refused("Say to which queue.")
    if facts.dead is not None:
        for one in facts.copies:
            if one.info is not None and await one.node.client.dead_replay(
                facts.dead.queue, ids=[facts.id], to=to
            ):
                return Outcome(f"Moved to {to}.", link("job", id=facts.id), 1)
        raise Refused("It is no dead letter any more.")
    id = await moved(facts, to)
    return Outcome(f"Moved to {to} as {id}.", link("job", id=id), 1)
