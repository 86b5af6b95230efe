"""The score-card: figures with their denominators, as a table and as JSON.

A zero means only as much as was checked: each "0 lost" is shown with the number of checks.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from sim.judges.again import CAUSES
from sim.judges.rare import RARE
from sim.runs.seeds import Outcome

# promise -> what was checked for it
CHECKED = {
    "lost": "jobs checked for loss",
    "not-on-disk": "copies lost",
    "window": "everysec losses",
    "twice": "amo deliveries",
    "custody": "custodies checked",
    "came-back": "acks checked",
    "damage": "deliveries",
    "after-ttl": "deliveries",
    "before-delay": "delays checked",
    "early-retry": "retries checked",
    "early-again": "early redeliveries looked at",
    "queued-twice": "queued jobs looked at",
    "ledger": "ledgers",
    "unsafe-end": "ends looked at",
    "drain": "drain copies checked",
    "repair": "repair copies checked",
    "ack-refused": "ACKJOB",
    "false-error": "refusals checked",
    "undelivered": "jobs checked for loss",
    "leftover": "looks for leftovers",
    "in-vain": "looks for waiting",
    "no-answer": "answer times checked",
    "add-fails": "probes",
    "lease": "batches",
    "fetch": "second readings",
    "commit": "COMMIT ok",
    "leased": "hand-outs beside leases",
    "fence": "COMMITs of a fenced epoch",
    "once": "rows and keys checked",
    "publish-part": "publications checked",
    "staged-seen": "STAGE ok",
    "restless": "looks for leftovers",
    "tube-arrow": "tube changes",
    "tube-held": "tube takes",
    "tube-fence": "calls of holders",
    "tube-order": "tube takes",
    "tube-number": "tube puts",
    "tube-time": "tube timers",
    "tube-full": "tube puts",
    "tube-disk": "ends of homes",
    "tube-session": "sessions without connections",
    "tube-count": "looks into tubes",
    "tube-wait": "looks for waiting takes",
    "tube-turn": "turns of puts and takes",
    "tube-pause": "looks at pauses",
    "tube-twice": "looks for second homes",
    "tube-stood": "looks at homes that stood still",
    "tube-home": "switchovers",
    "tube-sync": "synced ops looked for",
    "tube-pri": "pris given",
    "life-attempts": "looks at lives",
    "life-count": "pairs of runs",
    "life-two": "pairs of runs",
    "life-fence": "FAILs of old runs",
    "life-cancel": "STARTs after a cancel",
    "life-reason": "looks at letters",
    "life-crash": "looks at crashes",
    "life-result": "results read again",
    "life-outcome": "ends of lives",
    "life-stuck": "ends of lives",
    "life-wait": "WAITJOBs",
    "life-rate": "paced replays",
    "task-limit": "looks at limits",
    "task-rate": "takes with a rate",
    "task-turn": "turns of groups",
    "task-unique": "looks at unique keys",
    "task-held": "holds of tasks",
    "task-attempts": "runs of tasks",
    "task-ended": "ends of tasks",
    "task-lost": "tasks looked for at the end",
    "task-stuck": "tasks looked for at the end",
    "schedule-lost": "instants looked for",
    "schedule-twice": "instants that made a job",
    "schedule-missed": "instants looked for",
    "group-early": "callbacks",
    "group-twice": "callbacks",
    "group-results": "ends of children read",
    "group-open": "ends of groups",
    "group-lost": "ends of groups",
    "topic-part": "looks at topics",
    "topic-twice": "looks at topics",
    "topic-lost": "looks at topics",
    "topic-apart": "tables of subscriptions",
}
TEXTS = {
    "internal": "internal errors",
    "lost": "jobs lost within the budget",
    "not-on-disk": "jobs missing on the disk (always)",
    "window": "jobs lost outside the window (everysec)",
    "twice": "at-most-once jobs delivered twice",
    "custody": "at-most-once jobs lost without a crash",
    "came-back": "jobs delivered after their ack",
    "damage": "ghosts and damage",
    "after-ttl": "deliveries after the TTL",
    "before-delay": "deliveries before the delay",
    "early-retry": "early retries, without faults",
    "early-again": "jobs delivered before RETRY after a restart, though a node knew",
    "queued-twice": "jobs queued on two linked nodes after the heal",
    "ledger": "inconsistent ledgers or tables",
    "unsafe-end": "collections ended too early",
    "drain": "drained nodes that were not safe to stop",
    "repair": "repairs reported but not done",
    "ack-refused": "acks refused for lack of memory",
    "false-error": "false errors",
    "undelivered": "jobs never delivered after the heal",
    "leftover": "data left over at the end",
    "in-vain": "clients that waited in vain",
    "no-answer": "ADDJOBs without a reply in time",
    "add-fails": "ADDJOBs that failed although all was well",
    "restless": "nodes that never become idle",
    "lease": "batches that changed",
    "fetch": "reads of a batch that differ",
    "commit": "COMMITs that did too little or too much",
    "leased": "leased jobs delivered to others",
    "fence": "fenced epochs that committed",
    "once": "rows and keys written twice",
    "publish-part": "versions published in part",
    "staged-seen": "staged rows seen before PUBLISH",
    "tube-arrow": "illegal transitions of tasks",
    "tube-held": "tasks held twice, or two of a sub-queue",
    "tube-fence": "tokens or holders mistaken",
    "tube-order": "tasks taken out of order",
    "tube-number": "task numbers given twice",
    "tube-time": "tasks that returned or ended early or late",
    "tube-full": "tubes with more tasks than their capacity",
    "tube-disk": "tubes that differ on the disk",
    "tube-session": "tasks that left a live session, or left late",
    "tube-count": "tubes that differ from their changes",
    "tube-wait": "takes that waited in vain",
    "tube-turn": "takes and puts served out of order",
    "tube-pause": "tubes that ignored a PAUSE",
    "tube-twice": "changes by two leaders at the same time",
    "tube-stood": "leaders that continued after a standstill although there was a new one",
    "tube-home": "tubes without a leader, or changed by a move",
    "tube-sync": "SYNC operations lost by a failover",
    "tube-pri": "tasks with another pri than they were given",
    "life-attempts": "attempts counted for jobs that were not begun",
    "life-count": "attempts lost, or counted otherwise by another holder",
    "life-two": "two runs of one job, and neither worker was silent",
    "life-fence": "FAILs of old runs that changed something",
    "life-cancel": "jobs that began after they were cancelled",
    "life-reason": "dead letters with the reason of another attempt",
    "life-crash": "crashes counted as attempts, twice, or beyond crashes-max",
    "life-result": "results that changed after they were read",
    "life-outcome": "jobs with ATTEMPTS that ended without an outcome",
    "life-stuck": "jobs still open at the end",
    "life-wait": "WAITJOBs that named a job that had not ended so",
    "life-rate": "replays faster than their RATE",
    "task-limit": "limits with more tasks at work than places",
    "task-rate": "takes faster than their RATE",
    "task-turn": "groups that waited longer than one round",
    "task-unique": "unique keys that two tasks had",
    "task-held": "tasks that two workers had",
    "task-attempts": "attempts of tasks that nobody began",
    "task-ended": "tasks that came again after their end",
    "task-lost": "tasks lost by a failover",
    "task-stuck": "tasks that waited in vain",
    "schedule-lost": "schedules lost by a failover",
    "schedule-twice": "instants that made two jobs",
    "schedule-missed": "instants that made no job",
    "group-early": "callbacks before all children had ended",
    "group-twice": "callbacks that came again after their end",
    "group-results": "callbacks with other ends than the children had",
    "group-open": "groups of jobs that never ended",
    "group-lost": "groups of jobs without their callback",
    "topic-part": "jobs of a topic that came to some of its queues",
    "topic-twice": "jobs of a topic that came twice to a queue",
    "topic-lost": "answered jobs of a topic that were lost",
    "topic-apart": "subscriptions that nodes do not agree about",
    "empty": "seeds that checked nothing",
}
# the rules that allow two leaders of a tube to run at the same time
TWO_HOMES = {
    "T19.4": "with disks lost",
    "T20.3": "after a power cut under appendfsync no",
    "T21.1": "of two nodes, by force",
}


class Score:
    """Adds up outcomes."""

    def __init__(self) -> None:
        self.seeds = 0
        self.clean = 0
        self.faultless = 0
        self.counts: dict[str, int] = {}
        self.calm: dict[str, int] = {}  # of seeds without faults
        self.settling_us: list[int] = []
        self.everysec_us = (
            0  # age of the oldest job lost under everysec, without the stall of its disk
        )
        self.seen: dict[str, int] = {}
        self.broken: dict[str, int] = {}
        self.failed: list[tuple[str, list[str]]] = []
        self.events = 0
        self.true_us = 0
        self.wall_s = 0.0

    def take(self, one: Outcome) -> None:
        """Add the outcome of a seed."""
        self.seeds += 1
        self.faultless += not one.faults
        self.events += one.events
        self.true_us += one.true_us
        self.wall_s += one.wall_s
        for what, count in one.counts.items():
            self.counts[what] = self.counts.get(what, 0) + count
            if not one.faults:
                self.calm[what] = self.calm.get(what, 0) + count
        for what, count in one.seen.items():
            self.seen[what] = self.seen.get(what, 0) + count
        if "settling" in one.most:
            self.settling_us.append(one.most["settling"])
        self.everysec_us = max(self.everysec_us, one.most.get("everysec loss", 0))
        if one.findings:
            self.failed.append((one.seed, one.findings))
            for text in one.findings:
                rule = text.split(" ", 1)[0]
                self.broken[rule] = self.broken.get(rule, 0) + 1
        else:
            self.clean += 1

    def homes(self) -> str:
        """What moves did to tubes: what must never happen, and what may."""
        counts, broken = self.counts, self.broken
        synced = counts.get("synced ops looked for", 0)
        allowed = [(rule, text, counts.get(f"takes {rule}", 0)) for rule, text in TWO_HOMES.items()]
        doubled = [
            f"{counts.get(f'doubled takes {rule}', 0)} {text} ({rule})" for rule, text, _ in allowed
        ]
        return (
            f"switchovers          {counts.get('switchovers', 0)} "
            f"({counts.get('failovers by force', 0)} by force), "
            f"doubled takes {counts.get('doubled takes', 0)} "
            f"of {counts.get('takes of one home', 0)} where one home is promised (T20.4), "
            f"lost synced ops {broken.get('tube-sync', 0)} of {synced}\n"
            f"where two may run    doubled takes of {sum(takes for _, _, takes in allowed)}: "
            f"{', '.join(doubled)}"
        )

    def again(self) -> str:
        """How often jobs were delivered more than once."""
        counts, calm = self.counts, self.calm
        often, all_often = calm.get("redeliveries", 0), counts.get("redeliveries", 0)
        given, all_given = calm.get("deliveries", 0), counts.get("deliveries", 0)
        return (
            f"redeliveries         {often} of {given} without faults (RETRY, NACK; for others see "
            f"early-retry), {all_often - often} of {all_given - given} with faults\n"
            "by cause             "
            + ", ".join(f"{cause} {counts.get(f'again: {cause}', 0)}" for cause in CAUSES)
        )

    def settling(self) -> str:
        """How long after the heal nodes were linked and had all copies again."""
        return (
            f"settled after        {nth(self.settling_us, 50) / 1e6:.2f} s (p50), "
            f"{nth(self.settling_us, 99) / 1e6:.2f} s (p99) from the heal"
        )

    def window(self) -> str:
        """Losses under everysec."""
        return (
            f"everysec             {self.counts.get('everysec losses', 0)} jobs lost, the oldest "
            f"{self.everysec_us / 1e6:.2f} s before the crash (and what its fsync took)"
        )

    def failure_rate(self) -> str:
        """An upper bound of the share of failing seeds (95 %)."""
        if self.failed or not self.clean:
            share = 100 * len(self.failed) / max(1, self.seeds)
            return f"failure rate         {share:.2f} % of seeds"
        return f"failure rate         below {300 / self.clean:.2f} % of seeds (95 %)"

    def never_met(self) -> list[str]:
        """Rare states that no seed met."""
        return [state for state in RARE if state not in self.seen]

    def as_json(self, first: int, elapsed_s: float) -> str:
        """All figures as data."""
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
            "settled_p50_us": nth(self.settling_us, 50),
            "settled_p99_us": nth(self.settling_us, 99),
            "everysec_oldest_us": self.everysec_us,
            "counts_without_faults": dict(sorted(self.calm.items())),
            "never_met": self.never_met(),
            "counts": dict(sorted(self.counts.items())),
            "sometimes": dict(sorted(self.seen.items())),
            "failed": self.failed,
        }
        return json.dumps(figures, indent=1)

    def table(self, elapsed_s: float) -> str:
        """The figures as text."""
        lines = [
            f"seeds                {self.seeds} ({self.clean} clean, {self.faultless} faultless)",
            f"simulated            {self.true_us / 3.6e9:.2f} h, {self.events} events",
            f"speed                {self.seeds / elapsed_s:.2f} seeds/s, "
            f"{self.true_us / 1e6 / elapsed_s:.0f} simulated s/s",
        ]
        lines += [self.failure_rate(), self.again(), self.settling(), self.window(), self.homes()]
        lines.append("")
        for rule, text in TEXTS.items():
            checked = self.counts.get(CHECKED.get(rule, ""), 0)
            of = f" of {checked}" if rule in CHECKED else ""
            lines.append(f"{rule:12} {self.broken.get(rule, 0):6}{of:12}  {text}")
        lines += ["", "faults that hit work in flight (of those that happened):"]
        for what in sorted(self.counts):
            if what.startswith("fault "):
                kind = what[6:]
                hit = self.counts.get(f"effective {kind}", 0)
                lines.append(f"  {kind:28} {hit:6} of {self.counts[what]}")
        never = self.never_met()
        lines += ["", f"rare states that were met: {len(RARE) - len(never)} of {len(RARE)}"]
        lines += [f"  {what:56} {self.seen[what]}" for what in RARE if what in self.seen]
        lines += ["never met:"] * bool(never) + [f"  {what}" for what in never]
        return "\n".join(lines)


def nth(figures: list[int], percent: int) -> int:
    """The percentile of the figures; 0 if there are none."""
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0


def commit() -> str:
    """The tested commit according to git; "" without git."""
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
