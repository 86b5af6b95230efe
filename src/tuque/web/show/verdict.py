"""What needs somebody, worst first: rules over figures, each with its evidence and its remedy.

Decides what counts as failing or full. A cause is named only where a rule with its figures knows
it; what is not known is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.clusterview.figures import NodeFacts, Queue, View
from tuque.clusterview.history import MINUTE, Points
from tuque.clusterview.queues import BEHIND_S, NEAR_S, Behind
from tuque.clusterview.work import WorkerRow
from tuque.web.show.text import clip, fits, link, num, plural, rate, span

# ---- Why a queue is behind: a rule over its figures, and what is not known while a node is silent.
#
# Decides over which time rates are taken: a minute, or ten where few jobs come and go.


BEFORE: Final = 10 * MINUTE  # points with which the last minute is compared
FEW: Final = 20  # jobs in a minute; of fewer a rate is that of ten minutes
MORE: Final = 1.05  # times as much is more


def cause(queue: Queue, points: Points, silent: Sequence[str] = ()) -> str:
    """[O14] Why a queue is behind, on all pages (O14.7). `silent` are the ids of silent nodes."""
    words = change(points) or balance(queue, points)
    if not silent:
        return words
    names = ", ".join(id[:8] for id in silent)
    verb = "does" if len(silent) == 1 else "do"
    if queue.work or queue.came_rate or queue.done_rate:
        return f"{words}; {names} {verb} not answer, so what comes and ends there is not known"
    return f"{names} {verb} not answer, so it is not known who works on its jobs"


def change(points: Points) -> str:
    """What is twice what it was in the ten minutes before; empty if nothing is, or that is new."""
    if len(points) <= 2 * MINUTE:
        return ""
    before = Points(points.at_s, {k: v[:-MINUTE] for k, v in points.values.items()}, points.step_s)
    now_s, then_s = points.mean_s("work-ms", "worked"), before.mean_s("work-ms", "worked", BEFORE)
    if now_s and then_s and now_s >= 2 * then_s:
        return f"its jobs take {span(now_s)}, up from {span(then_s)}"
    came, came_before = points.rate("added"), before.rate("added", BEFORE)
    if points.counted("added") >= FEW and came and came_before and came >= 2 * came_before:
        return f"{rate(came)} jobs come each second, up from {rate(came_before)}"
    return ""


def balance(queue: Queue, points: Points) -> str:
    """What comes, and what is finished of it."""
    came, done = pace(queue, points)
    if not done and not came:
        if queue.work:
            are = plural(queue.work, "job is", "jobs are")
            return f"{are} at work and none has ended lately; no other one is taken"
        return "no job was finished lately, and none is at work"
    factor, unit = (1, "second") if max(came, done) >= 1 else (60, "minute")
    comes, ends = rate(came * factor), rate(done * factor)
    if came > done * MORE:
        return f"workers finish {ends} of the {comes} jobs that come each {unit}"
    if done > came * MORE:
        return (
            f"more came earlier than were finished; now it catches up: {comes} jobs come each "
            f"{unit}, {ends} are finished"
        )
    return f"as many jobs are finished as come, {ends} each {unit}, so {num(queue.ready)} stay late"


def pace(queue: Queue, points: Points) -> tuple[float, float]:
    """Jobs that come and that are finished, per second: of points, or of the row while few are."""
    if len(points) < MINUTE:
        return queue.came_rate, queue.done_rate
    is_few = max(points.counted("added"), points.counted("acked")) < FEW
    over = BEFORE if is_few else MINUTE
    return points.rate("added", over) or 0.0, points.rate("acked", over) or 0.0


# ---- What to do about a queue that is behind: workers to start, slots to add, or how long to wait.
#
# Decides when figures hold still for long enough to say how many slots. Asks nobody.


STEADY: Final = 4 * MINUTE  # points over which slots are counted; BEFORE if few jobs come
NAMED: Final = 3  # quiet workers


def needed(points: Points, over: int = MINUTE) -> float | None:
    """Slots that keep up with what comes: added/s times the mean work time of the last minute.

    If few ended in it, that of all the points: work may take longer since a deploy.
    """
    came = points.rate("added", over)
    lately = MINUTE if points.counted("worked") >= FEW else over
    work_s = points.mean_s("work-ms", "worked", lately)
    return came * work_s if came is not None and work_s is not None else None


def steady(points: Points) -> int:
    """[O14] Over how many points the halves are alike, but for chance (O14.10); 0 if they are not.

    Jobs that come by chance differ by more than three times the root of their number in one of
    400 cases.
    """
    over = min(len(points), STEADY)
    if points.counted("added", over) < over / MINUTE * FEW:
        over = min(len(points), BEFORE)
    half = over // 2
    if half < MINUTE:
        return 0
    late, both = points.counted("added", half), points.counted("added", 2 * half)
    slack = max(3 * both**0.5, both / 4)
    return 2 * half if abs(both - 2 * late) <= slack else 0


def remedies(queue: Queue, points: Points) -> list[str]:
    """[O14] What to do about a queue that is behind (O14.10)."""
    came, done = pace(queue, points)
    over = steady(points)
    if done > came * MORE:
        if not over:
            return ["Wait: more is finished than comes"]
        return [f"Wait: it is up to date in about {span(queue.ready / (done - came))}"]
    if came <= done * MORE:
        return ["Add workers, or find out why jobs take long"]
    slots, busy = needed(points, over) if over else None, points.rate("at-work")
    if slots is None or busy is None:
        return ["Add workers; how many slots is known when jobs come evenly for some minutes"]
    more = round(slots - busy * points.step_s)
    if more < 1:
        return ["Add workers, or find out why jobs take long"]
    return [f"Add about {plural(more, 'slot')} ({round(slots)} in all) to stop the growth"]


def in_place_of(queue: str, workers: list[WorkerRow]) -> str:
    """[O14] What to do if workers of a queue take no more jobs (O14.10); empty if all do."""
    quiet = [one for one in workers if one.state == "quiet" and queue in one.queues]
    if not quiet:
        return ""
    names = ", ".join(one.name for one in quiet[:NAMED])
    if len(quiet) > NAMED:
        names += f" and {len(quiet) - NAMED} more"
    slots = plural(sum(one.slots for one in quiet), "slot takes", "slots take")
    if len(quiet) == 1:
        return f"Start a worker in the place of {names}: it is quiet, its {slots} no more jobs"
    return f"Start workers in the place of {names}: they are quiet, their {slots} no more jobs"


# ---- verdict


Kind: TypeAlias = Literal["bad", "gone", "warn", "pause", "ok", "idle"]

NOBODY_S: Final = 10.0
FULL: Final = 75.0  # percent of maxmemory: from there on ADDJOB is refused
WAS_LATE: Final = "Was behind"
HOME_AWAY: Final = "no leader"
SOON_S: Final = 3600.0


class Notice(msgspec.Struct):
    """One thing that needs somebody; `since_s` is unix s, 0 where that is not known.

    `is_seen`: it began then; else then or earlier.
    """

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
    lag_s: float = 0.0  # what made it so began at least so long before
    queue: str = ""
    is_seen: bool = True

    @property
    def is_late(self) -> bool:
        """Whether it says that a queue is behind."""
        return self.says == "is behind"


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
        return State("gone", "No consumers")
    if queue.oldest_s > BEHIND_S:
        return State("bad", "Behind")
    if points.counted("dead") > 0:
        return State("bad", "Failing")
    if not queue.ready and not queue.came_rate and not queue.work:
        return State("idle", "Idle")
    return State("ok", "Keeps up")


def in_part(state: State, was_late: bool) -> State:
    """[O14] A state that is known of some nodes only (O14.11)."""
    if state.word not in ("Keeps up", "Idle"):
        return state
    return State("warn", WAS_LATE) if was_late else State(state.kind, f"≈ {state.word}")


def is_left(queue: Queue, points: Points) -> bool:
    """Whether nobody takes its jobs: no client waits, none is at work, none was delivered."""
    if queue.blocked or queue.oldest_s < NOBODY_S or queue.work:
        return False
    if len(points):
        return not points.counted("delivered")
    return not queue.done_rate


def notices(
    view: View,
    by_queue: dict[str, Points],
    memory: dict[str, Points],
    places: dict[str, str],
    behind: Behind,
) -> list[Notice]:
    """All that needs somebody, worst first. `places` are the silent nodes' addresses by id."""
    found = [silent(view, places)] if places else no_leader(view)
    found += [one for facts in view.received for one in of_node(facts, memory.get(facts.id))]
    for queue in view.work:
        found += of_queue(view, queue, by_queue.get(queue.name, Points()), behind)
    found.sort(key=lambda one: (one.rank, -weight(view, one), one.subject))
    return found


