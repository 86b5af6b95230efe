"""Flaws of tubes of type `tasks`, enabled by switches.py (SPEC T40 to T48), and their plans."""

from __future__ import annotations

from typing import Any, Final

from sim.engine.plan import Op, Plan
from sim.flaws.homes import copies_are_not_awaited, order
from sim.flaws.switches import Flaw, Patch, everywhere
from sim.plans.task_swarm import add_groups, add_schedule, add_topic, task_plan
from tuque.core import topics
from tuque.core.life import cancel_update
from tuque.core.model.job import Job, Update
from tuque.core.model.task import READY, TAKEN, Task
from tuque.core.model.work import Life, run_of
from tuque.core.node.node import Node
from tuque.tubes import groups, schedules
from tuque.tubes.entries.group import OPEN, ChildEntry, GroupEntry
from tuque.tubes.leadership import load, restore
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.limits import Rate
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.policies.partitions import Ring
from tuque.tubes.policies.unique import Uniques
from tuque.tubes.work import transitions


def edits_do_nothing() -> list[Patch]:
    """T48.11: UPDATEJOB of a task says OK, and the task is as it was."""

    sound = cancel_update.update_job

    def update_job(n: Node, job: Job, update: Update) -> None:
        if not isinstance(job, Task):
            sound(n, job, update)

    return everywhere(sound, update_job)


def places_are_not_counted() -> list[Patch]:
    """A new leader knows of no places in use."""
    sound = Tasks.held

    def held(self: Tasks, task: Task) -> None:
        sound(self, task)
        for limit in self.limits.values():
            limit.used = 0

    return [(Tasks, "held", held)]


def buckets_begin_full() -> list[Patch]:
    """A new leader allows a second burst."""

    def begin_empty(self: Tasks, now_ms: int) -> None:
        self.now_ms = now_ms

    return [(Tasks, "begin_empty", begin_empty)]


def turns_do_not_end() -> list[Patch]:
    """A group goes on as long as it has tasks."""

    def spent(self: Ring, line: Any) -> None:
        if line.count == 0:
            self.settle(line)

    return [(Ring, "spent", spent)]


