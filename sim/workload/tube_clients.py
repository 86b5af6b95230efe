"""Clients of tubes: producers, workers, and clients that meddle with others' tasks.

Workers are slow, end half-way, restart and send outdated calls: an ack too late, twice, with the
token of an ended take, or over another connection of the session. A client follows the
tube's leader when it learns of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.machines.kernel import place_of
from sim.tube_judges.facts import Call, seconds
from sim.tube_judges.pris import begin_pri, on_given
from sim.workload.programs import Args, number
from sim.workload.scripts import IDLE_US, Say, Script, Steps, Told, failed, says

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster

JOB_VERBS: Final = ("ACKJOB", "NACK", "WORKING")


class TubeClient(Script):
    """A client of one tube, at its leader as far as it knows."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.judge = cluster.tubing
        self.facts = cluster.tubing.facts[args["tube"].encode()]

    def connection(self) -> object:
        """The connection that gets the next reply."""
        return self.session(self.node).end

    def words(self, verb: bytes, *more: object) -> list[bytes]:
        """TUBE <verb> tube ..."""
        rest = [one if isinstance(one, bytes) else number(one) for one in more]
        return [b"TUBE", verb, self.facts.key, *rest]

    def mend(self, reply: object) -> Told:
        """After a refusal: create the missing tube, or go to its leader."""
        if says(reply, "NOTUBE"):
            node = self.node
            told = partial(self.judge.on_created, self.facts, node)
            return (yield Say(self.facts.words(), told))
        if says(reply, "TUBEHOME"):
            self.history.count("clients sent to another home")
            self.node = place_of(str(reply).split()[1].rpartition(":")[0])
        if failed(reply) and not says(reply, "NOTTAKEN") and not says(reply, "NOTASK"):
            yield IDLE_US
        return None


