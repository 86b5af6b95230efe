"""Topics: which queues get what is added to each, and how much came? And their subscriptions."""

from __future__ import annotations

from tuque.aio import Client
from tuque.clusterview.queues import PAGE, Part, fits
from tuque.clusterview.work import SubscriptionRow
from tuque.web.deeds.proposal import Field, Outcome, Proposal, Refused
from tuque.web.show.text import clip
from tuque.web.site import Ask, Page, shared

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


async def named(ask: Ask) -> SubscriptionRow:
    """The subscription that is meant. Refused if no node knows it."""
    ask.site.watch.topics.expire()
    for row in await ask.site.watch.topics.every():
        if (row.topic, row.queue) == (ask.word("topic"), ask.word("queue")):
            return row
    raise Refused("No node knows this subscription.")


def said(filters: dict[str, str]) -> str:
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
    about = f"{queue} to {topic}" + (f", {said(filters)}" if filters else "")
    return Outcome(f"{clip(queue)} {came} {clip(topic)}.", "/topics", about=about)


async def propose_unsubscribe(ask: Ask) -> Proposal:
    """[O14] No more jobs of the topic for that queue (O14.33)?"""
    row = await named(ask)
    followers = [f"It has the filters {said(row.filters)}."] if row.filters else []
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
    row = await named(ask)
    was_there = await any_client(ask).topic_unsubscribe(row.topic, row.queue)
    ask.site.watch.topics.expire()
    came = "is unsubscribed from" if was_there else "was not subscribed to"
    return Outcome(f"{clip(row.queue)} {came} {clip(row.topic)}.", "/topics")
