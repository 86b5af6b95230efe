"""What belongs together: groups of jobs with their children, and topics with their queues."""

from __future__ import annotations

from typing import Any, Final, cast, get_args

from tuque.aio import Client
from tuque.client.commands.groups import GroupChild, JobGroup
from tuque.clusterview.queues import PAGE, Part, fits, tube_of
from tuque.clusterview.work import (
    CALLED,
    Children,
    ChildrenFound,
    ChildState,
    GroupRow,
    SubscriptionRow,
    children_of,
    counts,
    group_of,
)
from tuque.web.actions import (
    Field,
    Outcome,
    Proposal,
    Refused,
)
from tuque.web.pages.tube_actions import silent_home
from tuque.web.show.text import clip, link, plural, tail_id
from tuque.web.show.verdict import homeless
from tuque.web.site import Ask, Page, shared

MARKS: Final = {
    "open": "idle",
    "failed": "bad",
    "cancelled": "gone",
    "done": "ok",
    CALLED: "ok",
}
SAYS: Final = {
    "open": "waits for its children",
    "failed": "failed",
    "cancelled": "was cancelled",
    "done": "is done",
    CALLED: "is its callback now",
}
ENDS: Final = {"open": "idle", "done": "ok", "dead": "bad", "cancelled": "gone", "gone": "gone"}
ON_FAIL: Final = {
    "stop": "If a child fails, the group fails, and its open children are cancelled",
    "wait": "If a child fails, the group fails; a dead one is waited for, in case it is retried",
    "continue": "A child that fails counts as ended, without a result",
}


async def groups(ask: Ask) -> Page:
    """Which groups are there, how far is each, and what came of it?"""
    wanted, queue, kind = ask.word("match"), ask.word("queue"), ask.word("kind", "all")
    kind = kind if kind in MARKS else "all"
    read = await ask.site.watch.groups.every(kind == CALLED)
    here = [row for row in read.rows if queue in ("", row.group.queue)]
    rows = [row for row in here if fits(row.name, wanted)]
    meant = [row for row in rows if kind in ("all", row.group.state)]
    count = {name: sum(row.group.state == name for row in rows) for name in MARKS}
    start = max(0, min(ask.start(PAGE), len(meant) - 1))
    view = ask.view
    return Page(
        "groups",
        {
            **shared(ask, "groups"),
            "found": Part(
                [shown(row) for row in meant[start : start + PAGE]],
                start,
                len(meant),
                len(read.rows),
            ),
            "every": None if kind == CALLED else len(rows),
            "kinds": [
                (name, None if (name == CALLED) != (kind == CALLED) else count[name])
                for name in MARKS
                if count[name] or name == kind or CALLED in (name, kind)
            ],
            "marks": MARKS,
            "kind": kind,
            "queue": queue,
            "wanted": wanted,
            "page_size": PAGE,
            "is_all": read.is_all,
            "may_miss": view.old and homeless(view) > 0,
            "told": {
                name: view.sum(f"tubes_{name}")
                for name in ("groups", "groups_made", "groups_done", "groups_failed")
            },
        },
    )


def shown(row: GroupRow) -> dict[str, Any]:
    """[O14] A row of the page (O14.28)."""
    return {"group": row.group, "node": row.node, **progress(row.group)}


def progress(group: JobGroup) -> dict[str, Any]:
    """How many children are open, and what parts of all have ended, in percent."""
    size = max(1, group.children)
    return {
        "open": group.children - group.done - group.failed,
        "done_share": 100.0 * group.done / size,
        "failed_share": 100.0 * group.failed / size,
    }


async def group(ask: Ask) -> Page:
    """How far is this one, and how did its children end?"""
    tube, id = ask.word("tube"), ask.word("id")
    found = await group_of(ask.site.watch.nodes, tube, id)
    state = cast(ChildState, ask.word("state"))
    state = state if state in get_args(ChildState) else ""
    start = ask.number("at", 0)
    children = await children_of(found, start, state)
    one = found.group
    lost = "" if one is not None or found.is_gone else await why_unknown(ask, tube)
    return Page(
        "group",
        {
            **shared(ask, "groups"),
            "tube": tube,
            "id": id,
            "one": one,
            "lost": lost,
            "state": state,
            "start": start,
            "page_size": PAGE,
            "children": children,
            "rows": [child(row) for row in children.rows],
            "ends": ENDS,
            "on_fail": ON_FAIL.get(one.on_fail, "") if one else "",
            **(of_children(found, children) if one else {}),
        },
        200 if one is not None or ask.view.old else 404,
    )


