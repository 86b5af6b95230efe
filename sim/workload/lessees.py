"""Clients that lease: plan a batch, read it, work, commit; like a stream with a checkpoint.

The offset log is written before a batch is read, the commit log after its commit. Two owners of a
group fence each other. Some write their results with PUBLISH ... ACK.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from sim.judges.leasing import Pass
from sim.workload.programs import Args, number
from sim.workload.publishers import Publication, stage_rows
from sim.workload.scripts import IDLE_US, Say, Script, Steps, Told, failed, says

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster


class Lessee(Script):
    """One owner of a group, with its checkpoint."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.judge = cluster.leasing
        self.group: bytes = args["group"].encode()
        self.ttl_ms: int = args["ttl_ms"]
        self.epoch = 0
        self.planned = 0  # the offset log
        self.committed = 0  # the commit log
        self.publications: dict[tuple[int, int], Publication] = {}

    def words(self, verb: bytes, *more: object) -> list[bytes]:
        """LEASE <verb> group epoch ..."""
        rest = [one if isinstance(one, bytes) else number(one) for one in more]
        return [b"LEASE", verb, self.group, number(self.epoch), *rest]

    def steps(self) -> Steps:
        """Open the group, then process batches until it must be opened again."""
        while True:
            queues = [queue.encode() for queue in self.args["queues"]]
            owner = self.name.encode()
            reply = yield self.open(owner, queues)
            if not isinstance(reply, int):
                yield IDLE_US
                continue
            if reply != self.epoch:
                self.epoch = reply
                self.planned = self.committed = 0
            yield from self.batches()
            yield 20_000 + self.chance.randrange(200_000)
            if self.args.get("gives_way"):
                yield 2_000_000 + self.chance.randrange(4_000_000)

    def open(self, owner: bytes, queues: list[bytes]) -> Say:
        """LEASE OPEN, judged when the node sends its reply: the node may end before it is read."""
        asked_us = self.judge.on_open_asked(self.node, self.group, owner)
        told = partial(self.judge.on_opened, self.machine, self.group, owner, self.ttl_ms, asked_us)
        return Say([b"LEASE", b"OPEN", self.group, owner, *queues], told)

    def batches(self) -> Steps:
        """Process batches; returns when the group must be opened again."""
        while True:
            reply = yield from self.plan()
            if reply == 0:
                yield self.args["idle_ms"] * 1000
                continue
            if says(reply, "ACKED"):
                self.committed += 1  # it was committed, but the commit log was not written
                continue
            if says(reply, "NOBATCH"):
                self.epoch = 0  # given up: lost with a node's memory, or expired
                yield self.open(b"nobody", [b"nothing"])
                return
            if failed(reply):
                return
            if not (yield from self.serve()):
                return

    def plan(self) -> Told:
        """NEXT for the batch after the last committed one, sometimes for later ones too."""
        seq = self.committed + 1
        most = seq + (self.chance.randrange(3) if self.args.get("ahead") else 0)
        first: object = None
        while seq <= most:
            asked_us = self.world.now_us
            words = self.words(b"NEXT", seq, b"COUNT", self.args["count"], b"PARTS")
            words += [number(self.args["parts"]), b"TTL", number(self.ttl_ms)]
            sent = partial(self.judge.on_next, self.machine, self.group, self.epoch, seq, asked_us)
            reply = yield Say(words, sent)
            first = reply if first is None else first
            if failed(reply) or reply == 0:
                break
            self.planned = max(self.planned, seq)
            seq += 1
        return first

    def serve(self) -> Told:
        """Read all planned batches, work, commit; False: open the group again."""
        for seq in range(self.committed + 1, self.planned + 1):
            times = 2 if self.sometimes("p_again") else 1
            for _ in range(times):
                for part in range(self.args["parts"]):
                    if not (yield from self.read(seq, part)):
                        return False
        work_us = self.chance.randrange(self.args["work_ms"] * 1000 + 1)
        if self.sometimes("p_late"):
            work_us += self.ttl_ms * 1200
        yield work_us
        if self.sometimes("p_touch"):
            asked_us = self.world.now_us
            reply = yield Say(self.words(b"TOUCH"))
            if isinstance(reply, int):
                self.judge.renewed(self.node, self.group, self.epoch, asked_us)
        if self.sometimes("p_release"):
            self.judge.on_release_asked(self.node, self.group)
            yield Say(self.words(b"RELEASE"))
            return False
        if self.sometimes("p_nack"):
            ids = self.judge.ids_of(self.node, self.group, self.epoch, self.planned)[:3]
            if ids:
                self.judge.on_nack_asked(self.node, ids)
                yield Say(self.words(b"NACK", self.planned, *ids))
        return (yield from self.commit())

    def read(self, seq: int, part: int) -> Told:
        """FETCH a whole part."""
        is_columns = self.sometimes("p_columns")
        one = Pass(self.node, self.group, self.epoch, seq, part, self.world.now_us, is_columns)
        at = 0
        while True:
            asked_us = self.world.now_us
            words = self.words(b"FETCH", seq, part, b"FROM", at, b"COUNT", self.args["rows"])
            if is_columns:
                words.append(b"COLUMNS")
            sent = partial(self.judge.on_rows, self.machine, one, asked_us)
            reply = yield Say(words, sent)
            if says(reply, "ACKED"):
                return True
            if failed(reply):
                return False
            rows = cast(list[int], reply)
            if rows[-1] >= rows[1]:
                self.judge.on_pass(one)
                return True
            at = rows[-1]

    def commit(self) -> Told:
        """COMMIT all that was read, or PUBLISH the results with the ack."""
        seq = self.planned
        if seq == self.committed:
            return True
        ack = [b"ACK", self.group, number(self.epoch), number(seq)]
        if self.args.get("publishes"):
            reply = yield from self.publish(seq, ack)
        else:
            reply = yield from self.commit_once(seq)
            if isinstance(reply, int) and self.sometimes("p_twice"):
                yield from self.commit_once(seq)
        if not isinstance(reply, int):
            return False
        self.committed = seq
        return True

    def commit_once(self, seq: int) -> Told:
        """One LEASE COMMIT, judged."""
        asked = self.judge.on_commit_asked(self.machine, self.group, self.epoch, seq)
        reply = yield Say(self.words(b"COMMIT", seq))
        self.judge.on_committed(asked, reply)
        return reply

    def publish(self, seq: int, ack: list[bytes]) -> Told:
        """STAGE a row or two for the batch and PUBLISH them with its ack."""
        key = (self.epoch, seq)
        made = self.publications.get(key)
        if made is None:
            app = self.group + b"/%d" % self.epoch
            made = Publication(self.cluster, self.machine, app, seq, self.args, 1 + seq % 2)
            self.publications[key] = made
        names = yield from stage_rows(self, made)
        if not names:
            return None
        asked = self.judge.on_commit_asked(self.machine, self.group, self.epoch, seq, True)
        made.on_asked()
        reply = yield Say(made.words(names, ack), made.on_answer)
        self.judge.on_committed(asked, reply)
        return reply
