"""Real nodes, real clients, real trouble: kill -9, SIGSTOP, restarts, links cut and frozen.

Clients write the history that the simulator's clients write, and what must hold is judged by
the same code (sim.engine.history). They also write a log, which is judged by what the nodes'
events say (SPEC H5, verify), where pyarrow and duckdb are installed.
`python tests/e2e/cluster_chaos.py --minutes 5` runs for long, and with `--outages` kills all nodes
at once, every 10 s (chaos_outages.py);
tests/e2e/test_e2e_cluster_chaos.py runs a short one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parent)]

from chaos_outages import run_outages

from lab import RealCluster
from raw_resp import NULL, Err, Wire
from recorder import Recorder, now_us
from sim.engine.history import OK, Add, History
from until import until

RETRY_S = 1
COPIES = 3
TIMING = ("--cluster-node-timeout", 1_000)
QUIET_S = 6.0  # after the end of all trouble: an acked job must not come again
GONE_MAX = 200  # jobs that are looked for one by one in the end
FAULTS = ("kill", "stop", "cut", "freeze", "isolate", "restart")


HAS_EVENTS = all(importlib.util.find_spec(name) for name in ("pyarrow", "duckdb"))


class Chaos(RealCluster):
    """One run: nodes behind proxies, clients, faults, verdicts, and the time of its history."""

    def __init__(self, directory: Path, count: int, seed: int, *flags: str) -> None:
        self.chance = random.Random(seed)
        self.began = time.monotonic()
        self.notes: list[str] = []  # lines for the report of a failure
        self.history = History(self)  # type: ignore[arg-type]  # a World in what it needs
        self.lock = threading.Lock()
        self.down: set[int] = set()
        self.is_over = False
        self.is_adding = True
        self.acked_us: dict[bytes, int] = {}  # token -> when its ack was answered
        self.ack_sent: dict[bytes, bool] = {}  # tokens whose ack was sent, answered or not
        self.quiet_us = 1 << 62  # when all trouble was over
        self.faults: Counter[str] = Counter()
        self.effective: Counter[str] = Counter()
        self.directory = directory
        self.verdict = ""
        self.log = Recorder(directory / "clients.jsonl", "chaos")
        if HAS_EVENTS:
            told = ("--events-dir", str(directory / "events"), "--events-roll-seconds", "5")
            flags = (*flags, "--events", "yes", *told)
        super().__init__(directory, count, *TIMING, *flags, proxied=True)
        self.threads = [
            threading.Thread(target=self.live, args=(work, number), daemon=True)
            for number, work in enumerate([self.produce] * 3 + [self.consume] * 4)
        ]

    # ---- life of the nodes

    @property
    def now_us(self) -> int:
        """Microseconds since the start."""
        return int((time.monotonic() - self.began) * 1e6)

    def note(self, text: str) -> None:
        """Keep a line for the report of a failure."""
        self.notes.append(f"{self.now_us / 1e6:9.3f} {text}")

    def start(self) -> Chaos:
        """Start all nodes and let them meet through the proxies."""
        super().start()
        for thread in self.threads:
            thread.start()
        return self

    def wait_whole(self) -> None:
        """Wait until every node reaches every other one."""
        until(
            lambda: all(self.reach(i) == len(self.nodes) - 1 for i in self.up()),
            lambda: "get whole: " + repr([self.reach(i) for i in self.up()]),
            most_s=30,
        )

    def up(self) -> list[int]:
        """The nodes that run."""
        return [i for i in range(len(self.nodes)) if i not in self.down]

    def info(self, number: int) -> dict[str, str]:
        """INFO of a node, empty when it does not answer."""
        with contextlib.suppress(OSError, EOFError):
            wire = Wire(self.nodes[number].port, timeout_s=3)
            text = wire("CLUSTER", "INFO").decode() + wire("INFO").decode()
            wire.sock.close()
            return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
        return {}

    def reach(self, number: int) -> int:
        """How many other nodes it reaches."""
        return int(self.info(number).get("cluster_reachable_nodes", -1))

    def is_repaired(self) -> bool:
        """Whether no node knows of a job with too few copies."""
        for number in self.up():
            with contextlib.suppress(OSError, EOFError):
                wire = Wire(self.nodes[number].port, timeout_s=3)
                said = wire("CLUSTER", "REPAIR")
                wire.sock.close()
                if said in (b"done", 0):
                    continue
            return False
        return True

    # ---- clients

    def live(self, work: Any, number: int) -> None:
        """Work on a connection to some node; when it breaks, on one to another node."""
        chance = random.Random(number)
        while not self.is_over:
            target = chance.randrange(len(self.nodes))
            try:
                wire = Wire(self.nodes[target].port, timeout_s=3)
            except OSError:
                time.sleep(0.02)
                continue
            with contextlib.suppress(OSError, EOFError):
                end_s = time.monotonic() + chance.uniform(0.5, 4)
                while not self.is_over and time.monotonic() < end_s:
                    work(wire, f"node{target}", chance)
            wire.sock.close()

    def produce(self, wire: Wire, node: str, chance: random.Random) -> None:
        """One ADDJOB: three copies of a job that comes back, or one that never comes twice."""
        if not self.is_adding:
            time.sleep(0.05)
            return
        is_amo = chance.random() < 0.2
        with self.lock:
            add = self.history.new_add(b"amo" if is_amo else b"alo", 60, node)
        add.retry_s = 0 if is_amo else RETRY_S
        add.repl = 1 if is_amo else COPIES
        add.ttl_s = 600
        self.log.adding(add.token.decode(), add.queue.decode())
        options = ("RETRY", add.retry_s, "REPLICATE", add.repl, "TTL", add.ttl_s)
        reply = wire("ADDJOB", add.queue, add.body, 1000, *options)
        with self.lock:
            self.history.on_added(add, reply if isinstance(reply, bytes) else Err(str(reply)))
        if isinstance(reply, bytes):
            self.log.added(reply.decode(), add.token.decode(), retry_s=add.retry_s)
        time.sleep(0.002)

    def consume(self, wire: Wire, node: str, chance: random.Random) -> None:
        """Take some jobs, ack them here or at another node, sometimes never."""
        asked_us, asked_at_us = self.now_us, now_us()
        jobs = wire("GETJOB", "TIMEOUT", 200, "COUNT", 4, "FROM", "alo", "amo")
        if not isinstance(jobs, list):
            time.sleep(0.02)
            return
        with self.lock:
            for queue, job_id, body in jobs:
                self.history.on_delivery(node, queue, job_id, body)
                self.judge_ack(job_id, asked_us)
                mark = body[: body.find(b">") + 1].decode()
                self.log.got(job_id.decode(), mark, queue.decode(), asked_at_us)
        for _, job_id, _ in jobs:
            if chance.random() < 0.1:
                continue  # a worker that dies
            with self.lock:
                add = self.history.by_id[job_id]
            if add.retry_s == 0:
                continue
            self.log.acking(job_id.decode())
            self.ack_sent[add.token] = True
            if chance.random() < 0.3:
                self.ack_elsewhere(chance, add, job_id)
            elif wire("ACKJOB", job_id) in (0, 1):
                self.note_ack(add)

    def ack_elsewhere(self, chance: random.Random, add: Add, job_id: bytes) -> None:
        """ACKJOB at any node."""
        other = Wire(self.nodes[chance.randrange(len(self.nodes))].port, timeout_s=3)
        try:
            if other("ACKJOB", job_id) in (0, 1):
                self.note_ack(add)
        finally:
            other.sock.close()

    def note_ack(self, add: Add) -> None:
        """The ack was answered."""
        with self.lock:
            self.history.count("acks")
            self.log.acked(add.id.decode())
            self.acked_us.setdefault(add.token, self.now_us)

    def judge_ack(self, job_id: bytes, asked_us: int) -> None:
        """An acked job that is handed out when all has been well for long (S4)."""
        add = self.history.by_id.get(job_id)
        if add is None or asked_us < self.quiet_us + int(QUIET_S * 1e6):
            return
        acked_us = self.acked_us.get(add.token, 1 << 62)
        if acked_us + int(QUIET_S * 1e6) < asked_us:
            self.history.find("S4", f"{add.token!r} came again at {asked_us / 1e6:.3f} s")

    # ---- trouble

    def trouble(self, span_s: float) -> None:
        """Faults one after the other for that long; at most one node's memory at a time."""
        end_s = time.monotonic() + span_s
        while time.monotonic() < end_s:
            kind = self.chance.choice(FAULTS)
            victim = self.chance.randrange(len(self.nodes))
            self.note(f"{kind} node{victim}")
            has_work = int(self.info(victim).get("registered_jobs", 0)) > 0
            self.faults[kind] += 1
            if has_work:
                self.effective[kind] += 1
            getattr(self, "on_" + kind)(victim)
            time.sleep(self.chance.uniform(0.1, 0.6))

    def on_kill(self, victim: int) -> None:
        """kill -9, and back with or without what is on its disk; then repair has its time."""
        until(self.is_repaired, "end its repair", most_s=60)
        self.nodes[victim].kill()
        self.down.add(victim)
        time.sleep(self.chance.uniform(0.05, 1.5))
        self.nodes[victim].start()
        self.down.discard(victim)
        until(lambda: self.reach(victim) >= 1, f"find node{victim} another node", most_s=30)

    def on_restart(self, victim: int) -> None:
        """An orderly stop and start, once repair is done."""
        until(self.is_repaired, "end its repair", most_s=60)
        self.nodes[victim].end()
        self.down.add(victim)
        self.nodes[victim].start()
        self.down.discard(victim)
        until(lambda: self.reach(victim) >= 1, f"find node{victim} another node", most_s=30)

    def on_stop(self, victim: int) -> None:
        """SIGSTOP for longer than the others wait, or for less."""
        self.nodes[victim].signal(signal.SIGSTOP)
        time.sleep(self.chance.choice((0.2, 0.7, 2.5)))
        self.nodes[victim].signal(signal.SIGCONT)

    def on_cut(self, victim: int) -> None:
        """One pair of nodes loses its link."""
        other = self.chance.choice([i for i in range(len(self.nodes)) if i != victim])
        self.proxy.cut(self.ids[victim], self.ids[other])
        time.sleep(self.chance.uniform(0.2, 2))
        self.proxy.heal()

    def on_isolate(self, victim: int) -> None:
        """One node loses all its links."""
        for other in range(len(self.nodes)):
            if other != victim:
                self.proxy.cut(self.ids[victim], self.ids[other])
        time.sleep(self.chance.uniform(0.2, 2.5))
        self.proxy.heal()

    def on_freeze(self, victim: int) -> None:
        """What the node says arrives nowhere, while it hears all."""
        for other in range(len(self.nodes)):
            if other != victim:
                self.proxy.freeze(self.ids[victim], self.ids[other])
        time.sleep(self.chance.uniform(0.2, 2.5))
        self.proxy.heal()

    # ---- the end

    def finish(self) -> None:
        """All is well again: everything is drained, nothing comes back, nothing is missing."""
        self.proxy.heal()
        self.wait_whole()
        self.is_adding = False
        self.quiet_us = self.now_us
        self.log.quiet(now_us() + int(QUIET_S * 1e6))
        until(lambda: not self.open_adds(), self.what_is_open, most_s=60)
        time.sleep(QUIET_S + 2.5 * RETRY_S)  # the time in which an acked job would come again
        self.is_over = True
        for thread in self.threads:
            thread.join(10)

    def open_adds(self) -> list[Add]:
        """Jobs that were added for certain, and never acked."""
        with self.lock:
            found = [
                add
                for add in self.history.adds.values()
                if add.outcome == OK and add.retry_s > 0 and add.token not in self.acked_us
            ]
        if len(found) > GONE_MAX:
            return found
        return [add for add in found if add.token not in self.ack_sent or self.is_known(add)]

    def is_known(self, add: Add) -> bool:
        """Whether a node knows the job: an ack may be carried out, and its answer be lost."""
        for number in self.up():
            wire = Wire(self.nodes[number].port)
            known = wire("SHOW", add.id)
            wire.sock.close()
            if known is not NULL:
                return True
        return False

    def what_is_open(self) -> str:
        """Which jobs did not come, and what the nodes know of them."""
        left = self.open_adds()
        for add in left:
            if not add.deliveries:
                self.history.find("S1", f"{add.token!r} {add.id!r} was never delivered")
        known = []
        for number in self.up():
            wire = Wire(self.nodes[number].port)
            known.append([wire("SHOW", add.id) for add in left[:2]])
        return f"{len(left)} jobs are open, such as {[a.token for a in left[:5]]}: {known}"

    def end(self) -> None:
        """End every process and thread."""
        self.is_over = True
        super().end()

    def verify(self) -> None:
        """The clients' log by the events of all nodes, which have ended (SPEC H5)."""
        self.log.close()
        if not HAS_EVENTS:
            return
        from tuque.spark.history.duck import DuckEngine
        from tuque.spark.history.pipeline import find_segments
        from verify import verify
        from verify_command import table

        found = find_segments(self.directory / "events", self.directory / "copies")
        with DuckEngine(threads=2) as duck:
            logs = [str(self.directory / "clients.jsonl")]
            grace_us = int(QUIET_S * 1e6)
            verdict = verify(duck, logs, found.sealed + found.hot, grace_us=grace_us)
        self.verdict = table(verdict)
        for name, worry in verdict.worries.items():
            if worry.count:
                self.history.find("H5", f"{worry.count} {name}: {worry.examples}")

    def score(self) -> str:
        """What was done and found, with denominators."""
        counts = self.history.counts
        amo = sum(1 for add in self.history.adds.values() if add.retry_s == 0)
        lines = [
            f"jobs added       {counts.get('adds ok', 0)} of {counts.get('adds', 0)} tried",
            f"at most once     {amo} tried, {counts.get('amo deliveries', 0)} handed out",
            f"deliveries       {counts.get('deliveries', 0)}, "
            f"again {counts.get('redeliveries', 0)}",
            f"acks             {counts.get('acks', 0)}",
            "faults           "
            + ", ".join(f"{k} {v} ({self.effective[k]} hit work)" for k, v in self.faults.items()),
            f"links broken     {self.proxy.links_broken}",
            f"broken promises  {len(self.history.findings)}",
        ]
        lines += [f"  {finding}" for finding in self.history.findings]
        return "\n".join([*lines, self.verdict])


def main() -> int:
    """Run for long and print the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--journal", action="store_true", help="appendonly yes on every node")
    parser.add_argument("--outages", action="store_true", help="kill all nodes every 10 s")
    asked = parser.parse_args()
    if asked.outages:
        with tempfile.TemporaryDirectory() as directory:
            return 0 if run_outages(Path(directory), asked.nodes, asked.minutes) else 1
    flags = ["--appendonly", "yes"] if asked.journal else []
    with tempfile.TemporaryDirectory() as directory:
        chaos = Chaos(Path(directory), asked.nodes, asked.seed, *flags)
        try:
            chaos.start()
            chaos.trouble(asked.minutes * 60)
            chaos.finish()
            chaos.end()
            chaos.verify()
        finally:
            chaos.end()
            print(f"seed {asked.seed}, {asked.nodes} nodes\n{chaos.score()}")
    return 1 if chaos.history.findings else 0


if __name__ == "__main__":
    sys.exit(main())
