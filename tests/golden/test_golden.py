"""Golden traces: what a node records, tells and answers, step by step.

A trace is prose, then blocks: commands, a line of dashes, what came of them. Jobs are J1, J2, ...
in the order in which they appear; instants are ms after the start. A trace that begins with
`nodes 3` is of the nodes A, B and C (cluster_trace.py). `GOLDEN_REWRITE=1 pytest tests/golden`
writes what the nodes do now; a person reads the difference.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from cluster_trace import ClusterTrace  # noqa: E402  the path is set above

from raw_resp import NULL, Err  # noqa: E402  as above
from sim.engine.clock import START_MS  # noqa: E402  as above
from tuque.core.model.job import STATE_NAMES  # noqa: E402  the path is set above
from tuque.core.model.stats import CAUSES  # noqa: E402  the path is set above
from tuque.core.model.work import run_text  # noqa: E402  as above
from tuque.core.msgs.records import (  # noqa: E402  as above
    KINDS,
    AppRow,
    LeaseDrop,
    LeaseGroup,
    PauseRow,
    Published,
    Row,
    StageDrop,
)
from tuque.core.records.jobs import (  # noqa: E402  as above
    ACK,
    FIRST,
    KEY,
    KIND_NAMES,
    LEASE_BATCH,
    LIFE,
    REMOVE,
    STAGED,
)
from tuque.core.records.leases import (  # noqa: E402  as above
    HOW_EXPIRED,
    LeaseRecord,
)
from tuque.core.records.read import Record  # noqa: E402  as above
from tuque.core.records.staged import (  # noqa: E402  as above
    NO_ID,
    StageRecord,
)
from world import World  # noqa: E402  as above
from world_wires import Status  # noqa: E402  as above

RUNS = ["none", "live", "released", "failed"]


class Trace:
    """One run of a trace: a node, its clients, and names for its jobs."""

    def __init__(self) -> None:
        self.world = World(events=True)
        self.world.node().records()
        self.names: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        self.seen_events = 0
        self.clients = {1: self.world.run}

    def close(self) -> None:
        """End of the trace."""
        self.world.check()

    def name(self, job_id: bytes) -> str:
        """J1, J2, ... in the order of appearance."""
        if job_id not in self.names:
            self.names[job_id] = f"J{len(self.names) + 1}"
            self.ids[self.names[job_id]] = job_id
        return self.names[job_id]

    def run(self, line: str) -> list[str]:
        """Carry out one command line; what came of it."""
        head, _, rest = line.partition(" ")
        if head == "pass":
            self.world.pass_ms(int(rest.removesuffix("ms")))
        else:
            assert head == "client", line
            number, _, command = rest.partition(": ")
            while int(number) not in self.clients:
                self.clients[len(self.clients) + 1] = self.world.wire()
            session = self.clients[int(number)]
            words = [self.ids.get(word, word.encode()) for word in command.split()]
            reply = session(*words)
            return self.records() + self.events() + self.reply(int(number), reply) + self.woken()
        return self.records() + self.events() + self.woken()

    def records(self) -> list[str]:
        """What went to the journal."""
        lines = []
        for r in self.world.node().records():
            kind = "state" if r.kind == FIRST else KIND_NAMES[r.kind]
            lines.append(f"  record {kind} {self.record_text(r)}")
        return lines

    def record_text(self, r: Record) -> str:
        """The fields of a record that matter."""
        if r.kind == REMOVE:
            return f"{self.name(r.id)} {CAUSES[r.bits]}"
        if r.kind == ACK:
            return f"{self.name(r.id)} until +{r.expire_ms - START_MS}"
        if r.kind == LEASE_BATCH:
            return self.lease_text(r.lease)
        if r.kind in (STAGED, KEY):
            return self.stage_text(r.kind, r.stage)
        if r.kind in KINDS and r.row is not None:
            return self.row_text(r.row)
        if r.kind == LIFE and r.life.life is not None:
            life = r.life.life
            run = run_text(life.run).decode()
            return f"{self.name(r.id)} run {run} {RUNS[life.run_state]}, failed {life.failed}"
        due = f"due +{r.qtime_ms - START_MS}" if r.qtime_ms else "no due time"
        text = f"{self.name(r.id)} {STATE_NAMES[r.state].decode()}, {due}"
        if r.kind != FIRST and (r.nacks or r.deliveries):
            text += f", nacks {r.nacks}, additional {r.deliveries}"
        return text

    def stage_text(self, kind: int, r: StageRecord) -> str:
        """The fields of a record of staged writes that matter."""
        if kind == STAGED:
            until = f"until +{r.until_ms - START_MS}"
            return f"{r.txn.decode()} {r.attempt.decode()} {r.position}, {until}"
        return f"{r.key[:-1].decode()} {self.name(r.id)} until +{r.until_ms - START_MS}"

    def row_text(self, r: Row) -> str:
        """The fields of a rare record that matter."""
        if isinstance(r, PauseRow):
            return f"{r.queue.decode()} {r.bits}"
        if isinstance(r, AppRow):
            return f"{r.app.decode()} {r.version}"
        if isinstance(r, StageDrop):
            return f"{r.txn.decode()} {r.attempt.decode()}".strip()
        if isinstance(r, LeaseGroup):
            name = r.names[0].decode()
            return f"{name} epoch {r.epoch}, last {r.last_seq}, committed {r.acked_seq}"
        if isinstance(r, LeaseDrop):
            return f"{r.name.decode()} batch {r.seq}"
        assert isinstance(r, Published)
        jobs = " ".join("-" if id == NO_ID else self.name(id) for id in r.ids)
        attempts = " ".join(name.decode() for name in r.attempts)
        return f"{r.app.decode()} {r.version}: {r.txn.decode()} {attempts}: {jobs}"

    def lease_text(self, r: LeaseRecord) -> str:
        """The fields of a batch of a lease that matter."""
        name = r.name.decode()
        jobs = " ".join(
            f"{self.name(id)}:{'none' if mark < 0 else mark}"
            for id, mark in zip(r.ids, r.marks, strict=True)
        )
        expired = ", expired" if r.how & HOW_EXPIRED else ""
        return f"{name} batch {r.seq} in {r.parts}{expired}: {jobs}"

    def events(self) -> list[str]:
        """What went to the event stream."""
        rows = self.world.node().events()
        new = rows[self.seen_events :]
        self.seen_events = len(rows)
        return [f"  event {kind} {self.name(job_id)}" for kind, job_id in new]

    def woken(self) -> list[str]:
        """Replies to clients that waited."""
        lines = []
        for number, session in self.clients.items():
            lines += self.reply(number, session.take())
        return lines

    def reply(self, number: int, value: Any) -> list[str]:
        """One reply as a line."""
        return [] if value is None else [f"  client {number} < {self.text(value)}"]

    def text(self, value: Any) -> str:
        """A reply value with names for ids."""
        if value is NULL:
            return "null"
        if isinstance(value, Err):
            return f"-{value}"
        if isinstance(value, Status):
            return f"+{self.name(value) if value.startswith(b'D-') else value.decode()}"
        if isinstance(value, list):
            return "[" + " ".join(self.text(item) for item in value) + "]"
        if isinstance(value, bytes):
            return self.name(value) if value.startswith(b"D-") else value.decode()
        return str(value)


def replay(text: str) -> str:
    """The trace with what the node does now, or the nodes of one that begins with `nodes N`."""
    nodes = re.search(r"^nodes (\d)\n", text, re.M)
    trace: Trace | ClusterTrace = ClusterTrace(int(nodes[1])) if nodes else Trace()
    out: list[str] = []
    for block in text.strip().split("\n\n"):
        commands = block.partition("\n----")[0].splitlines()
        out += commands
        if not commands[0].startswith(("#", "nodes ")):
            out.append("----")
            for command in commands:
                out += trace.run(command)
        out.append("")
    trace.close()
    return "\n".join(out)


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    text = path.read_text("utf-8")
    now = replay(text)
    if os.environ.get("GOLDEN_REWRITE"):
        path.write_text(now, "utf-8")
    assert now == text, f"{path.name} changed: GOLDEN_REWRITE=1 writes it anew"


def test_there_are_traces() -> None:
    assert len(list(HERE.glob("*.txt"))) >= 8
