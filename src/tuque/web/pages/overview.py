"""The first page: what needs somebody, and why."""

from __future__ import annotations

from typing import Final

from tuque.clusterview.history import Points
from tuque.clusterview.queues import KEYED, in_order
from tuque.clusterview.work import Mark, WorkerRow, workers_of
from tuque.web.pages.queues import rows_of
from tuque.web.show.charts import Chart, Line, made, marked
from tuque.web.show.text import brief, clip, link, num, rate, span
from tuque.web.show.verdict import Notice, in_place_of, needed, notices
from tuque.web.show.waits import name_keys
from tuque.web.site import Ask, Page, shared

NOTICES_MAX: Final = 6
ROWS: Final = 8
SUSPECT_S: Final = 600.0  # a deploy so long before may be the cause
STACKED: Final = 3  # queues with a colour of their own


async def overview(ask: Ask) -> Page:
    """What needs me, and why?"""
    watch, view = ask.site.watch, ask.view
    frame = shared(ask, "overview")
    away = {node.id: node.place for node in frame["away"]}
    found = notices(view, watch.queue_points, watch.points, away, watch.behind)
    workers = await workers_of(watch.nodes)
    found += [lost(ask, one) for one in workers if one.state == "lost"]
    found.sort(key=lambda one: one.rank)
    for one in found[:NOTICES_MAX]:
        queue = view.queues.get(one.queue)
        if one.is_late and queue is not None and queue.type == KEYED:
            keys = await watch.keys.of(one.queue)
            name_keys(one, queue, keys.rows, view.clock_s)
    for one in found:
        name_deploy(one, watch.marks)
        name_quiet(one, workers)
    first = found[0] if found else None
    history = watch.history
    rows = in_order(rows_of(ask, view.work), "oldest", True)[:ROWS]
    return Page(
        "overview",
        {
            **frame,
            "first": first,
            "headline": headline(ask, first) if first else ("", "", ""),
            "late": late(ask, first) if first and first.queue and first.rank < 3 else None,
            "rest": found[1 : NOTICES_MAX + 1],
            "more": max(0, len(found) - NOTICES_MAX - 1),
            "queue_count": len(view.work) if view.is_whole else view.count - len(view.graves),
            "oldest_s": max((one.oldest_s for one in view.work), default=0.0),
            "history": history,
            "delayed": int(history.level("delayed")[-1]) if history else None,
            "plans": view.sum("tubes_schedules"),
            "groups": view.sum("tubes_groups"),
            "at_work": int(history.level("at-work")[-1]) if history else None,
            "charts": marked(charts(ask, history), [(one.at_s, one.text) for one in watch.marks]),
            "rows": rows,
            "totals": None,
            "may_choose": False,
            "sort": "oldest",
            "down": True,
            "ask": Ask(ask.site, "/queues", {}, ask.session),
        },
    )


def name_deploy(notice: Notice, marks: list[Mark]) -> None:
    """[O14] Adds the deploy of the queue shortly before, if there was one: the first suspect.

    None where it is not known when it began (O14.6).
    """
    for mark in reversed(marks):
        if not notice.is_seen or notice.queue not in mark.queues:
            continue
        before_s = notice.since_s - mark.queues[notice.queue]
        if notice.lag_s <= before_s <= SUSPECT_S:
            notice.because += f"; {brief(mark.text)} was deployed {span(before_s)} before"
            return


def name_quiet(notice: Notice, workers: list[WorkerRow]) -> None:
    """[O14] Names first those workers of a queue behind that take no more jobs (O14.10)."""
    first = in_place_of(notice.queue, workers) if notice.is_late else ""
    if first:
        notice.do.insert(0, first)


def headline(ask: Ask, first: Notice) -> tuple[str, str, str]:
    """The verdict in three parts, the middle one loud."""
    queue = ask.view.queues.get(first.queue)
    if first.is_late and queue:
        return first.subject + " is", span(queue.oldest_s), "behind"
    return first.subject, first.says, ""


