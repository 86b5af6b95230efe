"""One queue: why is it late, and which jobs are in it? And the actions on it."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tuque.client.api import PRI, Job
from tuque.client.commands.groups import JobGroup
from tuque.clusterview.figures import DEAD, Queue
from tuque.clusterview.history import Points
from tuque.clusterview.nodes import Node
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
from tuque.errors import Error
from tuque.web.actions import (
    TYPED_FROM,
    Field,
    Long,
    Outcome,
    Proposal,
    Refused,
)
from tuque.web.pages import dead
from tuque.web.pages.overview import marks_for, name_deploy, name_quiet, slow
from tuque.web.pages.queues import name_away, rows_of
from tuque.web.pages.tube_actions import silent_home
from tuque.web.show.charts import Chart, Line, made, marked
from tuque.web.show.text import link, num, plural, rate, span
from tuque.web.show.verdict import of_queue
from tuque.web.show.waits import (
    SHOWN,
    groups,
    held,
    in_words,
    name_keys,
    state_of,
)
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
            "imports": await ask.site.watch.lists.imports(name) if found else {},
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


def shown_body(body: bytes) -> str:
    """A body on one line, its start."""
    try:
        value = json.loads(body[:4096])
    except ValueError:
        return repr(body[:SAID])[2:-1]
    return json.dumps(value, ensure_ascii=False)[:SAID]


def ready_row(node: str, job: Job) -> dict[str, Any]:
    """A job that waits."""
    return {"id": job.id, "node": node, "body": shown_body(job.body), "due": "", "deliveries": None}


def active_row(row: JobRow) -> dict[str, Any]:
    """A job that is at work, delayed, or in back-off."""
    due = "" if row.due_ms is None else f"in {span(row.due_ms / 1000)}"
    return {
        "id": row.id,
        "node": row.node,
        "body": shown_body(row.body),
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


# ---- All ready jobs of a queue cancelled, page by page. Decides which: those that were there first


AT_ONCE: Final = 200  # jobs a call


def work(nodes: list[Node], queue: str, who: str) -> Callable[[Long], Awaitable[None]]:
    """The action: at each node as many jobs as were ready when it came to it."""

    async def run(action: Long) -> None:
        for node in nodes:
            left = await node.client.qlen(queue)
            while left > 0 and not action.is_stopped:
                jobs = await node.client.qpeek(queue, min(left, AT_ONCE))
                became = await node.client.cancel(*jobs, reason=f"deleted by {who}") if jobs else []
                ended = became.count("ended")
                action.seen += len(jobs)
                action.done += ended
                left -= len(jobs)
                if not ended:
                    break  # it is empty, or a holder that is silent may have them
        action.seen = max(action.seen, action.done)

    return run


# ---- Actions on queues: pause, drain, add a job, delete those that are ready, retry the dead ones


BODY_MAX: Final = 1 << 20
RETRY_MAX: Final = 1 << 31
PRI_WORDS: Final = "PRI, 0 (goes first) to 9"


def named(ask: Ask) -> list[str]:
    """The queues that are meant."""
    found = [one for one in ask.many.get("queue", []) if one]
    if not found:
        raise Refused("No queue was chosen.")
    return found


async def propose_pause(ask: Ask) -> Proposal:
    """Pause or resume queues?"""
    names, to = named(ask), ask.word("to", "in")
    if to not in ("in", "out", "all", "none"):
        raise Refused("A pause is of in, out, all, or none.")
    drain = ask.word("drain") == "yes"
    there = (await ask.site.watch.lists.named(names)).values()
    ready = sum(one.ready for one in there)
    about = ", ".join(names[:5]) + ("" if len(names) <= 5 else f" and {len(names) - 5} more")
    rate = sum(one.came_rate for one in there)
    adds = f"Whoever adds to it gets -PAUSED: {rate:.1f} jobs/s now."
    takes = f"{plural(ready, 'job waits', 'jobs wait')}; nothing is deleted."
    texts = {
        "in": ("Pause input of", "Pause input", [adds, f"{takes} They are still delivered."]),
        "out": ("Pause output of", "Pause output", [f"Nobody gets its jobs. {takes}"]),
        "all": ("Pause", "Pause", [adds, f"Nobody gets its jobs. {takes}"]),
        "none": ("Resume", "Resume", [f"It accepts and delivers jobs again. {takes}"]),
    }
    title, button, follows = texts[to]
    if drain:
        title, button = "Drain", "Drain"
        follows = [*follows, "When it is empty its input is still paused: resume it then."]
    return Proposal(
        "pause",
        f"{title} {about} on all nodes?",
        button,
        button,
        about,
        [*follows, "This holds on all nodes, including those that join later."],
        [("queue", name) for name in names] + [("to", to), ("drain", "yes" if drain else "")],
    )


async def pause(ask: Ask) -> Outcome:
    """Pauses or resumes them, at one node, which sends it to all."""
    names, to = named(ask), ask.word("to", "in")
    nodes = ask.site.watch.nodes.up()
    if not nodes:
        raise Refused("No node answers.")
    mode = {"in": "in", "out": "out", "all": "all", "none": "none"}[to]
    for name in names:
        await nodes[0].client.execute("PAUSE", name, mode, "bcast")
    await ask.site.watch.fresh()
    words = {"none": "Resumed", "in": "Input paused", "out": "Output paused"}
    note = f"{words.get(to, 'Paused')}: {', '.join(names[:5])}."
    goto = link("queue", name=names[0]) if len(names) == 1 else "/queues"
    there = await ask.site.watch.lists.named(names)
    return Outcome(note, goto, sum(one.ready for one in there.values()))


async def propose_add(ask: Ask) -> Proposal:
    """Add a job by hand?"""
    return Proposal(
        "add",
        "Add a job",
        "Add",
        "Add a job",
        ask.word("queue"),
        [],
        [],
        [
            Field("queue", "Queue", ask.word("queue")),
            Field("body", "Body", ask.word("body"), "area"),
            Field("task", "Task (empty: none)", ask.word("task")),
            Field("delay", "Delay, s", ask.word("delay", "0"), "number"),
            Field("retry", "Retry, s", ask.word("retry", "60"), "number"),
            Field("attempts", "Attempts (0: no limit)", ask.word("attempts", "0"), "number"),
            Field("ttl", "TTL, s (0: never expires)", ask.word("ttl", "86400"), "number"),
            Field("pri", PRI_WORDS, ask.word("pri", str(PRI)), "number"),
        ],
    )


def whole(ask: Ask, name: str) -> int:
    """A number that somebody typed. Refused if it is none."""
    text = ask.word(name, "0").strip() or "0"
    if not text.isascii() or not text.isdigit() or int(text) > RETRY_MAX:
        of = "" if name == "pri" else " of seconds"
        raise Refused(f"{name} must be a whole number{of}, 0 or more.")
    return int(text)


async def add(ask: Ask) -> Outcome:
    """Adds it at the first node that answers."""
    queue, body = ask.word("queue").strip(), ask.word("body")
    if not queue:
        raise Refused("A job needs a queue.")
    if len(body.encode("utf-8", "surrogateescape")) > BODY_MAX:
        raise Refused(f"A body from here has at most {BODY_MAX:,} bytes.")
    id = await add_to(ask, queue, body)
    return Outcome(f"Added {id} to {queue}.", link("job", id=id), 1)


async def add_to(
    ask: Ask, queue: str, body: str | bytes, headers: Mapping[str, str] | None = None
) -> str:
    """Adds a job as the form says, with headers of another one; returns its id."""
    retry, attempts = whole(ask, "retry"), whole(ask, "attempts")
    words: list[str | int] = [
        "DELAY",
        whole(ask, "delay"),
        "RETRY",
        retry,
        "TTL",
        whole(ask, "ttl"),
    ]
    if attempts:
        words += ["ATTEMPTS", attempts]
    if ask.word("pri").strip() not in ("", str(PRI)):
        words += ["PRI", whole(ask, "pri")]
    all_headers = {name: value for name, value in (headers or {}).items() if name != "tuque-task"}
    if ask.word("task"):
        all_headers["tuque-task"] = ask.word("task")
    if all_headers:
        words += ["HEADERS", len(all_headers)]
        words += [word for pair in all_headers.items() for word in pair]
    for node in ask.site.watch.nodes.up():
        try:
            reply = await node.client.execute("ADDJOB", queue, body, 5000, *words)
        except Error as err:
            if err.may_be_done or not err.retryable:
                raise
            continue
        return str(reply, "ascii")
    raise Refused("No node takes jobs now.")


async def queue_of(ask: Ask) -> Queue:
    """The one queue that is meant. Refused if it is a tube, or keeps dead letters."""
    names = named(ask)
    if len(names) > 1:
        raise Refused("Delete the jobs of one queue at a time.")
    found = (await ask.site.watch.lists.named(names)).get(names[0])
    if found is None or not found.ready:
        raise Refused(f"No job of {names[0]} is ready.")
    if found.type:
        raise Refused("It is a tube: its tasks are deleted by TUBE DROP, or one by one.")
    if found.is_dead:
        raise Refused("It keeps dead letters: delete them on their own page.")
    return found


async def propose_empty(ask: Ask) -> Proposal:
    """Delete all ready jobs of a queue?"""
    found = await queue_of(ask)
    count, jobs = found.ready, plural(found.ready, "ready job")
    return Proposal(
        "empty",
        f"Delete {jobs} of {found.name}?",
        f"Delete {count:,}",
        "Delete ready jobs",
        found.name,
        [
            f"{jobs} never {'runs' if count == 1 else 'run'}; "
            "whoever waits for a result sees that the job was cancelled.",
            "Delayed jobs and those at work stay, and so do jobs that come meanwhile.",
            "A job that a worker gets meanwhile is cancelled as soon as that worker is notified.",
            "This cannot be undone.",
        ],
        [("queue", found.name)],
        count=count,
        is_danger=True,
        typed=found.name if count > TYPED_FROM else "",
    )


async def empty(ask: Ask) -> Outcome:
    """Begins to cancel them; it is logged when it has ended."""
    found, who = await queue_of(ask), ask.session.name
    run = work(ask.site.watch.nodes.up(), found.name, who)
    ask.site.running.begin(who, "Deleting ready jobs", found.name, found.ready, run)
    note = f"Deleting {plural(found.ready, 'ready job')} of {found.name}."
    return Outcome(note, link("queue", name=found.name), found.ready, is_long=True)


async def propose_retry(ask: Ask) -> Proposal:
    """Retry all dead letters of queues?"""
    return await dead.propose_retry(of_graves(ask))


async def retry(ask: Ask) -> Outcome:
    """Retries them."""
    return await dead.retry(of_graves(ask))


def of_graves(ask: Ask) -> Ask:
    """The question about queues as one about their queues of dead letters."""
    names = named(ask)
    if len(names) > 1:
        raise Refused("Retry the dead letters of one queue at a time, or all on their own page.")
    known = ask.view.queues.get(names[0])
    is_own = names[0].endswith(DEAD) or (known is not None and known.type != "")
    words = {**ask.words, "queue": names[0] if is_own else names[0] + DEAD}
    return Ask(ask.site, ask.path, words, ask.session, {**ask.many, "queue": [words["queue"]]})
