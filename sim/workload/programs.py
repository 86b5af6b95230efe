"""The clients of a seed: producers, consumers that may be slow or die, and meddlers.

The plan says what they do; when and how they finish a job is drawn from their own streams.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sim.engine.history import Add, Ask, Delivery
from sim.machines.session import LOST, Session
from tuque.core.queues.procedures import memory_level

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster
    from tuque.core.node.node import Node

Args = dict[str, Any]


def number(value: object) -> bytes:
    """A number as a word of a command."""
    return str(value).encode()


def is_forgotten(n: Node, other: Machine) -> bool:
    """Whether the node has forgotten the other one (K6)."""
    slot = n.slot_of.get(other.node_id)
    return slot is not None and bool(int(n.forgotten) >> slot & 1)


class Person:
    """A client with one connection to each node that it uses."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = cluster.history
        self.name = name
        self.chance = self.world.stream(f"client {name}")
        self.sessions: dict[str, Session] = {}

    def session(self, node: str) -> Session:
        """The connection to that node."""
        found = self.sessions.get(node)
        if found is None:
            found = Session(self.cluster.net, self.name, node)
            self.sessions[node] = found
        return found

    def leave(self) -> None:
        """Close every connection."""
        for session in self.sessions.values():
            session.close()

    # ---- producing

    def add(self, args: Args) -> Add:
        """ADDJOB as in the plan's operation."""
        node = f"n{args['node'] % len(self.cluster.machines)}"
        add = self.history.new_add(args["queue"].encode(), args.get("size", 20), node)
        add.repl = args.get("repl", 1)
        add.retry_s = args.get("retry", 5)
        add.ttl_s = args.get("ttl", 120)
        add.delay_s = args.get("delay", 0)
        add.timeout_ms = args.get("timeout", 2000)
        words = [b"ADDJOB", add.queue, add.body, number(add.timeout_ms)]
        words += [b"REPLICATE", number(add.repl), b"RETRY", number(add.retry_s)]
        words += [b"TTL", number(add.ttl_s)]
        if add.delay_s:
            words += [b"DELAY", number(add.delay_s)]
        if args.get("maxlen"):
            words += [b"MAXLEN", number(args["maxlen"])]
        if args.get("async"):
            add.is_async = True
            words.append(b"ASYNC")
        self.session(node).ask(words, partial(self.on_added, add), partial(self.on_id_given, add))
        if args.get("hang_up"):
            self.world.after(args["hang_up"] * 1000, self.session(node).close)
        return add

    def on_added(self, add: Add, reply: object) -> None:
        """The producer gets its reply."""
        if reply is LOST:
            add.is_lost = True
        else:
            self.history.on_added(add, reply)

    def on_id_given(self, add: Add, reply: object) -> None:
        """The node sends the reply: later it may be down, or have moved the job."""
        machine = self.cluster.machines[int(add.node[1:])]
        add.is_external = isinstance(reply, bytes) and machine.gave_away(reply)
        if isinstance(reply, bytes):
            add.record = machine.record(reply)

    # ---- asking about jobs

    def ask_about(self, add: Add, verb: str, node: str, words: list[bytes]) -> None:
        """Send a command about a job and record the reply."""
        ask = Ask(verb, self.world.now_us, node)
        add.asks.append(ask)
        self.history.count(verb)
        self.session(node).ask(words, partial(self.on_answer, add, ask))

    def on_answer(self, add: Add, ask: Ask, reply: object) -> None:
        """A command about a job got its reply."""
        if reply is LOST:
            return
        ask.done_us = self.world.now_us
        ask.reply = reply
        if isinstance(reply, Exception) and "OOM" in str(reply):
            if ask.verb in ("ACKJOB", "FASTACK", "DELJOB"):
                self.history.find("ack-refused", f"{ask.verb} was refused: {reply}")
        if ask.verb == "ACKJOB" and reply == 0:
            shell = self.cluster.machines[int(ask.node[1:])].shell
            if shell is not None and memory_level(shell.n) >= 2:
                add.ack_excuse = f"{ask.node} had no memory for the ack of what it does not know"
            for other in self.cluster.machines:
                # A3.4 asks all nodes of the cluster: a forgotten one is not a member (K6.1).
                if shell is not None and is_forgotten(shell.n, other) and other.has_copy(add.id):
                    add.ack_excuse = f"{ask.node} had forgotten {other.name}, which has the job"

    def poke(self, args: Args) -> None:
        """Send a command about a known job, wherever it is."""
        known = [a for a in self.history.adds.values() if a.id]
        if not known:
            return
        add = known[self.chance.randrange(len(known))]
        verb = args["verb"]
        words = [verb.encode(), add.id]
        if verb == "NACK" and self.chance.random() < 0.5:
            words = [b"NACK", b"DELAY", number(self.chance.randrange(5)), add.id]
        self.ask_about(add, verb, f"n{args['node']}", words)


