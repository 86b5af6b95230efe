"""Schedules: what makes jobs by itself, when, and did it? And the actions on one of them."""

from __future__ import annotations

from typing import Any

from tuque.aio import Client
from tuque.client.commands.schedules import Schedule
from tuque.clusterview.queues import PAGE, Part, ScheduleRow, fits
from tuque.web.actions import Outcome, Proposal, Refused
from tuque.web.pages.tube_actions import home_of, tube_named
from tuque.web.show.text import link
from tuque.web.show.verdict import homeless
from tuque.web.show.waits import (
    MISSED,
    ahead,
    firings,
    in_words,
    state_of,
)
from tuque.web.site import Ask, Page, shared

KINDS = ("on time", "paused", "held back", "no next time")
MARKS = {"on time": "ok", "paused": "pause", "held back": "warn", "no next time": "warn"}


async def schedules(ask: Ask) -> Page:
    """What makes jobs by itself, when is it next, and did it so far?"""
    wanted, queue, kind = ask.word("match"), ask.word("queue"), ask.word("kind", "all")
    every = await ask.site.watch.schedules.every()
    now_s = ask.view.clock_s
    here = [row for row in every if queue in ("", row.plan.queue)]
    rows = [shown(row, now_s) for row in here if fits(row.name, wanted)]
    count = {name: sum(one["word"] == name for one in rows) for name in KINDS}
    meant = [one for one in rows if kind in ("all", one["word"])]
    start = max(0, min(ask.start(PAGE), len(meant) - 1))
    return Page(
        "schedules",
        {
            **shared(ask, "schedules"),
            "found": Part(meant[start : start + PAGE], start, len(meant), len(every)),
            "every": len(rows),
            "kinds": [(name, count[name]) for name in KINDS if count[name] or name == kind],
            "marks": MARKS,
            "kind": kind,
            "queue": queue,
            "wanted": wanted,
            "page_size": PAGE,
            "is_all": ask.site.watch.schedules.is_all,
            "may_miss": ask.view.old and homeless(ask.view) > 0,
            "told": ask.view.sum("tubes_schedules"),
            "fired": ask.view.sum("tubes_schedules_fired"),
            "late": ask.view.sum("tubes_schedules_late"),
        },
    )


def shown(row: ScheduleRow, now_s: float) -> dict[str, Any]:
    """[O14] A row of the page (O14.23)."""
    plan = row.plan
    kind, word = state_of(plan, now_s)
    return {
        "plan": plan,
        "node": row.node,
        "kind": kind,
        "word": word,
        "when": in_words(plan),
        "missed": MISSED.get(plan.missed, plan.missed),
        "next": [(at_s, ahead(at_s - now_s)) for at_s in firings(plan)],
    }


async def named(ask: Ask) -> tuple[Client, Schedule]:
    """[O14] The schedule that is meant, and the leader of its tube (O14.24); NoSchedule."""
    row = await tube_named(ask)
    client = home_of(ask, row.info).client
    return client, await client.schedule_show(row.info.name, ask.word("schedule"))


async def proposed(ask: Ask, name: str, verb: str, follows: list[str]) -> Proposal:
    """A dialog about one schedule."""
    _, plan = await named(ask)
    when = in_words(plan) or plan.cron
    return Proposal(
        name,
        f"{verb} the schedule {plan.name}?",
        verb,
        f"{verb} a schedule",
        f"{plan.name} of {plan.queue}",
        [f"It makes jobs for {plan.queue} {when}; {plan.fired:,} so far.", *follows],
        [("tube", plan.queue), ("schedule", plan.name)],
    )


async def propose_pause(ask: Ask) -> Proposal:
    """No more jobs for now?"""
    follows = ["Until it is resumed it makes no jobs; times that pass meanwhile make none later."]
    return await proposed(ask, "pause-schedule", "Pause", follows)


async def propose_resume(ask: Ask) -> Proposal:
    """Jobs again?"""
    follows = ["It continues with its next time; those of the pause make no jobs."]
    return await proposed(ask, "resume-schedule", "Resume", follows)


async def propose_run(ask: Ask) -> Proposal:
    """A job now?"""
    follows = ["It adds one job now. Its times stay as they are."]
    found = await proposed(ask, "run-schedule", "Run", follows)
    found.title, found.button = f"{found.title.rstrip('?')} now?", "Run now"
    return found


async def propose_drop(ask: Ask) -> Proposal:
    """Never again?"""
    follows = [
        "It makes no more jobs. Those that it has made stay.",
        "An app that declares it adds it again when its workers start.",
        "This cannot be undone. To hold it for a while, pause it.",
    ]
    found = await proposed(ask, "drop-schedule", "Delete", follows)
    found.is_danger = True
    return found


async def pause(ask: Ask) -> Outcome:
    """Makes no more jobs until it is resumed."""
    client, plan = await named(ask)
    done = await client.schedule_pause(plan.queue, plan.name)
    return over(ask, plan, "is paused" if done else "was paused already")


async def resume(ask: Ask) -> Outcome:
    """Goes on."""
    client, plan = await named(ask)
    done = await client.schedule_resume(plan.queue, plan.name)
    return over(ask, plan, "continues" if done else "was not paused")


async def run(ask: Ask) -> Outcome:
    """Adds a job beside its times."""
    client, plan = await named(ask)
    id = await client.schedule_run(plan.queue, plan.name)
    if id is None:
        raise Refused("It added none: a job that has not ended has the unique key of its jobs.")
    return over(ask, plan, f"has added {id}", 1)


async def drop(ask: Ask) -> Outcome:
    """Removes it."""
    client, plan = await named(ask)
    done = await client.schedule_drop(plan.queue, plan.name)
    return over(ask, plan, "is deleted" if done else "was deleted already")


def over(ask: Ask, plan: Schedule, words: str, jobs: int | None = None) -> Outcome:
    """What came of it; the page reads all schedules anew."""
    ask.site.watch.schedules.expire()
    return Outcome(f"The schedule {plan.name} {words}.", link("schedules", queue=plan.queue), jobs)