def of_children(found: ChildrenFound, children: Children) -> dict[str, Any]:
    """What the page says of a group that is there."""
    one = found.group
    assert one is not None
    return {
        **progress(one),
        "kind": MARKS[one.state],
        "words": SAYS[one.state],
        "counts": counts(one),
        "missing": one.children - one.added,
        "first": children.rows[0].index if children.rows else 0,
        "last": children.rows[-1].index if children.rows else 0,
    }


def child(row: GroupChild) -> dict[str, Any]:
    """A row of a child: how it ended, as a shape and a word."""
    is_lost = row.state == "failed" and row.how == "done"  # it ended well; its result is not kept
    kind = "bad" if is_lost else ENDS.get(row.how, "idle")
    word = "no result" if is_lost else row.how
    if row.state == "open" and row.how != "open":
        word += ", waits for a retry"  # it may be replayed
    return {"child": row, "kind": kind, "word": word}


async def why_unknown(ask: Ask, tube: str) -> str:
    """Why no node that answers leads the tube; empty: none knows it."""
    row = await tube_of(ask.site.watch.nodes, tube)
    return silent_home(row.info) if row is not None else ""


async def named(ask: Ask) -> ChildrenFound:
    """The group that is meant. Refused if it is not known."""
    tube = ask.word("tube")
    found = await group_of(ask.site.watch.nodes, tube, ask.word("group"))
    if found.group is None:
        if found.is_gone:
            raise Refused("Its tube has no such group any more.")
        raise Refused(await why_unknown(ask, tube) or "No node that answers knows its tube.")
    return found


async def propose_cancel(ask: Ask) -> Proposal:
    """[O14] No callback, and no more children (O14.30)?"""
    one = (await named(ask)).group
    assert one is not None
    if one.state != "open":
        raise Refused(f"The group {SAYS[one.state]}: there is nothing to cancel.")
    left = one.added - one.done - one.failed
    callback = "Its callback does not run." if one.has_callback else "It has no callback."
    found = Proposal(
        "cancel-group",
        f"Cancel the group and {plural(left, 'open child', 'open children')}?",
        "Cancel the group",
        "Cancel a group",
        f"{one.id} of {one.queue}",
        [
            f"{callback} It waits for {plural(one.children, 'job')}, {one.done:,} are done.",
            "Children that nobody has are cancelled. Workers that have one hear of it, and may "
            "finish before.",
            "This cannot be undone.",
        ],
        [("tube", one.queue), ("group", one.id)],
    )
    found.is_danger = True
    return found


async def cancel(ask: Ask) -> Outcome:
    """Cancels it, at the leader of its tube."""
    found = await named(ask)
    node, one = found.node, found.group
    assert node is not None
    assert one is not None
    is_done = await node.client.group_cancel(one.queue, one.id)
    ask.site.watch.groups.expire()
    left = one.added - one.done - one.failed
    came = "is cancelled" if is_done else "was over already"
    note = f"The group {tail_id(one.id)} {came}."
    return Outcome(note, link("group", tube=one.queue, id=one.id), left if is_done else 0)


# ---- Topics: which queues get what is added to each, and how much came? And their subscriptions


FIGURES = ("topic_adds", "topic_jobs", "topic_adds_unheard")
HINT = "One a line: a header, =, and a pattern, such as shop=eu-*. None: all jobs of the topic."


async def topics(ask: Ask) -> Page:
    """Which queues get what is added to a topic, and how much came?"""
    wanted, queue = ask.word("match"), ask.word("queue")
    every = await ask.site.watch.topics.every()
    here = [row for row in every if queue in ("", row.queue)]
    meant = [row for row in here if fits(row.name, wanted)]
    start = max(0, min(ask.start(PAGE), len(meant) - 1))
    view = ask.view
    return Page(
        "topics",
        {
            **shared(ask, "topics"),
            "found": Part(meant[start : start + PAGE], start, len(meant), len(every)),
            "names": len({row.topic for row in every}),
            "queue": queue,
            "wanted": wanted,
            "page_size": PAGE,
            "told": {name: view.sum(name) for name in FIGURES},
        },
    )