class Worker(Person):
    """A consumer: fetches jobs, works on them for a while, acks here or elsewhere."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name)
        self.args = args
        self.node = f"n{args['node'] % len(cluster.machines)}"
        self.until_us = self.world.now_us + args["for_ms"] * 1000
        self.is_waiting = False
        self.is_done = False

    def begin(self) -> None:
        """Start to fetch jobs."""
        self.ask()
        self.world.at(self.until_us, self.stop)

    def stop(self) -> None:
        """Stop fetching; cancels a GETJOB that waits."""
        self.is_done = True
        self.session(self.node).close()

    def ask(self) -> None:
        """GETJOB, unless one is pending or the worker has stopped."""
        if self.is_waiting or self.is_done or self.world.now_us >= self.until_us:
            return
        self.is_waiting = True
        args = self.args
        words = [b"GETJOB"]
        if args.get("nohang"):
            words.append(b"NOHANG")
        else:
            words += [b"TIMEOUT", number(args.get("timeout", 1000))]
        words += [b"COUNT", number(args.get("count", 1)), b"WITHCOUNTERS", b"FROM"]
        words += [q.encode() for q in args["queues"]]
        given: list[tuple[Add, Delivery]] = []
        self.session(self.node).ask(
            words, partial(self.on_jobs, given), partial(self.on_given, given)
        )

    def on_given(self, given: list[tuple[Add, Delivery]], reply: object) -> None:
        """The node sent jobs: deliveries, whether read or not."""
        if not isinstance(reply, list):
            return
        for job in reply:
            queue, id, body = job[0], job[1], job[2]
            delivery = self.history.on_delivery(self.node, queue, id, body)
            if delivery is not None:
                self.cluster.leasing.on_handed(self.node, id)
                add = self.history.by_id[id]
                given.append((add, delivery))
                machine = self.cluster.machines[int(self.node[1:])]
                if add.record is not None and machine.record(id) is add.record:
                    self.history.judge_own_end(add, delivery)

    def on_jobs(self, given: list[tuple[Add, Delivery]], reply: object) -> None:
        """Jobs arrived, or nothing, or an error."""
        self.is_waiting = False
        if reply is LOST:
            self.world.after(300_000 + self.chance.randrange(400_000), self.ask)
            return
        wait_us = self.args.get("idle_ms", 20) * 1000
        if isinstance(reply, Exception):
            wait_us += 500_000
        for add, delivery in given:
            delivery.was_read = True
            work_us = self.chance.randrange(self.args["work_ms"] * 1000 + 1)
            wait_us += work_us
            self.world.after(work_us, partial(self.finish, add))
        if not self.is_done:
            self.world.after(wait_us + 1, self.ask)

    def finish(self, add: Add) -> None:
        """The work on a job ends, in one way or another."""
        lot = self.chance.random()
        args = self.args
        for name, verb in (("p_nack", "NACK"), ("p_drop", ""), ("p_fast", "FASTACK")):
            share = args.get(name, 0.0)
            if lot < share:
                if verb:
                    self.ask_about(add, verb, self.node, [verb.encode(), add.id])
                return
            lot -= share
        if lot < args.get("p_working", 0.0):
            self.ask_about(add, "WORKING", self.node, [b"WORKING", add.id])
            self.world.after(self.chance.randrange(2_000_000), partial(self.ack, add))
            return
        self.ack(add)

    def ack(self, add: Add) -> None:
        """ACKJOB here or on another node; sometimes twice."""
        node = f"n{self.args['ack_at']}" if "ack_at" in self.args else self.node
        if self.chance.random() < self.args.get("p_else", 0.0):
            machines = self.cluster.machines
            node = machines[self.chance.randrange(len(machines))].name
        self.ask_about(add, "ACKJOB", node, [b"ACKJOB", add.id])
        if self.chance.random() < self.args.get("p_twice", 0.0):
            self.ask_about(add, "ACKJOB2", node, [b"ACKJOB", add.id])