def weight(view: View, one: Notice) -> float:
    """Among notices of one rank the oldest queue comes first."""
    queue = view.queues.get(one.queue)
    return queue.oldest_s if queue else 0.0


def silent(view: View, places: dict[str, str]) -> Notice:
    """Nodes that do not answer."""
    names = ", ".join(id[:8] for id in places)
    return Notice(
        "gone",
        0,
        names,
        "does not answer" if len(places) == 1 else "do not answer",
        ", ".join(places.values()),
        without(view, set(places)),
        ["See whether its machine and its process run"]
        if len(places) == 1
        else ["See whether their machines and processes run"],
        link("cluster"),
        "Cluster",
    )


def without(view: View, away: set[str]) -> str:
    """[O14] What is known of jobs and tubes while these nodes do not answer (O14.2)."""
    if not view.facts or not {one.id for one in view.facts} - away:
        return "the console reaches no node; whether jobs run there is not known"
    one = len(away) == 1
    it = "it" if one else "them"
    tubes = homeless(view)
    words = f"the console cannot reach {it}; jobs with copies elsewhere continue"
    if tubes:
        back = "it is back" if one else "they are back"
        has, hands = ("has", "it hands") if tubes == 1 else ("have", "they hand")
        words += f"; {plural(tubes, 'tube')} {has} no leader: {hands} out nothing until {back}, or"
        words += f" {'it has' if tubes == 1 else 'they have'} a new leader: Tubes shows how"
    return words


