"""What needs somebody, worst first: rules over figures, each with its evidence.

Decides what counts as behind, failing or full. A cause is named only where a rule with its figures
knows it.
"""

from __future__ import annotations

import time
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.web.read.figures import NodeFacts, Queue, View
from tuque.web.read.history import MINUTE, Points
from tuque.web.show.text import brief, fits, link, num, plural, rate, span

Kind: TypeAlias = Literal["bad", "gone", "warn", "pause", "ok", "idle"]

BEHIND_S: Final = 60.0
LEAST: Final = 0.1  # jobs/s below which no rate explains anything
NOBODY_S: Final = 10.0
FULL: Final = 75.0  # percent of maxmemory: from there on ADDJOB is refused
SOON_S: Final = 3600.0
BEFORE: Final = 10 * MINUTE  # points with which the last minute is compared


class Notice(msgspec.Struct):
    """One thing that needs somebody; `since_s` is unix s, 0 where that is not known."""

    kind: Kind
    rank: int
    subject: str
    says: str
    much: str
    because: str
    do: list[str]
    page: str
    go: str
    since_s: float = 0.0
    queue: str = ""


class State(msgspec.Struct, frozen=True):
    """The state of a queue in a word."""

    kind: Kind
    word: str


def state_of(queue: Queue, points: Points) -> State:
    """How a row of a table shows a queue."""
    if queue.pause != "none":
        return State("pause", f"Paused {queue.pause}" if queue.pause != "all" else "Paused")
    if queue.is_dead:
        return State("idle", "Dead letters")
    if queue.ready and is_left(queue, points):
        return State("gone", "Nobody takes")
    if queue.oldest_s > BEHIND_S:
        return State("bad", "Behind")
    if points.counted("dead") > 0:
        return State("bad", "Failing")
    if not queue.ready and not queue.came_rate and not queue.work:
        return State("idle", "Idle")
    return State("ok", "Keeps up")


def is_left(queue: Queue, points: Points) -> bool:
    """Whether nobody takes its jobs: no client waits, none is at work, none was delivered."""
    if queue.blocked or queue.oldest_s < NOBODY_S or queue.work:
        return False
    if len(points):
        return not points.counted("delivered")
    return not queue.done_rate


def notices(
    view: View, by_queue: dict[str, Points], memory: dict[str, Points], places: dict[str, str]
) -> list[Notice]:
    """All that needs somebody, worst first. `places` are the silent nodes' addresses by id."""
    found = [silent(places)] if places else []
    found += [one for facts in view.facts for one in of_node(facts, memory.get(facts.id))]
    for queue in view.work:
        found += of_queue(queue, by_queue.get(queue.name, Points()))
    found.sort(key=lambda one: (one.rank, -weight(view, one), one.subject))
    return found


def weight(view: View, one: Notice) -> float:
    """Among notices of one rank the oldest queue comes first."""
    queue = view.queues.get(one.queue)
    return queue.oldest_s if queue else 0.0


def silent(places: dict[str, str]) -> Notice:
    """Nodes that do not answer."""
    names = ", ".join(id[:8] for id in places)
    return Notice(
        "gone",
        0,
        names,
        "does not answer" if len(places) == 1 else "do not answer",
        ", ".join(places.values()),
        "the console cannot reach it; jobs with copies elsewhere go on",
        ["See whether its machine and its process run"],
        link("cluster"),
        "Cluster",
    )


def of_node(facts: NodeFacts, points: Points | None) -> list[Notice]:
    """What a node says of its journal, its cluster and its memory."""
    found = []
    name, page = facts.id[:8], link("cluster")
    if facts.word("aof_last_write_status") not in ("", "ok"):
        because = f"aof_last_write_status is {facts.word('aof_last_write_status')}"
        do = ["See the log of the node, and whether its disk is full"]
        found.append(
            Notice("bad", 0, name, "cannot write its journal", "", because, do, page, "Cluster")
        )
    if facts.word("cluster_state") == "conflict":
        do = ["See cluster_state in docs/cluster.md"]
        found.append(
            Notice(
                "bad",
                0,
                name,
                "has a conflict",
                "",
                "cluster_state is conflict",
                do,
                page,
                "Cluster",
            )
        )
    if facts.number("balance"):
        do = ["Keep the journal, and report it"]
        because = f"balance is {facts.number('balance')}"
        found.append(
            Notice("bad", 0, name, "has lost count of jobs", "", because, do, page, "Cluster")
        )
    found += memory_of(facts, points)
    return found