def lost(ask: Ask, worker: WorkerRow) -> Notice:
    """A worker that was lost, and when its first job comes back."""
    because = "it said nothing any more, and had no job"
    due_ms = min((run.due_ms for run in worker.runs if run.due_ms is not None), default=None)
    if worker.runs:
        one = len(worker.runs) == 1
        because = "its job waits" if one else f"its {len(worker.runs)} jobs wait"
        back = "it comes back" if one else "the first comes back"
        because += "" if due_ms is None else f"; {back} in {span(due_ms / 1000)}"
    received = f"last sign {span(worker.heard_ms / 1000)} ago"
    do = [f"Start it again, or another worker for {', '.join(worker.queues) or 'its queues'}"]
    notice = Notice(
        "gone", 2, worker.name, "is lost", received, because, do, link("workers"), "Workers"
    )
    notice.since_s = ask.view.clock_s - worker.heard_ms / 1000
    return notice


def late(ask: Ask, first: Notice) -> Chart | None:
    """The age of the oldest job of the queue in the verdict."""
    points = ask.site.watch.queue_points.get(first.queue)
    if points is None:
        return None
    ages = [value / 1000 for value in points.level("oldest-ms")]
    line = Line("oldest ready", "s4", "area", list(ages))
    question = f"How late is {first.subject}?"
    chart = made(question, "age of oldest ready job", "span", points.at_s, [line])
    return marked([chart], marks_for(ask, first.queue))[0]


def marks_for(ask: Ask, queue: str) -> list[tuple[float, str]]:
    """The deploys of workers of a queue."""
    return [(one.queues[queue], one.text) for one in ask.site.watch.marks if queue in one.queues]


def charts(ask: Ask, history: Points) -> list[Chart]:
    """The questions of the first page."""
    watch = ask.site.watch
    return [
        keeping_up(history),
        backlog(ask, history),
        workers(ask),
        slow(history),
        given_back(history),
        room(ask),
        spread("How long do jobs wait to start?", "Half of them start", watch.waits),
        spread("How long do jobs run?", "Half of them end", watch.works),
    ]


def keeping_up(history: Points) -> Chart:
    """[O14] Added less acked; jobs that are dead or expired are not done (O14.21)."""
    came, done = history.rate("added"), history.rate("acked")
    net = [a - b for a, b in zip(history.per_s("added"), history.per_s("acked"), strict=True)]
    gone = [a + b for a, b in zip(history.per_s("dead"), history.per_s("expired"), strict=True)]
    answer = ""
    if came is not None and done is not None:
        lost = history.counted("dead") + history.counted("expired")
        more = came - done
        word = "Yes" if more < 0.05 * max(came, 1.0) and not lost else "No"
        answer = f"{word}: {rate(came)} jobs/s come and {rate(done)} are done"
        for field, words in (("dead", "dead"), ("expired", "ended by their TTL")):
            if history.counted(field):
                answer += f", {num(history.counted(field))} {words} in the last minute"
        answer += "."
    lines = [Line("added − acked", "s1", "bar", list(net))]
    lines += [Line("dead, expired", "s4", "line", list(gone))] if any(gone) else []
    return made("Are we keeping up?", "jobs/s", "signed", history.at_s, lines, answer)


def backlog(ask: Ask, history: Points) -> Chart:
    """Ready jobs by queue."""
    watch, view = ask.site.watch, ask.view
    longest = sorted(view.work, key=lambda one: -one.ready)[:STACKED]
    named = [one.name for one in longest if one.ready and one.name in watch.queue_points]
    lines, rest = [], list(history.level("ready"))
    for name, colour in zip(named, ("s1", "s5", "s3"), strict=False):
        found = dict(
            zip(watch.queue_points[name].at_s, watch.queue_points[name].level("ready"), strict=True)
        )
        values = [found.get(at_s, 0.0) for at_s in history.at_s]
        rest = [max(0.0, a - b) for a, b in zip(rest, values, strict=True)]
        lines.append(Line(clip(name), colour, "stack", list(values)))
    lines.append(Line("others, dead letters", "s6", "stack", list(rest)))
    answer = "No job waits."
    if view.ready and longest:
        top = longest[0]
        answer = f"{clip(top.name)}: {num(top.ready)} of {num(view.ready)} ready jobs."
    return made("Where is the backlog?", "ready jobs", "num", history.at_s, lines, answer)