def homeless(view: View) -> int:
    """[O14] How many tubes have no leader now, as the nodes say that answer (O14.2)."""
    received = [one for one in view.facts if one.id not in view.old]
    return max((one.number("tubes_homeless") for one in received), default=0)


def no_leader(view: View) -> list[Notice]:
    """[O14] Tubes without a leader while all nodes answer (O14.2)."""
    count = homeless(view)
    if not count:
        return []
    has = "has" if count == 1 else "have"
    because = f"tubes_homeless is {count}: the nodes do not reach its leader, or it waits for votes"
    if count > 1:
        because = f"tubes_homeless is {count}: the nodes do not reach their leaders, or these wait"
        because += " for votes"
    do = ["See State on the page Tubes, and who talks to whom on the page Cluster"]
    name = plural(count, "tube")
    return [Notice("bad", 1, name, f"{has} no leader", "", because, do, link("tubes"), "Tubes")]


def of_node(facts: NodeFacts, points: Points | None) -> list[Notice]:
    """What a node says of its journal, its cluster and its memory."""
    found = []
    name, page = facts.id[:8], link("cluster")
    if facts.word("aof_last_write_status") not in ("", "ok"):
        because = f"journal-fails: {facts.word('journal_error')}"
        do = ["Make room on its disk, or see its log: the node continues automatically"]
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
    counted = facts.number("used_memory") - facts.number("mem_not_counted_for_evict")
    share = 100.0 * counted / most
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


def of_queue(view: View, queue: Queue, points: Points, behind: Behind) -> list[Notice]:
    """[O14] What is wrong with a queue: one notice of its delay, one of its dead (O14.18)."""
    found: list[Notice] = []
    if queue.is_dead:
        return found
    page = link("queue", name=queue.name) if fits(queue.name) else link("queues")
    name = clip(queue.name)
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
        notice = Notice("gone", 2, name, "has no consumers", much, because, [], page, "Open")
        notice.do = [f"Start a worker for {name}"]
        notice.since_s = view.clock_s - queue.oldest_s
        found.append(notice)
    elif queue.oldest_s > BEHIND_S:
        much = f"{waits}"
        why = cause(queue, points, sorted(view.old))
        notice = Notice("bad", 1, name, "is behind", much, why, [], page, "Open")
        notice.do = remedies(queue, points)
        since = behind.of(queue, points, view)
        notice.since_s, notice.is_seen = since.at_s, since.is_seen
        notice.lag_s = BEHIND_S - NEAR_S
        found.append(notice)
    died = points.counted("dead")
    if died:
        much = f"{plural(int(died), 'job')} in a minute"
        because = f"{rate(points.rate('failed'))} of its attempts fail each second"
        go = link("dead", queue=queue.name) if fits(queue.name) else link("dead")
        do = ["See the reasons among its dead letters"]
        notice = Notice("bad", 3, name, "has dead letters", much, because, do, go, "Dead letters")
        found.append(notice)
    for one in found:
        one.queue = queue.name
    return found
