"""One job: what happened to it, where is it, and when is it next?"""

from __future__ import annotations

import math
import time
from typing import Final

import msgspec

from tuque.client.api import JobFailure
from tuque.clusterview.work import Copy, JobFacts, job_of
from tuque.errors import BadId
from tuque.web.show.chain import AFTER, following, next_id
from tuque.web.show.text import forms, num, plural, span
from tuque.web.site import Ask, Page, shared

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


ENDS: Final = {"Cancel the job": "cancelled", "Delete": "deleted", "Move": "moved"}  # deeds


class Ended(msgspec.Struct, frozen=True):
    """What a deed of this console made of a job that no node knows any more."""

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
    body = (letter.body if letter else None) or (best.body if best else None)
    clock_s = ask.view.clock_s + (now_s - ask.view.at_s)
    work = facts.work
    headers = letter.headers if letter else work.headers if work else {}
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
            "queue": letter.queue if letter else best.queue if best else None,
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
        return []
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


def failures(facts: JobFacts) -> list[Step]:
    """The attempts that failed, as far as the nodes keep them: the first and the last."""
    work = facts.work
    if work is None or work.first_failure is None:
        return []
    first, last = work.first_failure, work.last_failure or work.first_failure
    steps = [failed_step(first, work.attempts, facts.first_delivery_s)]
    between = last.attempt - first.attempt - 1
    if between > 0:
        words = f"{plural(between, 'more attempt')}, and the waits between them"
        steps.append(Step("wait", 0, words, "", span((last.at_ms - first.at_ms) / 1000)))
    if last.attempt > first.attempt:
        before_s = 0.0 if between else first.at_ms / 1000
        steps.append(failed_step(last, work.attempts, before_s))
    return steps


def failed_step(one: JobFailure, attempts: int, before_s: float) -> Step:
    """A failed attempt, and how long after what was before it."""
    of = f" of {attempts}" if attempts else ""
    words = {"failed": "failed", "crashed": "crashed", "timeout": "was over its time limit"}
    title = f"Attempt {one.attempt}{of} {words.get(one.cause, one.cause)}"
    text = f"{one.worker} · {one.reason}" if one.worker and one.reason else one.worker or one.reason
    at_s = one.at_ms / 1000
    return Step("bad", at_s, title, text, span(max(0.0, at_s - before_s)) if before_s else "")


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
