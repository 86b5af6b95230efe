"""One job: what happened to it, where is it, and when is it next?"""

from __future__ import annotations

import math
import time
from typing import Final

import msgspec

from tuque.errors import BadId
from tuque.web.read.jobs import Copy, JobFacts, job_of
from tuque.web.show.text import forms, num, span
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
    kind, words = state_words(facts)
    return Page(
        "job",
        {
            **shared(ask, "queues"),
            "id": id,
            "facts": facts,
            "info": best,
            "letter": letter,
            "result": facts.result,
            "queue": letter.queue if letter else best.queue if best else None,
            "state_kind": kind,
            "state_words": words,
            "steps": way(facts, clock_s),
            "discs": discs(facts.copies),
            "wanted_copies": best.repl if best else 0,
            "there": sum(one.info is not None for one in facts.copies),
            "forms": forms(body) if body is not None else [],
            "body_size": len(body) if body is not None else 0,
            "result_forms": forms(facts.result.result)
            if facts.result is not None and facts.result.result is not None
            else [],
            "task": letter.headers.get("tuque-task", "") if letter else "",
            "headers": letter.headers if letter else {},
            "traceback": facts.result.detail.decode("utf-8", "replace") if facts.result else "",
        },
        200 if facts.is_known else 404,
    )


def state_words(facts: JobFacts) -> tuple[str, str]:
    """The state as a shape and words."""
    result, best = facts.result, facts.best
    if result is not None:
        kind, words = WORDS.get(result.state, ("idle", result.state))
        due_ms = best.next_requeue_within_ms if best else None
        if result.state == "back-off" and due_ms:
            words += f", in {span(due_ms / 1000)}"
        if result.state == "running" and result.worker:
            words += f" at {result.worker}"
        return kind, words
    return ("idle", best.state) if best else ("gone", "is not known")


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
    steps += failures(facts, added_s)
    since = span(max(0.0, now_s - added_s)) if added_s else ""
    if result is not None:
        steps.append(now_step(facts, since))
    due_ms = best.next_requeue_within_ms
    is_open = result is None or result.state not in ("dead", "done", "cancelled", "waiting")
    if is_open and best.state != "acked" and due_ms:
        number = (result.attempt + 1) if result is not None and result.state == "back-off" else None
        title = f"Attempt {number}" if number else "Comes back, unless it ends before"
        of = f" of {result.of}" if number and result is not None and result.of else ""
        steps.append(
            Step("ahead", now_s + due_ms / 1000, title + of, "", f"in {span(due_ms / 1000)}")
        )
    if letter is not None:
        steps.append(Step("ahead", letter.ends_ms / 1000, "Forgotten, unless it is retried"))
    return steps


def failures(facts: JobFacts, added_s: float) -> list[Step]:
    """The attempts that failed, as far as the nodes keep them: the first and the last."""
    result, letter = facts.result, facts.dead
    if letter is not None:
        first_s, last_s = letter.first_failure_ms / 1000, letter.last_failure_ms / 1000
        waited = span(max(0.0, first_s - added_s)) if added_s else ""
        steps = [Step("wait", 0, f"Waited and ran in {letter.origin}", "", waited)]
        if letter.attempts > 1:
            steps.append(Step("bad", first_s, "Attempt 1 failed", letter.first_reason))
        if letter.attempts > 2:
            words = f"{letter.attempts - 2} more attempts, and the waits between them"
            steps.append(Step("wait", 0, words, "", span(last_s - first_s)))
        of = f" of {letter.of}" if letter.of else ""
        about = f"{letter.worker} · {letter.reason}" if letter.worker else letter.reason
        steps.append(Step("bad", last_s, f"Attempt {letter.attempts}{of} {letter.cause}", about))
        return steps
    failed = result.attempt - 1 if result is not None else 0
    if result is not None and result.cause and result.state in ("back-off", "waiting", "scheduled"):
        failed = result.attempt
    if result is None or failed < 1 or not (result.cause or result.reason):
        return []
    of = f" of {result.of}" if result.of else ""
    title = (
        f"Attempt 1{of} {result.cause}"
        if failed == 1
        else f"Attempts 1 to {failed}{of} {result.cause}"
    )
    return [Step("bad", 0, title, result.reason)]


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