def workers(ask: Ask) -> Chart:
    """Slots that keep up with what comes, and those at work."""
    watch = ask.site.watch
    history = watch.history
    busy = history.level("at-work")
    need: list[float | None] = []
    came, work = history.per_s("added"), history.means_s("work-ms", "worked")
    for a, b in zip(came, work, strict=True):
        need.append(None if b is None else a * b)
    slots = needed(history)
    answer = ""
    if slots is not None and busy:
        leased = ask.view.sum("lease_jobs")
        answer = f"About {slots:.1f} jobs must be at work at a time; {num(busy[-1])} are"
        answer += f", {num(leased)} of them leased." if leased else "."
    lines = [
        Line("needed: added/s × work time", "s1", "line", need),
        Line("at work", "s3", "line", list(busy)),
    ]
    return made("Do I need more workers?", "jobs at work", "num", history.at_s, lines, answer)


def slow(history: Points) -> Chart:
    """Mean waits and mean work."""
    wait = history.mean_s("wait-ms", "first-delivered")
    work = history.mean_s("work-ms", "worked")
    parts = [] if wait is None else [f"waits {span(wait)}"]
    parts += [] if work is None else [f"runs {span(work)}"]
    answer = f"A job {' and '.join(parts)}, on average." if parts else ""
    lines = [
        Line("wait", "s2", "line", history.means_s("wait-ms", "first-delivered")),
        Line("work", "s3", "line", history.means_s("work-ms", "worked")),
    ]
    return made(
        "Slow to start or slow to run?",
        "mean, log scale",
        "span",
        history.at_s,
        lines,
        answer,
        log=True,
    )


def spread(question: str, words: str, buckets: Points) -> Chart:
    """Percentiles of the last minute, at each point, out of the sums of all nodes."""
    shares = (("p50", 0.5, "s3"), ("p95", 0.95, "s2"), ("p99", 0.99, "s4"))
    lines = [Line(name, colour, "line", buckets.percentiles_s(p)) for name, p, colour in shares]
    half, most, nearly = (line.values[-1] if line.values else None for line in lines)
    answer = ""
    if half is not None:
        answer = (
            f"{words} within {span(half)}, 95 % within {span(most)}, 99 % within {span(nearly)}."
        )
    unit = "of the last minute, log scale"
    return made(question, unit, "span", buckets.at_s, lines, answer, log=True)


def given_back(history: Points) -> Chart:
    """Failures and requeues."""
    names: tuple[tuple[str, str, str], ...] = (
        ("failed", "failed attempts", "s4"),
        ("requeued", "put back", "s2"),
        ("dead", "dead", "s5"),
    )
    lines = [Line(words, colour, "line", list(history.per_s(f))) for f, words, colour in names]
    failed = history.rate("failed")
    answer = "" if failed is None else f"{rate(failed)} attempts fail each second."
    return made("Who gives jobs back?", "per second", "rate", history.at_s, lines, answer)


def room(ask: Ask) -> Chart:
    """Memory of each node."""
    watch, view = ask.site.watch, ask.view
    at_s = sorted({at for points in watch.points.values() for at in points.at_s})
    lines, shares = [], []
    for facts, colour in zip(view.facts, ("s1", "s2", "s3", "s5", "s4", "s6"), strict=False):
        most = facts.number("maxmemory")
        points = watch.points.get(facts.id)
        if not most or points is None:
            continue
        found = dict(zip(points.at_s, points.level("memory"), strict=True))
        values = [100.0 * found[at] / most if at in found else None for at in at_s]
        lines.append(Line(facts.id[:8], colour, "line", list(values)))
        if facts in view.received:
            shares.append((100.0 * facts.number("used_memory") / most, facts.id[:8]))
    answer = "No node has a limit of its memory."
    if shares:
        share, name = max(shares)
        answer = f"{name} uses most: {share:.0f} %."
    return made(
        "Is there room on the nodes?",
        "memory, % of maxmemory",
        "pct",
        at_s,
        lines,
        answer,
        limit=75.0,
        limit_name="75 %: ADDJOB refused",
    )


async def find(ask: Ask) -> str:
    """The address of what somebody seeks: a job by its id, a queue by its name, else a list."""
    wanted = ask.word("q").strip()
    if len(wanted) == 40 and wanted[:1] == "D":
        return link("job", id=wanted)
    if wanted and (wanted in ask.view.queues or await ask.site.watch.lists.named([wanted])):
        return link("queue", name=wanted)
    return link("queues", match=wanted)
