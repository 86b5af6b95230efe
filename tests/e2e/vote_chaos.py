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
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parent)]

from tube_load import Load

from proxied import ProxiedNodes
from raw_resp import Wire, wait_for

FAULTS = ("kill", "stop", "isolate", "cut")


class VoteChaos(ProxiedNodes):
    """One run: nodes behind proxies, one tube, the load on it."""

    def __init__(self, directory: Path, count: int, seed: int, fsync: str = "everysec") -> None:
        super().__init__(directory, count, "--appendonly", "yes", "--appendfsync", fsync)
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.gaps_s: dict[str, list[float]] = {}  # the longest time without a put, by fault
        self.load: Load | None = None

    def start(self) -> None:
        """Start the nodes, wait for the list of voters, make the tube."""
        self.meet()
        first = self.nodes[0].wire()
        count = len(self.nodes)
        wait_for(lambda: self.figure(0, "tubes_voters") == count, self.nodes[0].log, 60)
        assert first("TUBE", "CREATE", "t", "fifo") == b"OK"
        wait_for(lambda: len(self.homes()) == count and len(set(self.homes())) == 1)

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

    def homes(self) -> list[str]:
        """The leader as each node that answers names it."""
        found = []
        for node in self.nodes:
            with contextlib.suppress(OSError, EOFError):
                wire = Wire(node.port, timeout_s=1)
                told = wire("TUBE", "INFO", "t")
                wire.sock.close()
                if isinstance(told, list):
                    row = dict(zip(told[::2], told[1::2], strict=True))
                    found.append(row[b"home"].decode())
        return found

    def leader(self) -> int:
        """The leader that most nodes name."""
        named = Counter(self.homes()).most_common(1)
        return self.ids.index(named[0][0]) if named else 0

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
            own = self.ids[number]
            others = [one for one in self.ids if one != own]
            for other in others if kind == "isolate" else others[: len(others) // 2]:
                if kind == "isolate":
                    self.proxy.freeze(own, other)
                    self.proxy.freeze(other, own)
                else:
                    self.proxy.cut(own, other)
            time.sleep(span_s)
            self.proxy.heal()

    def trouble(self, seconds: float, every_s: float = 5.0) -> None:
        """Faults at the leader, one every few seconds."""
        until = time.monotonic() + seconds
        assert self.load is not None
        while time.monotonic() < until:
            began = time.monotonic()
            before = self.load.counts()[0]
            number = self.leader()
            span_s = self.chance.choice((1.5, 2.5, 3.5))
            kind = self.chance.choice(FAULTS)
            self.hurt(kind, number, span_s)
            wait_for(lambda n=before: self.load.counts()[0] > n + 20, self.what_is, 60)
            self.gaps_s.setdefault(kind, []).append(self.load.longest_gap_s(began))
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))

    def what_is(self) -> str:
        """What the nodes say, for a failure."""
        logs = [node.log()[-1500:] for node in self.nodes]
        return "\n".join(f"{id[:8]} {log}" for id, log in zip(self.ids, logs, strict=True))

    def run(self, seconds: float, every_s: float = 5.0) -> None:
        """All of it, and the verdict."""
        self.start()
        url = "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        with Load(url, "t") as load:
            self.load = load
            wait_for(lambda: min(load.counts()) > 50, self.what_is, 60)
            self.trouble(seconds, every_s)
            load.end_puts()
            wait_for(self.is_empty, self.what_is, 120)
            load.stop()
        load.judge_done()

    def is_empty(self) -> bool:
        """Whether no task is left at the leader."""
        with contextlib.suppress(OSError, EOFError):
            wire = Wire(self.nodes[self.leader()].port, timeout_s=3)
            told = wire("TUBE", "INFO", "t")
            wire.sock.close()
            row = dict(zip(told[::2], told[1::2], strict=True))
            return bool(row[b"ready"] == row[b"taken"] == 0 and row[b"state"] == b"RUNNING")
        return False

    def end(self) -> None:
        """End every process and thread."""
        self.end_nodes()

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
            chaos.run(asked.minutes * 60)
        finally:
            print(f"seed {asked.seed}, {asked.nodes} nodes: {chaos.score()}")
            chaos.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
