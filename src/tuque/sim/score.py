"""The score-card: figures with their denominators, as a table for people and as JSON.

A zero is worth what was looked at: next to each "0 lost" stands how many were checked.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tuque.sim.seeds import Outcome

# promise -> what was checked for it
CHECKED = {
    "S1": "jobs checked for loss",
    "S2": "copies lost",
    "S2e": "everysec losses",
    "S3": "amo deliveries",
    "S4": "acks checked",
    "S5": "deliveries",
    "S6": "deliveries",
    "S7": "delays checked",
    "S8": "retries checked",
    "S9": "ledgers",
    "S10": "S10 looks",
    "S12": "S12 copies checked",
    "S14": "S14 copies checked",
    "S15": "ACKJOB",
    "S16": "refusals checked",
    "L1": "jobs checked for loss",
    "L2": "L2 looks",
    "L3": "L3 looks",
    "L4": "answer times checked",
    "L5": "L5 probes",
    "L6": "L2 looks",
}
TEXTS = {
    "S0": "internal errors",
    "S1": "jobs lost within the budget",
    "S2": "jobs not on the disk though promised (always)",
    "S2e": "jobs lost beyond the window (everysec)",
    "S3": "at-most-once jobs handed out twice",
    "S4": "jobs back after their ack",
    "S5": "ghosts and damage",
    "S6": "deliveries after the TTL",
    "S7": "deliveries before the delay",
    "S8": "retries too early, without faults",
    "S9": "ledgers or tables that do not agree",
    "S10": "unsafe ends of collections",
    "S12": "drains that were not safe to stop",
    "S14": "repairs that were not done",
    "S15": "acks refused for memory",
    "S16": "errors that lied",
    "L1": "jobs never delivered after the heal",
    "L2": "things left in the end",
    "L3": "clients that waited in vain",
    "L4": "ADDJOBs without answer in time",
    "L5": "ADDJOBs that failed though all was well",
    "L6": "nodes that never rest",
    "EMPTY": "seeds that checked nothing",
}


class Score:
    """Adds up outcomes."""

    def __init__(self) -> None:
        self.seeds = 0
        self.clean = 0
        self.faultless = 0
        self.counts: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.broken: dict[str, int] = {}
        self.failed: list[tuple[str, list[str]]] = []
        self.events = 0
        self.true_us = 0
        self.wall_s = 0.0

    def take(self, one: Outcome) -> None:
        """One seed more."""
        self.seeds += 1
        self.faultless += not one.faults
        self.events += one.events
        self.true_us += one.true_us
        self.wall_s += one.wall_s
        for what, count in one.counts.items():
            self.counts[what] = self.counts.get(what, 0) + count
        for what, count in one.seen.items():
            self.seen[what] = self.seen.get(what, 0) + count
        if one.findings:
            self.failed.append((one.seed, one.findings))
            for text in one.findings:
                rule = text.split(" ", 1)[0]
                self.broken[rule] = self.broken.get(rule, 0) + 1
        else:
            self.clean += 1

    def as_json(self, first: int, elapsed_s: float) -> str:
        """All figures."""
        figures: dict[str, Any] = {
            "commit": commit(),
            "first_seed": first,
            "seeds": self.seeds,
            "clean": self.clean,
            "failure_rate_below": round(3 / max(self.clean, 1), 5) if not self.failed else None,
            "simulated_s": round(self.true_us / 1e6),
            "elapsed_s": round(elapsed_s, 1),
            "events": self.events,
            "broken": self.broken,
            "counts": dict(sorted(self.counts.items())),
            "sometimes": dict(sorted(self.seen.items())),
            "failed": self.failed,
        }
        return json.dumps(figures, indent=1)

    def table(self, elapsed_s: float) -> str:
        """The figures for people."""
        lines = [
            f"seeds                {self.seeds} ({self.clean} clean, {self.faultless} faultless)",
            f"simulated            {self.true_us / 3.6e9:.2f} h, {self.events} events",
            f"speed                {self.seeds / elapsed_s:.2f} seeds/s, "
            f"{self.true_us / 1e6 / elapsed_s:.0f} simulated s/s",
        ]
        if not self.failed and self.clean:
            lines.append(f"failure rate         below {300 / self.clean:.2f} % of seeds (95 %)")
        lines.append("")
        for rule, text in TEXTS.items():
            checked = self.counts.get(CHECKED.get(rule, ""), 0)
            of = f" of {checked}" if rule in CHECKED else ""
            lines.append(f"{rule:6} {self.broken.get(rule, 0):6}{of:12}  {text}")
        lines += ["", "faults that hit work in flight (of those that happened):"]
        for what in sorted(self.counts):
            if what.startswith("fault "):
                kind = what[6:]
                hit = self.counts.get(f"effective {kind}", 0)
                lines.append(f"  {kind:28} {hit:6} of {self.counts[what]}")
        lines += ["", "rare states that were met:"]
        lines += [f"  {what:48} {count}" for what, count in sorted(self.seen.items())]
        return "\n".join(lines)


def commit() -> str:
    """What is being tested, as git names it; "" where there is no git."""
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
