"""Leaders of a tube that are killed, stopped or cut off, one every few seconds (SPEC T23 to T27).

Clients put, take and ack meanwhile at all nodes. Nothing answered may be lost, nothing be taken
again after its ack, and puts must flow again in time.
`python tests/e2e/vote_chaos.py --minutes 5` runs for long; test_e2e_votes.py runs a short one.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parent)]

from tube_load import Load

from lab import RealCluster
from raw_resp import Wire
from until import until

FAULTS = ("kill", "stop", "isolate", "cut")


class VoteChaos(RealCluster):
    """One run: nodes behind proxies, one tube, the load on it."""

    def __init__(self, directory: Path, count: int, seed: int, fsync: str = "everysec") -> None:
        journal = ("--appendonly", "yes", "--appendfsync", fsync, "--cluster-node-timeout", 1_000)
        super().__init__(directory, count, *journal, voters=count, proxied=True)
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.gaps_s: dict[str, list[float]] = {}  # the longest time without a put, by fault
        self.load: Load | None = None

    def start(self) -> VoteChaos:
        """Start the nodes, wait for the list of voters, make the tube."""
        super().start()
        self.create("t", "fifo")
        return self

    def figure(self, number: int, name: str) -> int:
        """A figure of INFO; -1 if the node does not answer."""
        with contextlib.suppress(OSError, EOFError):
            wire = Wire(self.nodes[number].port, timeout_s=3)
            text = wire("INFO", "tubes").decode()
            wire.sock.close()
            for line in text.split("\r\n"):
                if line.startswith(f"{name}:"):
                    return int(line.partition(":")[2])
        return -1

    def hurt(self, kind: str, number: int, span_s: float) -> None:
        """One fault at a node, and its end."""
        node = self.nodes[number]
        self.faults[kind] += 1
        if kind == "kill":
            node.kill()
            time.sleep(span_s)
            node.start()
        elif kind == "stop":
            node.signal(signal.SIGSTOP)
            time.sleep(span_s)
            node.signal(signal.SIGCONT)
        else:
            self.part(number, kind)
            time.sleep(span_s)
            self.proxy.heal()

    def part(self, number: int, kind: str) -> None:
        """`isolate`: nothing comes from or to the node; `cut`: half of its links break."""
        own = self.ids[number]
        others = [one for one in self.ids if one != own]
        for other in others if kind == "isolate" else others[: len(others) // 2]:
            if kind == "isolate":
                self.proxy.freeze(own, other)
                self.proxy.freeze(other, own)
            else:
                self.proxy.cut(own, other)

    def move(self) -> None:
        """The leader hears nobody until another one leads, as seen by clients."""
        first = self.nodes.index(self.leader("t"))
        self.faults["isolate"] += 1
        began = time.monotonic()
        self.part(first, "isolate")
        until(lambda: [i for i in self.leading("t") if i != first], self.logs)
        load = self.load
        assert load is not None
        before = load.counts()[0]
        until(lambda: load.counts()[0] > before + 20, self.logs)
        self.proxy.heal()
        until(lambda: self.leading("t") and first not in self.leading("t"), self.logs)
        self.gaps_s["isolate"] = [load.longest_gap_s(began)]

    def trouble(self, seconds: float, every_s: float = 5.0) -> None:
        """Faults at the leader, one every few seconds."""
        end_s = time.monotonic() + seconds
        assert self.load is not None
        while time.monotonic() < end_s:
            began = time.monotonic()
            before = self.load.counts()[0]
            number = self.nodes.index(self.leader("t"))
            span_s = self.chance.choice((1.5, 2.5, 3.5))
            kind = self.chance.choice(FAULTS)
            self.hurt(kind, number, span_s)
            until(lambda n=before: self.load.counts()[0] > n + 20, self.logs, most_s=60)
            self.gaps_s.setdefault(kind, []).append(self.load.longest_gap_s(began))
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))

    def run(self, trouble: Callable[[], None]) -> None:
        """All of it, and the verdict."""
        self.start()
        with Load(self.url, "t") as load:
            self.load = load
            until(lambda: min(load.counts()) > 50, self.logs, most_s=60)
            trouble()
            load.end_puts()
            until(self.is_empty, self.logs, most_s=120)
            load.stop()
        load.judge_done()

    def is_empty(self) -> bool:
        """Whether no task is left at the leader."""
        told = [self.tube("t", i) for i in self.leading("t")]
        return any(row and row[b"ready"] == row[b"taken"] == 0 for row in told)

    def score(self) -> str:
        """What was done."""
        won = [self.figure(i, "tubes_elections_won") for i in range(len(self.nodes))]
        puts, acks = (0, 0) if self.load is None else self.load.counts()
        gaps = "; ".join(
            f"{kind} {sorted(spans)[len(spans) // 2]:.2f} s, worst {max(spans):.2f} s"
            for kind, spans in self.gaps_s.items()
        )
        return (
            f"{dict(self.faults)}, puts {puts}, acks {acks}, elections won since the starts {won}, "
            f"longest time without a put, median of each fault: {gaps}"
        )


def main() -> int:
    """Run for long and print the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--appendfsync", default="everysec")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        chaos = VoteChaos(Path(directory), asked.nodes, asked.seed, asked.appendfsync)
        try:
            chaos.run(lambda: chaos.trouble(asked.minutes * 60))
        finally:
            print(f"seed {asked.seed}, {asked.nodes} nodes: {chaos.score()}")
            chaos.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
