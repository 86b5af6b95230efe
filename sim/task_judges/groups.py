"""Judges of groups of jobs: a callback once, with all ends in order; no group stays open (T50)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.task_judges.facts import CRASHES_MAX, DRIFT, TaskTube
from tuque.core.model.task import Task
from tuque.tubes.entries.group import OPEN, GroupEntry

if TYPE_CHECKING:
    from sim.task_judges.keys import Run, Tasking
    from tuque.tubes.model.tube import Tube

MARK: Final = b"<"  # the bodies of callbacks begin so
OF_CHILDREN: Final = b"("


class Child:
    """A job that is, or may become, a child of a group."""

    def __init__(self, token: bytes, ttl_s: int, asked_us: int) -> None:
        self.token = token
        self.until_us = asked_us + int(ttl_s * 1_000_000 * DRIFT)  # it expires then
        self.id = b""
        self.asked: set[bytes] = set()  # what clients asked for that ends it
        self.results: set[bytes] = set()
        self.begun = 0  # runs that a client asked for

    def may_be_over(self, now_us: int) -> bool:
        """Whether somebody or something may have ended it."""
        is_crashed = self.begun >= CRASHES_MAX  # W6.7: each may have been silent
        return bool(self.asked) or is_crashed or now_us > self.until_us


class Group:
    """A group that a client made."""

    def __init__(self, token: bytes, policy: bytes) -> None:
        self.token = token
        self.policy = policy
        self.id = b""
        self.children: list[Child] = []
        self.is_full = False  # all children were added, and that was answered
        self.is_called = False  # a leader made its callback
        self.is_done = False  # somebody asked to end its callback
        self.over_us = 0  # when a client was told that the callback has ended
        self.epoch = 0  # of the leader that made it


class Grouping:
    """All groups of jobs of a seed."""

    def __init__(self, tasking: Tasking) -> None:
        self.tasking = tasking
        self.world = tasking.world
        self.history = tasking.history
        self.groups: dict[bytes, Group] = {}  # by body of the callback
        self.children: dict[bytes, Child] = {}  # by body

    def new_group(self, policy: bytes) -> Group:
        """A group is about to be made."""
        group = Group(b"<%d>" % len(self.groups), policy)
        self.groups[group.token] = group
        return group

    def new_child(self, ttl_s: int) -> Child:
        """A job for a group is about to be added."""
        child = Child(b"(%d)" % len(self.children), ttl_s, self.world.now_us)
        self.children[child.token] = child
        return child

    # ---- at the leader

    def on_put(self, run: Run, task: Task) -> None:
        """A leader has a new group."""
        group = self.groups.get(task.body)
        if group is not None:
            group.epoch = group.epoch or run.epoch

    def on_ready(self, run: Run, task: Task) -> None:
        """A leader may have made a callback of a group."""
        group = self.groups.get(task.body)
        if group is None or isinstance(task.entry, GroupEntry) or group.is_called:
            return
        group.is_called = True
        self.history.count("callbacks")
        if group.epoch and run.epoch > group.epoch:
            self.world.sometimes("a callback is made by a new leader")

    def on_take(self, id: bytes, body: bytes) -> None:
        """A callback is handed out."""
        group = self.groups[body]
        if group.over_us:
            self.tasking.find("group-twice", f"{body!r} is called again after its end")
        if group.id and group.id != id:
            self.tasking.find("group-twice", f"{body!r} is {group.id!r} and {id!r}")
        for index, child in enumerate(group.children):
            if not child.may_be_over(self.world.now_us):
                self.tasking.find("group-early", f"{body!r} is called, child {index} is open")

    # ---- what clients hear

    def on_results(self, group: Group, reply: object) -> None:
        """RESULTS of a callback: the ends of all children, in their order (T51.3)."""
        if not isinstance(reply, list) or not isinstance(reply[1], list):
            return
        rows: list[Any] = reply[1]
        self.history.count("ends of children read", len(rows))
        ids = [row[1] for row in rows]
        if [row[0] for row in rows] != list(range(len(group.children))):
            self.tasking.find("group-results", f"{group.token!r} has the ends {rows}")
        elif ids != [child.id for child in group.children]:
            self.tasking.find("group-results", f"{group.token!r} has the children {ids}")
        for row, child in zip(rows, group.children, strict=False):
            if row[2] == b"open":
                self.tasking.find("group-early", f"{group.token!r}: child {row[0]} is open")
            is_deleted = row[3] is None and b"DELJOB" in child.asked  # that has no result
            if row[2] == b"done" and row[3] not in child.results and not is_deleted:
                text = f"{group.token!r}: child {row[0]} has {row[3]!r}, {child.results} was said"
                self.tasking.find("group-results", text)

    def on_end(self, group: Group, reply: object) -> None:
        """ACKJOB of a callback is answered."""
        if reply == 1:
            group.over_us = group.over_us or self.world.now_us

    # ---- the end

    def on_drained(self, facts: TaskTube, tube: Tube) -> None:
        """Each group has ended, and the callback of one that had to has run (T50.4, T50.5)."""
        there = {task.id: task for task in tube.tasks.values()}
        for group in self.groups.values():
            if not group.is_full:
                continue
            self.history.count("ends of groups")
            task = there.get(group.id)
            if task is not None and isinstance(task.entry, GroupEntry):
                if task.entry.state == OPEN:
                    self.tasking.find("group-open", f"{group.token!r} never ended")
                elif group.policy == b"continue":
                    self.tasking.find("group-lost", f"{group.token!r} ended without its callback")
            elif task is None and not group.is_done:
                self.tasking.find("group-lost", f"{group.token!r} is gone, its callback never ran")
