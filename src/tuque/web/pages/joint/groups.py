"""Groups of jobs: which are there, how far is each, how did its children end? And their cancel."""

from __future__ import annotations

from typing import Any, Final, cast, get_args

from tuque.client.commands.groups import GroupChild, JobGroup
from tuque.clusterview.queues import PAGE, Part, fits, tube_of
from tuque.clusterview.work import (
    CALLED,
    Children,
    ChildrenFound,
    ChildState,
    GroupRow,
    children_of,
    counts,
    group_of,
)
from tuque.web.deeds.proposal import Outcome, Proposal, Refused
from tuque.web.pages.change_rest import silent_home
from tuque.web.show.text import link, plural, tail_id
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
            **(told(found, children) if one else {}),
        },
        200 if one is not None or ask.view.old else 404,
    )


def told(found: ChildrenFound, children: Children) -> dict[str, Any]:
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
