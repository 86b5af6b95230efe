"""One queue: why is it late, and which jobs are in it?"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from tuque.aio import Client
from tuque.client.api import Job
from tuque.client.commands.groups import JobGroup
from tuque.clusterview.history import Points
from tuque.clusterview.nodes import DEAD, Queue
from tuque.clusterview.queues import KEYED, SHARE, KeyRows, ScheduleRow
from tuque.clusterview.work import (
    CALLED,
    ROWS,
    Found,
    JobRow,
    active,
    peeked,
    workers_of,
)
from tuque.errors import ReplyError
from tuque.web.pages.change_rest import silent_home
from tuque.web.pages.overview import marks_for, name_deploy, name_quiet, slow
from tuque.web.pages.queues import name_away, rows_of
from tuque.web.show.charts import Chart, Line, made, marked
from tuque.web.show.firings import in_words, state_of
from tuque.web.show.keys import SHOWN, groups, held, name_keys
from tuque.web.show.text import num, rate, span
from tuque.web.show.verdict import of_queue
from tuque.web.site import Ask, Page, shared

TABS: Final = ("ready", "active")
QUICK_S: Final = 0.1
SAID: Final = 80  # characters of a body in a row
PLANS: Final = 5  # schedules that the page names


async def queue(ask: Ask) -> Page:
    """Why is this one late, and which jobs are in it?"""
    name = ask.word("name")
    watch = ask.site.watch
    found = (await watch.lists.named([name])).get(name) if name else None
    points = await watch.history_of(name) if found else Points()
    tab = ask.word("tab", "ready")
    tab = tab if tab in TABS else "ready"
    here = found or Queue(name, {})
    row = rows_of(ask, [here])[0]
    lost = (await name_away(ask, [row])).get(name)
    notices = of_queue(ask.view, here, points, watch.behind) if found else []
    workers = await workers_of(watch.nodes) if any(one.is_late for one in notices) else []
    keys = await watch.keys.of(name) if here.type == KEYED else KeyRows()
    for one in notices:
        name_keys(one, here, keys.rows, ask.view.clock_s)
        name_deploy(one, watch.marks)
        name_quiet(one, workers)
    plans = await watch.schedules.of(name) if here.type == KEYED else []
    families = await watch.groups.of(name) if here.type == KEYED else []
    return Page(
        "queue",
        {
            **shared(ask, "queues"),
            "name": name,
            "found": found,
            "row": row,
            "lost": silent_home(lost) if lost else "",
            "points": points,
            "first": notices[0] if notices else None,
            "imports": await imports(ask, name) if found else {},
            "charts": marked(charts(points, len(plans) + len(families)), marks_for(ask, name)),
            "by_node": by_node(ask, here),
            "dead": ask.view.letters(here),
            "dead_name": name + DEAD,
            "tab": tab,
            "plans": [planned(one, ask.view.clock_s) for one in plans[:PLANS]],
            "plan_count": len(plans),
            "job_groups": [one for one in families if one.group.state == "open"],
            "records": sum(records(one.group) for one in families),
            **keys_of(keys, ask.view.clock_s),
            **await jobs_of(ask, name, tab),
        },
        200 if found else 404,
    )


def keys_of(found: KeyRows, now_s: float) -> dict[str, Any]:
    """[O14] What the tasks of a tube wait for, and whose turn it is (O14.26)."""
    return {
        "held": held(found.rows, now_s),
        "groups": groups(found.rows, now_s, found.is_all),
        "has_all_keys": found.is_all,
        "keys_shown": SHOWN,
    }


def planned(row: ScheduleRow, now_s: float) -> dict[str, Any]:
    """A schedule of the queue, on one line."""
    plan = row.plan
    kind, word = state_of(plan, now_s)
    when = in_words(plan) or plan.cron
    return {"plan": plan, "kind": kind, "word": word, "when": when}


def records(group: JobGroup) -> int:
    """[O14] How many delayed tasks of the tube are the group and its children (O14.25)."""
    return group.added + (group.state != CALLED)


async def imports(ask: Ask, name: str) -> dict[str, tuple[str, ...]]:
    """Which nodes fetch its jobs from which others."""

    async def question(client: Client) -> tuple[str, ...]:
        try:
            stat = await client.qstat(name)
        except ReplyError:
            return ()  # a tube at home elsewhere
        return tuple(one[:8] for one in stat["import-from"]) if stat else ()

    answers = await ask.site.watch.nodes.ask(question)
    return {id[:8]: found for id, found in answers.items() if found}


def by_node(ask: Ask, found: Queue) -> list[tuple[str, Any, float]]:
    """Each node's share: its name, its figures, percent of all ready jobs."""
    ready = found.ready
    return [
        (id[:8], here, 100.0 * here.ready / ready if ready else 0.0)
        for id, here in sorted(found.here.items())
    ]