def any_client(ask: Ask) -> Client:
    """A node that answers: it tells all others. Refused if there is none."""
    up = ask.site.watch.nodes.up()
    if not up:
        raise Refused("No node answers.")
    return up[0].client


async def topic_named(ask: Ask) -> SubscriptionRow:
    """The subscription that is meant. Refused if no node knows it."""
    ask.site.watch.topics.expire()
    for row in await ask.site.watch.topics.every():
        if (row.topic, row.queue) == (ask.word("topic"), ask.word("queue")):
            return row
    raise Refused("No node knows this subscription.")


def shown_filters(filters: dict[str, str]) -> str:
    """Filters on one line."""
    return ", ".join(f"{name}={glob}" for name, glob in filters.items())


async def propose_subscribe(ask: Ask) -> Proposal:
    """[O14] A queue that gets jobs of a topic, or other filters (O14.33)?"""
    topic, queue = ask.word("topic"), ask.word("queue")
    filters = {}
    if topic and queue and not ask.word("filters"):
        every = await ask.site.watch.topics.every()
        filters = next((r.filters for r in every if (r.topic, r.queue) == (topic, queue)), {})
    lines = ask.word("filters") or "\n".join(f"{name}={glob}" for name, glob in filters.items())
    return Proposal(
        "subscribe",
        "Subscribe a queue to a topic?",
        "Subscribe",
        "Subscribe",
        f"{queue} to {topic}" if topic and queue else "",
        [
            "From now on it gets a job for each ADD to the topic whose headers fit; what was added "
            "before does not come.",
            "If it is subscribed already, these filters take the place of its own.",
        ],
        [],
        [
            Field("topic", "Topic", topic),
            Field("queue", "Queue or tube", queue),
            Field("filters", "Only jobs with these headers", lines, "area", hint=HINT),
        ],
    )


def filters_of(text: str) -> dict[str, str]:
    """The filters that were typed. Refused if a line is none."""
    found: dict[str, str] = {}
    for line in filter(None, (one.strip() for one in text.splitlines())):
        name, sign, glob = line.partition("=")
        if not sign or not name.strip() or not glob.strip():
            raise Refused(f"{clip(line)} is no filter: write HEADER=PATTERN.")
        found[name.strip()] = glob.strip()
    return found


async def subscribe(ask: Ask) -> Outcome:
    """Subscribes it, at any node."""
    topic, queue = ask.word("topic"), ask.word("queue")
    if not topic or not queue:
        raise Refused("A subscription has a topic and a queue.")
    filters = filters_of(ask.word("filters"))
    changed = await any_client(ask).topic_subscribe(topic, queue, filters)
    ask.site.watch.topics.expire()
    came = "is subscribed to" if changed else "was so subscribed already to"
    about = f"{queue} to {topic}" + (f", {shown_filters(filters)}" if filters else "")
    return Outcome(f"{clip(queue)} {came} {clip(topic)}.", "/topics", about=about)


async def propose_unsubscribe(ask: Ask) -> Proposal:
    """[O14] No more jobs of the topic for that queue (O14.33)?"""
    row = await topic_named(ask)
    followers = [f"It has the filters {shown_filters(row.filters)}."] if row.filters else []
    return Proposal(
        "unsubscribe",
        f"Unsubscribe {clip(row.queue)} from {clip(row.topic)}?",
        "Unsubscribe",
        "Unsubscribe",
        f"{row.queue} from {row.topic}",
        [
            f"{row.queue} gets no more jobs of {row.topic}. Those that are there stay.",
            *followers,
            "What is added to the topic meanwhile does not come later.",
        ],
        [("topic", row.topic), ("queue", row.queue)],
        is_danger=True,
    )


async def unsubscribe(ask: Ask) -> Outcome:
    """Ends it, at any node."""
    row = await topic_named(ask)
    was_there = await any_client(ask).topic_unsubscribe(row.topic, row.queue)
    ask.site.watch.topics.expire()
    came = "is unsubscribed from" if was_there else "was not subscribed to"
    return Outcome(f"{clip(row.queue)} {came} {clip(row.topic)}.", "/topics")