class TubeProducer(TubeClient):
    """Puts tasks, some with their own options; some disconnect before the reply."""

    def steps(self) -> Steps:
        """Create the tube, then put one task after the other."""
        yield Say(self.facts.words(), partial(self.judge.on_created, self.facts, self.node))
        while True:
            reply = yield from self.put()
            yield from self.mend(reply)
            yield self.chance.randrange(self.args["idle_ms"] * 1000)

    def put(self) -> Told:
        """One put, or an ADDJOB if that is the habit."""
        args = self.options()
        put = self.facts.new_put(self.world.now_us, args)
        as_job = self.sometimes("p_job")
        words = self.job_words(put.body, args) if as_job else self.put_words(put.body, args)
        told = partial(self.judge.on_put, self.facts, put, self.node)
        if self.sometimes("p_hang_up"):
            wait_us = self.chance.randrange(60_000)
            self.world.after(wait_us, partial(self.hang_up, self.session(self.node).end))
        return (yield Say(words, told))

    def hang_up(self, end: object) -> None:
        """Disconnect, unless there is another connection by now."""
        if end is not None and self.session(self.node).end is end:
            self.session(self.node).close()

    def options(self) -> dict[str, Any]:
        """The options of one put."""
        found: dict[str, Any] = {"size": self.args.get("size", 10)}
        for name in ("pri", "ttl", "ttr", "delay", "utube"):
            values = self.args.get(name)
            if values:
                value = values[self.chance.randrange(len(values))]
                if value is not None:
                    found[name] = value
        if self.facts.capacity and self.sometimes("p_wait"):
            found["timeout"] = 100 + self.chance.randrange(2500)
        return found

    def put_words(self, body: bytes, args: dict[str, Any]) -> list[bytes]:
        """TUBE PUT."""
        words = self.words(b"PUT", body)
        for name in ("pri", "ttl", "ttr", "delay", "utube", "timeout"):
            if name in args:
                value = args[name]
                is_time = name in ("ttl", "ttr", "delay", "timeout")
                word = seconds(value) if is_time else str(value).encode()
                words += [name.upper().encode(), word]
        return words

    def job_words(self, body: bytes, args: dict[str, Any]) -> list[bytes]:
        """ADDJOB with the options that this type of tube allows (T1.1, T1.2), in whole seconds."""
        words = [b"ADDJOB", self.facts.key, body, b"1000"]
        args.pop("timeout", None)
        if "ttr" in args:
            args["ttr"] = max(1, args["ttr"] // 1000) * 1000
            words += [b"RETRY", number(args["ttr"] // 1000)]
        for name in ("ttl", "delay"):
            if name in args and self.facts.rules.is_timed:
                args[name] = max(1, args[name] // 1000) * 1000
                words += [name.upper().encode(), number(args[name] // 1000)]
        if "pri" in args and self.facts.rules.is_timed:
            words += [b"PRI", number(args["pri"])]
        if "utube" in args and self.facts.rules.is_keyed:
            words += [b"UTUBE", args["utube"].encode()]
        return words


class TubeWorker(TubeClient):
    """Takes tasks and does something with them, in any order, on time or late."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.held: list[tuple[int, int, bytes]] = []  # number, token, job id; old ones stay

    def steps(self) -> Steps:
        """Identify, if that is the habit, finish old tasks, then take new ones."""
        if self.sometimes("p_identify"):
            yield from self.identify()
        while True:
            for _ in range(1 + self.chance.randrange(self.args["many"])):
                reply = yield from self.take()
                yield from self.mend(reply)
                if failed(reply) or reply is None:
                    break
            yield self.chance.randrange(self.args["work_ms"] * 1000 + 1)
            while self.held and not self.sometimes("p_keep"):
                at = self.chance.randrange(len(self.held))
                reply = yield from self.finish(*self.held[at])
                if failed(reply) or not self.sometimes("p_twice"):
                    del self.held[at]
                yield from self.mend(reply)
            del self.held[:-20]
            yield self.args["idle_ms"] * 1000

    def identify(self) -> Told:
        """Join a session of this client or another one, or start one."""
        uuids = self.judge.uuids
        uuid = uuids.get(self.args.get("joins", self.name), b"")
        words = [b"TUBE", b"IDENTIFY"] + ([uuid] if uuid else [])
        reply = yield Say(words, self.on_identified)
        if failed(reply):
            reply = yield Say([b"TUBE", b"IDENTIFY"], self.on_identified)
        if isinstance(reply, bytes):
            uuids[self.name] = reply
        return reply

    def on_identified(self, reply: object) -> None:
        """The connection's session."""
        self.judge.on_identified(self.connection(), reply)

    def take(self) -> Told:
        """TAKE or GETJOB, waiting or not."""
        timeout_ms = self.args["timeout"] if self.chance.random() < 0.8 else 0
        asked_us = self.world.now_us
        if self.sometimes("p_job"):
            words = [b"GETJOB", b"TIMEOUT", number(max(1, timeout_ms)), b"FROM", self.facts.key]
            reply = yield Say(words)
            if isinstance(reply, list):
                self.held.append((self.facts.number_of(reply[0][1]), 0, reply[0][1]))
            return reply
        words = self.words(b"TAKE", b"TIMEOUT", seconds(timeout_ms))
        reply = yield Say(words, partial(self.on_taken, self.node, asked_us))
        if isinstance(reply, list):
            self.held.append((reply[0], reply[3], reply[4]))
        return reply

    def on_taken(self, node: str, asked_us: int, reply: object) -> None:
        """The node sent a task, read or not."""
        self.judge.on_taken(self.facts, node, self.connection(), asked_us, reply)

    def finish(self, task: int, token: int, job: bytes) -> Told:
        """ack, release, touch, bury; by number or by job id, with or without the token."""
        lot = self.chance.random()
        verb, share = "ack", 0.0
        for name in ("release", "touch", "bury"):
            share += self.args.get(f"p_{name}", 0.0)
            if lot < share:
                verb = name
                break
        if token == 0 or self.sometimes("p_job_verbs"):
            verb = {"release": "NACK", "touch": "WORKING"}.get(verb, "ACKJOB")
        is_bare = verb in JOB_VERBS or (verb != "bury" and self.sometimes("p_bare"))
        call = Call(verb, task, 0 if is_bare else token, self.world.now_us)
        self.facts.ask(call)
        words = self.call_words(call, job)
        return (yield Say(words, partial(self.on_called, call, self.node)))

    def call_words(self, call: Call, job: bytes) -> list[bytes]:
        """The command of a call."""
        delay_ms = self.chance.choice([0, 0, 300, 2_000])
        if call.verb in ("ACKJOB", "WORKING"):
            return [call.verb.encode(), job]
        if call.verb == "NACK":
            call.delay_ms = delay_ms // 1000 * 1000
            more = [b"DELAY", number(call.delay_ms // 1000)] if call.delay_ms else []
            return [b"NACK", *more, job]
        words = self.words(call.verb.upper().encode(), call.number)
        if call.verb == "touch":
            words.append(seconds(100 + self.chance.randrange(2_000)))
        if call.verb == "release" and delay_ms:
            call.delay_ms = delay_ms
            words += [b"DELAY", seconds(delay_ms)]
        return words + ([b"TOKEN", number(call.token)] if call.token else [])

    def on_called(self, call: Call, node: str, reply: object) -> None:
        """A call about a task got its reply."""
        self.judge.on_called(self.facts, call, node, self.connection(), reply)


class TubeMeddler(TubeClient):
    """Peeks at, buries, kicks and deletes tasks of any holder; sets cfg."""

    def steps(self) -> Steps:
        """Send one command after the other."""
        verbs: list[str] = self.args["verbs"]
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 1000)
            verb = verbs[self.chance.randrange(len(verbs))]
            reply = yield from self.meddle(verb)
            yield from self.mend(reply)

    def meddle(self, verb: str) -> Told:
        """Send one command."""
        facts, now_us = self.facts, self.world.now_us
        known = [put.number for put in facts.puts.values() if put.number >= 0]
        task = known[self.chance.randrange(len(known))] if known else 0
        if verb == "PEEK":
            told = partial(self.judge.on_peeked, facts, self.node, task, now_us)
            return (yield Say(self.words(b"PEEK", task), told))
        if verb == "DELETE":
            told = partial(self.judge.on_deleted, facts, task, now_us, self.node)
            return (yield Say(self.words(b"DELETE", task), told))
        if verb == "BURY":
            call = facts.ask(Call("bury", task, 0, now_us))
            told = partial(self.on_buried, call, self.node)
            return (yield Say(self.words(b"BURY", task), told))
        if verb == "PRI":
            return (yield from self.reprice(task))
        if verb == "CFG":
            ttr_ms = self.chance.choice([0, 500, 3_000])
            shared = self.chance.choice([b"yes", b"no"])
            return (yield Say([b"TUBE", b"CFG", b"TTR", seconds(ttr_ms), b"INREPLICASET", shared]))
        if verb in ("RELEASEALL", "TRUNCATE"):
            facts.mass_us[verb] = now_us
            return (yield Say(self.words(verb.encode())))
        if verb == "KICK":
            return (yield Say(self.words(b"KICK", 1 + self.chance.randrange(5))))
        return (yield Say([b"TUBE", b"STATISTICS", facts.key]))

    def reprice(self, task: int) -> Told:
        """UPDATEJOB PRI."""
        job_id, pri = self.facts.job_of(task), self.chance.randrange(10)
        given = begin_pri(self.facts, job_id, pri, self.world.now_us) if job_id else None
        if job_id is None or given is None:
            return None
        told = partial(on_given, self.judge, self.facts, given, self.node)
        return (yield Say([b"UPDATEJOB", job_id, b"PRI", number(pri)], told))

    def on_buried(self, call: Call, node: str, reply: object) -> None:
        """A bury got its reply."""
        self.judge.on_called(self.facts, call, node, self.connection(), reply)
