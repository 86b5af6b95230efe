"""Dead letters: what failed for good, why, may it be tried again? And their retry and removal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from tuque.clusterview.dead_letters import Group, Letter, Sorted, Wanted, by_node
from tuque.clusterview.figures import DEAD
from tuque.clusterview.nodes import Nodes
from tuque.errors import Duplicate
from tuque.web.actions import (
    TYPED_FROM,
    Field,
    Long,
    NotYet,
    Outcome,
    Proposal,
    Refused,
)
from tuque.web.show.charts import spark
from tuque.web.show.text import link, plural, span
from tuque.web.site import Ask, Page, shared

# ---- Dead letters back to work, or removed: those of groups, a selection, or all that match


AT_ONCE = 100  # letters a call: a page of progress


def proposal(
    letters: list[Letter], is_delete: bool, warning: str, hidden: list[tuple[str, str]]
) -> Proposal:
    """What the dialog asks about these letters."""
    count = len(letters)
    origins = sorted({one.row.origin for one in letters})
    queues = sorted({one.queue for one in letters})
    reasons = sorted({one.reason for one in letters})
    about = reasons[0] if len(reasons) == 1 else f"{plural(len(reasons), 'reason')}"
    about = f"{', '.join(queues)}: {about}"
    jobs = plural(count, "job")
    if is_delete:
        return Proposal(
            "delete-dead",
            f"Delete {jobs}?",
            f"Delete {count:,}",
            "Delete",
            about,
            [
                f"{jobs} will be gone for good, with body and reason.",
                "Jobs that die while this runs are left out.",
                "This cannot be undone.",
            ],
            hidden,
            count=count,
            is_danger=True,
            typed=queues[0] if count > TYPED_FROM and queues else "",
        )
    return Proposal(
        "retry-dead",
        f"Retry {jobs}?",
        f"Retry {count:,}",
        "Retry",
        about,
        [
            f"They go back to {', '.join(origins) or 'their queues'} under their ids.",
            "They start again with their first attempt.",
            "Jobs that die while this runs are left out.",
        ],
        hidden,
        [Field("to", "Into another queue (empty: where they came from)")],
        count=count,
        warning=warning,
    )


def work(
    nodes: Nodes, letters: list[Letter], is_delete: bool, to: str
) -> Callable[[Long], Awaitable[None]]:
    """The action itself, page by page."""

    async def run(action: Long) -> None:
        shares = by_node(letters, nodes.up())
        for (id, queue), ids in shares.items():
            client = nodes.known[id].client
            for at in range(0, len(ids), AT_ONCE):
                if action.is_stopped:
                    return
                page = ids[at : at + AT_ONCE]
                if is_delete:
                    action.done += await client.dead_purge(queue, ids=page)
                else:
                    with contextlib.suppress(Duplicate):  # another task has its unique key
                        action.done += await client.dead_replay(queue, ids=page, to=to or None)
                action.seen += len(page)
        action.seen = action.total  # those of silent nodes are refused

    return run


# ---- dead


GROUPS_MAX: Final = 100
CHIPS: Final = 8
SHOWN: Final = 10
ALL_SHOWN: Final = 200
RECENT_S: Final = 120.0
COUNTED_S: Final = 3.0  # a count that is older says so
HOUR_S: Final = 3600.0
BUCKETS: Final = 60


class GroupRow(msgspec.Struct):
    """A group as a row shows it."""

    group: Group
    spark: Any
    kind: str
    cause: str


def wanted_of(ask: Ask) -> Wanted:
    """The filter of the address or of a form."""
    queue = ask.word("queue")
    if queue and not queue.endswith(DEAD) and queue not in graves(ask):
        known = ask.view.queues.get(queue)
        queue += "" if known is not None and known.type else DEAD
    return Wanted(
        queue,
        ask.word("task"),
        ask.word("text"),
        tuple(ask.many.get("group", [])),
        tuple(ask.many.get("id", [])),
    )


def graves(ask: Ask) -> list[str]:
    """The queues and tubes that keep dead letters."""
    return sorted(one.name for one in [*ask.view.graves, *ask.view.tubes_with_letters])


async def dead(ask: Ask) -> Page:
    """Which jobs died, why, and may they be tried again?"""
    wanted = msgspec.structs.replace(wanted_of(ask), groups=(), ids=())
    reading = await ask.site.graves.of(graves(ask))
    found = Sorted([], 0) if reading is None else reading.meant(wanted)
    groups = found.groups
    opened = ask.word("group")
    every = ask.view.dead if reading is None else len(reading.letters)
    open_group = next((one for one in groups if one.key == opened), None)
    return Page(
        "dead",
        {
            **shared(ask, "dead"),
            "rows": [row_of(one) for one in groups[:GROUPS_MAX]],
            "group_count": len(groups),
            "count": found.count,
            "ago_s": time.time() - reading.at_s if reading else 0.0,
            "old_s": COUNTED_S,
            "every": every,
            "dead_count": every,
            "read": ask.site.graves.seen if reading is None else None,
            "tasks": reading.tasks[:CHIPS] if reading else [],
            "queues": reading.queues[:CHIPS] if reading else [],
            "queue_count": len(reading.queues) if reading else len(ask.view.graves),
            "wanted": wanted,
            "open_group": open_group,
            "shown": open_group.newest(ALL_SHOWN if ask.word("all") else SHOWN)
            if open_group
            else [],
            "largest": groups[0].count if groups else 0,
            "filter": filter_words(wanted),
        },
    )


def filter_words(wanted: Wanted) -> list[tuple[str, str]]:
    """A filter as words of an address."""
    words = (("queue", wanted.queue), ("task", wanted.task), ("text", wanted.text))
    return [(name, value) for name, value in words if value]


def row_of(group: Group) -> GroupRow:
    """A group with its last hour, and whether its cause goes on."""
    now_s = time.time()
    buckets = [0.0] * BUCKETS
    for one in group.letters:
        ago_s = now_s - one.row.last_failure_ms / 1000
        if 0 <= ago_s < HOUR_S:
            buckets[BUCKETS - 1 - int(ago_s / HOUR_S * BUCKETS)] += 1
    quiet_s = max(0.0, now_s - group.latest_s)
    kind, cause = ("bad", "persists") if quiet_s < RECENT_S else ("ok", f"quiet {span(quiet_s)}")
    if RECENT_S <= quiet_s < 10 * RECENT_S:
        kind, cause = "warn", f"{span(quiet_s)} ago"
    return GroupRow(group, spark(buckets, "s4", 3.0), kind, cause)


# Actions


async def proposed(ask: Ask, is_delete: bool) -> tuple[Proposal, list[Letter]]:
    """What is asked about the letters that are meant now."""
    wanted = wanted_of(ask)
    reading = await ask.site.graves.now(graves(ask), ask.view.dead)
    if reading is None:
        raise NotYet(f"{ask.site.graves.seen:,} of about {ask.view.dead:,} dead letters are read.")
    letters = reading.chosen(wanted)
    if not letters:
        raise Refused("No such dead letter is there any more.")
    hidden = [("group", one) for one in wanted.groups]
    hidden += [("id", one) for one in wanted.ids] + filter_words(wanted)
    latest_s = max((one.row.last_failure_ms for one in letters), default=0) / 1000
    ago_s = time.time() - latest_s
    warning = ""
    if letters and ago_s < RECENT_S:
        warning = (
            f"The cause persists: the latest died {span(max(0.0, ago_s))} ago. Many may die again."
        )
    asked = proposal(letters, is_delete, warning, hidden)
    if time.time() - reading.at_s > COUNTED_S:
        asked.follows.append(f"They were counted {span(time.time() - reading.at_s)} ago.")
    return asked, letters


async def propose_retry(ask: Ask) -> Proposal:
    """Put dead letters back to work?"""
    return (await proposed(ask, False))[0]


async def propose_delete(ask: Ask) -> Proposal:
    """Remove dead letters?"""
    return (await proposed(ask, True))[0]


async def retry(ask: Ask) -> Outcome:
    """Puts them back to work."""
    return await change(ask, False)


async def delete(ask: Ask) -> Outcome:
    """Removes them."""
    return await change(ask, True)


async def change(ask: Ask, is_delete: bool) -> Outcome:
    """Begins the action; it is logged when it has ended."""
    asked, letters = await proposed(ask, is_delete)
    if not letters:
        raise Refused("No such dead letter is there any more.")
    perform = work(ask.site.watch.nodes, letters, is_delete, ask.word("to"))

    async def run(action: Long) -> None:
        try:
            await perform(action)
        finally:
            ask.site.graves.expire()  # pages read what is left

    what = "Deleting" if is_delete else "Retrying"
    ask.site.running.begin(ask.session.name, what, asked.about, len(letters), run)
    words = dict(filter_words(wanted_of(ask)))
    note = f"{what} {plural(len(letters), 'job')}."
    return Outcome(note, link("dead", **words), len(letters), is_long=True)