async def jobs_of(ask: Ask, name: str, tab: str) -> dict[str, Any]:
    """[O14] Jobs of a tab: the next ones, or those that are not ready (O14.25)."""
    nodes = ask.site.watch.nodes
    if tab == "active":
        rows, is_all = await not_ready(ask, name)
        return {
            "jobs": [active_row(one) for one in rows[:ROWS]],
            "job_count": len(rows),
            "is_all": is_all,
        }
    peek = await peeked(nodes, name)
    return {
        "jobs": [ready_row(node, job) for node, job in peek],
        "job_count": len(peek),
        "is_all": True,
    }


async def not_ready(ask: Ask, name: str) -> Found:
    """The jobs that are not ready; a scan that took long is not made again soon."""
    kept = ask.site.scans
    begun_s = time.monotonic()
    for one in [one for one, (until_s, _) in kept.items() if until_s <= begun_s]:
        del kept[one]
    if name in kept:
        return kept[name][1]
    found = await active(ask.site.watch.nodes, name, time.time())
    took_s = time.monotonic() - begun_s
    if took_s > QUICK_S:
        kept[name] = (time.monotonic() + took_s / SHARE, found)
    return found


def said(body: bytes) -> str:
    """A body on one line, its start."""
    try:
        value = json.loads(body[:4096])
    except ValueError:
        return repr(body[:SAID])[2:-1]
    return json.dumps(value, ensure_ascii=False)[:SAID]


def ready_row(node: str, job: Job) -> dict[str, Any]:
    """A job that waits."""
    return {"id": job.id, "node": node, "body": said(job.body), "due": "", "deliveries": None}


def active_row(row: JobRow) -> dict[str, Any]:
    """A job that is at work, delayed, or in back-off."""
    due = "" if row.due_ms is None else f"in {span(row.due_ms / 1000)}"
    return {
        "id": row.id,
        "node": row.node,
        "body": said(row.body),
        "due": due,
        "deliveries": row.deliveries,
    }


def known(points: Points, answer: str) -> str:
    """[O14] The answer of a chart, if anybody knows one now (O14.15)."""
    return answer if points.is_known else "Not known: no node that answers knows it."


def charts(points: Points, plans: int = 0) -> list[Chart]:
    """The questions about one queue."""
    came, done = points.rate("added"), points.rate("acked")
    oldest = points.level("oldest-ms")
    return [
        made(
            "Is it keeping up?",
            "jobs/s",
            "rate",
            points.at_s,
            [
                Line("added", "s1", "line", points.drawn(points.per_s("added"))),
                Line("acked", "s3", "area", points.drawn(points.per_s("acked"))),
            ],
            known(
                points, "" if came is None else f"{rate(came)} jobs/s come, {rate(done)} are done."
            ),
        ),
        made(
            "How late is it?",
            "age of oldest ready job",
            "span",
            points.at_s,
            [Line("oldest ready", "s4", "area", points.drawn([one / 1000 for one in oldest]))],
            known(points, f"{span(oldest[-1] / 1000)}." if oldest else ""),
        ),
        slow(points),
        places(points, plans),
    ]


def places(points: Points, plans: int) -> Chart:
    """Jobs by state."""
    delayed = "delayed, schedules, groups" if plans else "delayed"
    ready = points.level("ready")
    return made(
        "Where are its jobs?",
        "jobs",
        "num",
        points.at_s,
        [
            Line("ready", "s1", "area", points.drawn(ready)),
            Line("at work", "s3", "line", points.drawn(points.level("at-work"))),
            Line(delayed, "s6", "line", points.drawn(points.level("delayed"))),
        ],
        known(points, f"{num(ready[-1])} ready." if ready else ""),
    )
