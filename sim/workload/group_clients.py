"""Clients of schedules, of groups of jobs and of topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sim.task_judges.groups import Child, Group
from sim.task_judges.topics import OTHER, QUEUES, TOPIC
from sim.workload.programs import Args, number
from sim.workload.scripts import IDLE_US, Say, Script, Steps, Told, failed
from sim.workload.task_clients import TaskClient, end_child

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster

CHILDREN: Final = b"children"  # the queue of those that are no tasks
KEEP_S: Final = 600


class TaskScheduler(TaskClient):
    """Adds a schedule, and again what it has added."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        name, args = self.args["name"].encode(), self.args
        body = b"[%s]" % name
        words = [b"SCHEDULE", b"ADD", self.facts.key, name, b"EVERY", number(args["every_s"])]
        words += [b"MISSED", args["missed"].encode(), b"RETRY", b"3", body]
        while True:
            told = partial(self.judge.schedules.on_added, self.facts, body)
            reply = yield Say(words, told)
            yield from self.mend(reply)
            yield IDLE_US if failed(reply) else 5_000_000


class GroupMaker(TaskClient):
    """Makes groups: adds jobs, and names them to the group."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            policy = self.chance.choice([b"stop", b"continue", b"continue"])
            group = self.judge.groups.new_group(policy)
            yield from self.make(group, self.chance.randint(1, 4))
            yield self.chance.randrange(self.args["idle_ms"] * 1000)

    def make(self, group: Group, size: int) -> Steps:
        """One group with its children; what fails is left as it is."""
        for _ in range(size):
            child = yield from self.add_child()
            if not isinstance(child, Child):
                return
            group.children.append(child)
        words = [b"GROUP", b"CREATE", self.facts.key, number(size), b"ONFAIL", group.policy]
        reply = yield Say([*words, b"RETRY", b"3", b"THEN", group.token])
        if not isinstance(reply, bytes):
            yield from self.mend(reply)
            return
        group.id = reply
        words = [b"GROUP", b"ADD", self.facts.key, group.id]
        for index, child in enumerate(group.children):
            words += [number(index), child.id]
        for _ in range(10):
            reply = yield Say(words)
            if not failed(reply):
                group.is_full = True
                return
            yield from self.mend(reply)

    def add_child(self) -> Told:
        """ADDJOB to a queue, or to the tube of the group; until there is an id."""
        ttl_s = self.chance.choice([600, 600, 600, 5])
        for _ in range(5):
            child = self.judge.groups.new_child(ttl_s)
            is_task = self.sometimes("p_task")
            words = [b"ADDJOB", self.facts.key if is_task else CHILDREN, child.token, b"1000"]
            words += [b"RETRY", b"2", b"KEEP", number(KEEP_S), b"TTL", number(ttl_s)]
            words += [b"ATTEMPTS", b"20"] if is_task else [b"REPLICATE", b"2", b"ATTEMPTS", b"20"]
            reply = yield Say(words)
            if isinstance(reply, bytes):
                child.id = reply
                return child
            yield from self.mend(reply)
        return None


class ChildWorker(Script):
    """Works on children that are jobs of a queue, and ends them in all ways."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            reply = yield Say([b"GETJOB", b"TIMEOUT", b"500", b"FROM", CHILDREN])
            if isinstance(reply, list):
                child = self.cluster.tasking.groups.children.get(reply[0][2])
                if child is not None:
                    yield from end_child(self, child, reply[0][1])
            elif failed(reply):
                yield IDLE_US
            yield self.args["idle_ms"] * 1000


class TopicKeeper(Script):
    """Subscribes three queues to a topic; then subscribes others to another one, and removes."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        topics = self.cluster.tasking.topics
        topics.is_on = True
        for queue in QUEUES:
            while failed((yield Say([b"TOPIC", b"SUBSCRIBE", TOPIC, queue]))):
                yield IDLE_US
        topics.is_ready = True
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            self.node = self.chance.choice(self.cluster.machines).name
            verb = self.chance.choice([b"SUBSCRIBE", b"SUBSCRIBE", b"UNSUBSCRIBE"])
            queue = b"other %d" % self.chance.randrange(4)
            yield Say([b"TOPIC", verb, OTHER, queue])


class TopicPublisher(Script):
    """Adds jobs to a topic, at any node."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        topics = self.cluster.tasking.topics
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            if not topics.is_ready:
                continue
            self.node = self.chance.choice(self.cluster.machines).name
            body = topics.new_body()
            words = [b"TOPIC", b"ADD", TOPIC, body, b"1000", b"REPLICATE", b"1", b"RETRY", b"3"]
            yield Say([*words, b"TTL", b"600"], partial(topics.on_published, body))


class TopicWorker(Script):
    """Gets and acknowledges the jobs of the topic's queues."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.topics = cluster.tasking.topics

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            reply = yield Say([b"GETJOB", b"TIMEOUT", b"500", b"FROM", *QUEUES], self.on_given)
            if isinstance(reply, list):
                yield Say([b"ACKJOB", reply[0][1]])
            elif failed(reply):
                yield IDLE_US
            yield self.args["idle_ms"] * 1000

    def on_given(self, reply: object) -> None:
        """A node handed out a job."""
        if isinstance(reply, list):
            self.topics.on_delivered(*reply[0][:3])