def memory_of(facts: NodeFacts, points: Points | None) -> list[Notice]:
    """A node whose memory is full, or soon will be."""
    most = facts.number("maxmemory")
    if not most:
        return []
    share = 100.0 * facts.number("used_memory") / most
    left_s = full_in_s(points, most)
    if share < FULL and (left_s is None or left_s > SOON_S):
        return []
    much = f"{share:.0f} %" if share >= FULL else f"{share:.0f} %, {FULL:.0f} % in {span(left_s)}"
    says = "is full" if share >= FULL else "fills its memory"
    do = ["Add workers, or pause the input of the queue that grows", "Or raise maxmemory"]
    because = "from 75 % of maxmemory on ADDJOB is refused there"
    kind: Kind = "bad" if share >= FULL else "warn"
    rank = 1 if share >= FULL else 4
    return [Notice(kind, rank, facts.id[:8], says, much, because, do, link("cluster"), "Cluster")]


def full_in_s(points: Points | None, most: int) -> float | None:
    """When 75 % are reached at the growth of the last ten minutes; None if it does not grow."""
    level = points.level("memory")[-BEFORE:] if points is not None else []
    if points is None or len(level) < MINUTE:
        return None
    per_s = (level[-1] - level[0]) / ((len(level) - 1) * points.step_s)
    left = most * FULL / 100 - level[-1]
    return left / per_s if per_s > most / 1e6 and left > 0 else None


def of_queue(queue: Queue, points: Points) -> list[Notice]:
    """What is wrong with a queue: one notice of its delay, one of its dead."""
    found = []
    page = link("queue", name=queue.name) if fits(queue.name) else link("queues")
    name = brief(queue.name)
    waits = f"{num(queue.ready)} wait"
    if queue.pause != "none" and queue.ready:
        which = "" if queue.pause == "all" else f", {queue.pause}"
        much = f"{waits}, oldest {span(queue.oldest_s)}"
        notice = Notice("pause", 5, name, f"is paused{which}", much, "", [], page, "Open")
        notice.because = "somebody paused it; it stays so until it is resumed"
        found.append(notice)
    elif queue.ready and is_left(queue, points):
        much = f"{waits}, oldest {span(queue.oldest_s)}"
        because = "no client waits for its jobs, and none was delivered in the last minute"
        notice = Notice("gone", 2, name, "is taken by nobody", much, because, [], page, "Open")
        notice.do = [f"Start a worker for {name}"]
        notice.since_s = time.time() - queue.oldest_s
        found.append(notice)
    elif queue.oldest_s > BEHIND_S:
        much = f"{waits}"
        notice = Notice("bad", 1, name, "is behind", much, cause(points), [], page, "Open")
        notice.do = remedies(queue, points)
        since_s = points.above_since_s("oldest-ms", BEHIND_S * 1000)
        notice.since_s = since_s if since_s is not None else time.time() - queue.oldest_s
        found.append(notice)
    died = points.counted("dead")
    if died:
        much = f"{plural(int(died), 'job')} in a minute"
        because = f"{rate(points.rate('failed'))} of its attempts fail each second"
        go = link("dead", queue=queue.name) if fits(queue.name) else link("dead")
        do = ["See the reasons among its dead letters"]
        notice = Notice("bad", 3, name, "gives up jobs", much, because, do, go, "Dead letters")
        found.append(notice)
    for one in found:
        one.queue = queue.name
    return found


def cause(points: Points) -> str:
    """Why a queue is behind, if the figures say it."""
    if len(points) < 3:
        return "cause unknown: there are no points of it yet"
    before = Points(points.at_s, {k: v[:-MINUTE] for k, v in points.values.items()}, points.step_s)
    now_s, then_s = points.mean_s("work-ms", "worked"), before.mean_s("work-ms", "worked", BEFORE)
    if now_s and then_s and now_s >= 2 * then_s:
        return f"its jobs take {span(now_s)}, before they took {span(then_s)}"
    came, came_before = points.rate("added"), before.rate("added", BEFORE)
    if came and came_before and came >= 2 * came_before:
        return f"{rate(came)} jobs come each second, before it were {rate(came_before)}"
    done = points.rate("acked")
    if came and done is not None and came - done > LEAST:
        return f"workers finish {rate(done)} of the {rate(came)} jobs that come each second"
    return "cause unknown"


def needed(points: Points) -> float | None:
    """Slots that keep up with what comes: added/s times the mean work time."""
    came, work_s = points.rate("added"), points.mean_s("work-ms", "worked")
    return came * work_s if came is not None and work_s is not None else None


def remedies(queue: Queue, points: Points) -> list[str]:
    """What to do about a queue that is behind."""
    slots, busy = needed(points), points.counted("at-work", 1)
    found = []
    if slots and busy and slots > busy:
        more = max(1, round(slots - busy))
        found.append(f"Add about {plural(more, 'slot')} ({round(slots)} in all) to stop the growth")
    came, done = points.rate("added"), points.rate("acked")
    if came is not None and done and done - came > 0.1:
        wait = "Or wait" if found else "Wait"
        found.append(f"{wait}: it is up to date in about {span(queue.ready / (done - came))}")
    return found or ["Add workers, or find out why jobs take long"]