def unique_keys_stay_behind() -> list[Patch]:
    """A new leader does not know which unique keys its tasks have."""
    sound_load, sound_joined = restore.take_in, Uniques.joined

    def take_in(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
        Uniques.joined = nobody_joins  # type: ignore[method-assign] # that is the flaw
        sound_load(n, t, tube, task)
        Uniques.joined = sound_joined  # type: ignore[method-assign] # as above

    def nobody_joins(self: Uniques, task: Task, now_ms: int) -> None:
        return

    return everywhere(sound_load, take_in)


def takes_stay_behind() -> list[Patch]:
    """A new leader hands out again what workers have."""
    sound = load.settle_owners

    def settle_owners(n: Node, t: Tubes, tube: Tube, found: list[Task]) -> None:
        sound(n, t, tube, found)
        for task in tube.copies.values():
            if task.status == TAKEN:
                task.status = READY

    return everywhere(sound, settle_owners)


def alarms_are_not_set() -> list[Patch]:
    """Nobody looks again when the next token of a rate comes."""

    def set_alarm(self: Tasks, rate: Rate, key: bytes, at_ms: int) -> None:
        rate.alarm_ms = at_ms

    return [(Tasks, "set_alarm", set_alarm)]


def takes_are_attempts() -> list[Patch]:
    """Each take counts as an attempt, whether or not it failed."""

    def run_of_take(task: Task, life: Life | None) -> int:
        return run_of(int(task.delivered_count), 1, int(task.token) % transitions.TAKES)

    return everywhere(transitions.run_of_take, run_of_take)


def notes_stay_behind() -> list[Patch]:
    """The instants that a leader has noted are not among the changes that others get."""

    def record_whole(n: Node, tube: Tube, task: Task) -> None:
        return

    return [(schedules, "record_whole", record_whole)]


def instants_are_left_out() -> list[Patch]:
    """A leader begins with the next instant from now on."""
    sound = schedules.plan_of

    def plan_of(tube: Tube, task: Task) -> Any:
        plan = sound(tube, task)
        if plan.fired_epoch not in (0, tube.epoch):
            plan.noted_ms += plan.every_ms
        return plan

    return everywhere(sound, plan_of)


def ends_are_not_noted() -> list[Patch]:
    """A leader does not ask how children end that are not here."""

    def look_at_child(n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry) -> None:
        return

    return everywhere(groups.look_at_child, look_at_child)


def called_too_early() -> list[Patch]:
    """A group whose first child has ended becomes its callback."""
    sound = groups.settle

    def settle(n: Node, t: Tubes, tube: Tube, task: Task, plan: GroupEntry) -> None:
        if plan.state == OPEN and plan.has_callback:
            groups.call_back(n, t, tube, task, plan)
        else:
            sound(n, t, tube, task, plan)

    return everywhere(sound, settle)


def results_are_mixed_up() -> list[Patch]:
    """The result of a child is noted as that of the one before."""
    sound: Any = groups.note_end
    last = [b""]

    def note_end(*args: Any) -> None:
        child = args[-1]
        last.append(child.result or b"")
        if child.result is not None:
            child.result = last[-2]
        sound(*args)

    return everywhere(sound, note_end)


def later_jobs_are_not_recorded() -> list[Patch]:
    """Of a TOPIC ADD the journal gets the first job alone."""
    sound = topics.begin_one

    def begin_one(n: Node, p: Any, x: Any, body: bytes, waiting: Any) -> Any:
        records = n.records
        if x.one.queue != b"topic a":
            n.records = None
        job = sound(n, p, x, body, waiting)
        n.records = records
        return job

    return everywhere(sound, begin_one)


def links_tell_no_topics() -> list[Patch]:
    """A node that comes back does not hear which subscriptions there are."""

    def topics_link_up(n: Node, slot: int) -> None:
        return

    return everywhere(topics.topics_link_up, topics_link_up)


def keyed_tube(
    seed: str, options: dict[str, Any], habits: dict[str, Any], idle_ms: int = 60
) -> Plan:
    """One tube on three nodes, led by the first one, with three producers and four workers."""
    plan = task_plan(seed, 3, 0, 12_000)
    for i in range(3):
        shared: dict[str, Any] = {"tube": "k", "node": i, "for_ms": 9_000}
        made = {"client": f"kp{i}", "retry": [3], "idle_ms": idle_ms, **options, **shared}
        plan.ops.append(Op(1_000 + 200 * i, "task_producer", made))  # the first makes the tube
    for i in range(4):
        shared = {"tube": "k", "node": i % 3, "for_ms": 10_500}
        works = {"client": f"kw{i}", "idle_ms": 5, "timeout": 500, "work_ms": 100, **habits}
        plan.ops.append(Op(1_100 + i, "task_worker", works | shared))
    return plan


def lose_leader(plan: Plan, at_ms: int = 5_000) -> Plan:
    """The first leader ends, and another one is voted for."""
    plan.faults = ["kill"]
    plan.ops.append(Op(at_ms, "crash", {
        "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 4_000,
    }))  # fmt: skip
    return order(plan)


def limits_move(seed: int) -> Plan:
    """Slow workers have all places of a limit when its leader is lost."""
    habits = {"work_ms": 900}
    return lose_leader(keyed_tube(f"limits move {seed}", {"limit": [["two", 2]]}, habits, 400))


def dry_buckets(seed: int) -> Plan:
    """All tokens of a rate are spent when its leader is lost."""
    return lose_leader(keyed_tube(f"dry {seed}", {"rate": [["slow", 3, 12]]}, {"work_ms": 10}, 250))


def unique_moves(seed: int) -> Plan:
    """Many jobs of few unique keys, some of them at work when their leader is lost."""
    options = {"unique": [f"u{i}" for i in range(6)], "on": ["keep", "reject"]}
    return lose_leader(keyed_tube(f"unique moves {seed}", options, {"work_ms": 2_000}))


def long_work(seed: int) -> Plan:
    """Workers that say at times that they work on, when their leader is lost."""
    return lose_leader(keyed_tube(f"long work {seed}", {}, {"work_ms": 2_000}, 700))


def short_times(seed: int) -> Plan:
    """The RETRY of what workers have is over before there is a new leader."""
    options = {"limit": [["one", 1], ["two", 2]], "retry": [1]}
    return lose_leader(keyed_tube(f"short times {seed}", options, {"work_ms": 900}, 250))


def three_groups(seed: int) -> Plan:
    """Three groups with more tasks than workers do."""
    options = {"group": [["a", 1], ["b", 3], ["c", 1]]}
    plan = order(keyed_tube(f"groups {seed}", options, {"work_ms": 150}, 150))
    plan.check_every = 10
    return plan


def given_back(seed: int) -> Plan:
    """Tasks with ATTEMPTS that are delivered, and given back, several times."""
    habits = {"p_release": 0.4, "p_drop": 0.3}
    options = {"attempts": [20], "retry": [1]}
    return order(keyed_tube(f"given back {seed}", options, habits, 300))


def edited(seed: int) -> Plan:
    """Tasks that wait, and somebody who gives them other bodies."""
    plan = keyed_tube(f"edited {seed}", {}, {"work_ms": 20, "p_fail": 0.5}, 300)
    boss = {"client": "kb", "tube": "k", "node": 0, "for_ms": plan.chaos_ms - 3_000}
    plan.ops.append(Op(2_000, "task_boss", boss | {"idle_ms": 40}))
    return order(plan)


def calm_tube(seed: str) -> Plan:
    """A tube with some workers, for schedules and groups."""
    return keyed_tube(seed, {}, {"work_ms": 20}, 2_000)


def schedules_move(seed: int) -> Plan:
    """Schedules whose leader is lost, again and again."""
    plan = calm_tube(f"schedules move {seed}")
    for i, missed in enumerate(("all", "one", "skip")):
        add_schedule(plan, f"s{i}", 1 + 0.25 * i, missed, i)
    for node in (1, 2):
        plan.ops.append(Op(1_000 + 4_000 * node, "crash", {
            "node": node, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 1_500,
        }))  # fmt: skip
    return lose_leader(plan, 3_000)


def groups_move(seed: int) -> Plan:
    """Groups whose leader is lost; children end in all ways, at all nodes."""
    plan = calm_tube(f"groups move {seed}")
    add_groups(plan, 0.3, 0.5, 700)
    return lose_leader(plan)


def topics_cut(seed: int) -> Plan:
    """Jobs for a topic while nodes are cut off and end, in the middle of a turn too."""
    plan = calm_tube(f"topics {seed}")
    add_topic(plan, 60)
    for op in plan.ops:
        if op.kind == "topic_worker":
            op.at_ms += 8_000
            op.args["for_ms"] = 3_000
    plan.ops.append(Op(3_000, "cut", {"a": [1], "b": [0, 2], "for_ms": 3_000}))
    for node in (0, 2):
        plan.ops.append(Op(5_000 + 2_000 * node, "crash", {
            "node": node, "how": "power", "back": "disk", "fuse": 1 + seed % 7, "down_ms": 1_000,
        }))  # fmt: skip
    lose_leader(plan, 9_000)
    plan.faults = ["cut", "kill", "power"]
    return plan


def lost_in_a_cut(seed: int, work_ms: int = 200) -> Plan:
    """The leader is cut off, goes on for a while, and ends."""
    plan = keyed_tube(f"in a cut {seed}", {}, {"work_ms": work_ms}, 120)
    plan.faults = ["cut", "kill"]
    plan.ops.append(Op(5_000, "cut", {"a": [0], "b": [1, 2], "for_ms": 3_000}))
    plan.ops.append(Op(5_600 + seed * 13 % 200, "crash", {
        "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 4_000,
    }))  # fmt: skip
    return order(plan)


def left_in_a_cut(seed: int) -> Plan:
    """The same, with more jobs than workers have time for."""
    return lost_in_a_cut(seed, 4_000)


KEY_FLAWS: Final = [
    Flaw("k1", "a new leader counts no places", places_are_not_counted, 5, limits_move),
    Flaw("k2", "a new leader allows a second burst", buckets_begin_full, 5, dry_buckets),
    Flaw("k3", "a group's turn does not end", turns_do_not_end, 5, three_groups),
    Flaw("k4", "a new leader knows no unique keys", unique_keys_stay_behind, 5, unique_moves),
    Flaw("k5", "a new leader hands out what is taken", takes_stay_behind, 5, long_work),
    Flaw("k6", "nobody waits for a token", alarms_are_not_set, 5, dry_buckets),
    Flaw("k7", "a delivery is an attempt", takes_are_attempts, 5, given_back),
    Flaw("k8", "answers to adds do not wait", copies_are_not_awaited, 5, left_in_a_cut),
    Flaw("k9", "answers to ends do not wait", copies_are_not_awaited, 5, lost_in_a_cut),
    Flaw("k10", "noted instants are not copied", notes_stay_behind, 5, schedules_move),
    Flaw("k11", "a new leader leaves instants out", instants_are_left_out, 5, schedules_move),
    Flaw("k12", "ends of children are not noted", ends_are_not_noted, 5, groups_move),
    Flaw("k13", "a callback does not wait for all", called_too_early, 5, groups_move),
    Flaw("k14", "results are those of others", results_are_mixed_up, 5, groups_move),
    Flaw("k15", "a topic's jobs are not one record", later_jobs_are_not_recorded, 5, topics_cut),
    Flaw("k16", "links tell no subscriptions", links_tell_no_topics, 5, topics_cut),
    Flaw("k18", "UPDATEJOB of a task does nothing", edits_do_nothing, 5, edited),
]
KEY_RULES: Final = {
    "k1": "task-limit", "k2": "task-rate", "k3": "task-turn", "k4": "task-unique",
    "k5": "task-held", "k6": "task-stuck", "k7": "task-attempts", "k8": "task-lost",
    "k9": "task-ended", "k10": "schedule-twice", "k11": "schedule-missed", "k12": "group-open",
    "k13": "group-early", "k14": "group-results", "k15": "topic-lost", "k16": "topic-apart",
    "k18": "task-edit",
}  # fmt: skip
