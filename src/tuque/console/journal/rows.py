"""Records in `tuque journal show`: names and values, and a line to read.

Decides which fields of each kind are shown; core/records/read.py decodes the records.
"""

from __future__ import annotations

import textwrap
import time
from typing import Any, Final

from tuque.core.model.job import STATE_NAMES
from tuque.core.model.stats import CAUSES
from tuque.core.model.task import MAX_MS, STATUS_NAMES
from tuque.core.model.work import OUTCOME_NAMES, run_text
from tuque.core.records import jobs as rec
from tuque.core.records.leadership import (
    COMPLETE,
    GONE,
    IN_FORCE,
    MINE,
    HomeRecord,
    VoteRecord,
)
from tuque.core.records.leases import LeaseRecord
from tuque.core.records.read import Record, has_id
from tuque.core.records.staged import NO_ID, StageRecord
from tuque.core.records.tubes import TaskRecord
from tuque.core.records.work import LifeRecord
from tuque.core.tables.topics import Subscription
from tuque.terminal import printable
from tuque.tubes.model.grants import CALL, TRUNCATE, USER

INDENT: Final = 8
INSTANTS_MS: Final = (
    "qtime_ms",
    "expire_ms",
    "until_ms",
    "drop_ms",
    "since_ms",
    "dead_ms",
    "ended_ms",
)
INSTANTS_NS: Final = ("ctime_ns", "instant_ns")
RUN_NAMES: Final = ("none", "live", "released", "failed")  # by state of a run
LEFT_OUT: Final = (0, "", False)  # left out as meaningless; but a task may have the number 0


def fields(r: Record) -> dict[str, Any]:
    """The fields of a record to show."""
    row: dict[str, Any] = {"record": rec.KIND_NAMES[r.kind]}
    if has_id(r.kind):
        row["id"] = r.id.decode("latin-1")
    if rec.ADD <= r.kind <= rec.FIRST:
        row["state"] = STATE_NAMES[r.state].decode()
        row["qtime_ms"] = r.qtime_ms
        row.update(nacks=r.nacks, additional_deliveries=r.deliveries, delivered=r.delivered_count)
    if r.kind == rec.ADD:
        row.update(queue=text(r.queue), body_bytes=len(r.body), retry_s=r.retry_s)
        row.update(delay_s=r.delay_s, expire_ms=r.expire_ms, ctime_ns=r.ctime_ns)
        if r.holders != 1:
            row["holders"] = slots(r.holders)
    elif r.kind == rec.HOLDERS:
        row["holders"] = slots(r.holders)
    elif r.kind == rec.ACKED_AT:
        row.update(expire_ms=r.expire_ms, holders=slots(r.holders))
    elif r.kind == rec.PEER:
        row.update(slot=r.a, node=text(r.node_id), incarnation=r.b)
    elif r.kind in (rec.ACK, rec.TOMB):
        row["expire_ms"] = r.expire_ms
    elif r.kind == rec.REMOVE:
        row["cause"] = CAUSES[r.bits] if r.bits < len(CAUSES) else str(r.bits)
    elif r.kind == rec.PAUSE:
        row.update(queue=text(r.queue), paused=("none", "in", "out", "all")[r.bits & 3])
        if r.a != 0:
            row["instant_ns"] = r.a
    elif r.kind == rec.END:
        row.update(jobs=r.a, records=r.b)
    elif rec.LEASE_GROUP <= r.kind <= rec.LEASE_DROP:
        row.update(lease_row(r.kind, r.lease))
    elif rec.STAGED <= r.kind <= rec.APP:
        row.update(staged_row(r.kind, r.stage))
    elif rec.TUBE <= r.kind <= rec.GRANT:
        row.update(tube_row(r.kind, r.task))
    elif rec.TUBE_HOME <= r.kind <= rec.TUBE_HOLDER:
        row.update(home_row(r.kind, r.home))
    elif rec.LIFE <= r.kind <= rec.OUTCOME:
        row.update(life_row(r.kind, r.life))
    elif rec.VOTERS <= r.kind <= rec.VOTERS_NEXT or r.kind == rec.VOTE_MARKS:
        row.update(vote_row(r.kind, r.vote))
    elif r.kind == rec.TOPIC and r.topic.one is not None:
        row.update(topic_row(r.topic.one))
    elif r.kind == rec.GAP:
        row.update(missing_records=r.a, bytes=r.b)
    return row


def lease_row(kind: int, r: LeaseRecord) -> dict[str, Any]:
    """A lease group, or one of its batches."""
    row: dict[str, Any] = {"group": text(r.name), "epoch": r.epoch, "batch": r.seq}
    if kind == rec.LEASE_GROUP:
        row.update(committed=r.acked_seq, owner=text(r.names[1]))
    elif kind == rec.LEASE_BATCH:
        row.update(first=r.first, positions=len(r.ids), jobs=r.total)
        row.update(parts=r.parts, drop_ms=r.drop_ms)
    return row


def staged_row(kind: int, r: StageRecord) -> dict[str, Any]:
    """The fields of a record of staged writes, without bodies."""
    if kind == rec.KEY:
        return {"id": text(r.id), "key": text(r.key[:-1]), "until_ms": r.until_ms}
    if kind == rec.APP:
        return {"app": text(r.app), "version": r.version}
    row: dict[str, Any] = {"txn": text(r.txn)}
    if kind == rec.PUBLISHED:
        row.update(app=text(r.app), version=r.version, attempts=list(map(text, r.attempts)))
        row["ids"] = [None if id == NO_ID else text(id) for id in r.ids]
        return row
    row["attempt"] = text(r.attempt)
    if kind == rec.STAGED:
        row.update(position=r.position, until_ms=r.until_ms, queue=text(r.queue))
        row["body_bytes"] = len(r.body)
    return row


def topic_row(one: Subscription) -> dict[str, Any]:
    """A subscription, or its removal."""
    row: dict[str, Any] = {"topic": text(one.topic), "queue": text(one.queue)}
    row["filters"] = list(map(text, one.filters))
    return row | {"version": one.version, "node": text(one.node), "is_gone": one.is_gone}


def life_row(kind: int, r: LifeRecord) -> dict[str, Any]:
    """A job's life or its outcome, without headers, details and results."""
    life, outcome = r.life, r.outcome
    row: dict[str, Any]
    if kind == rec.OUTCOME and outcome is not None:
        row = {"outcome": text(OUTCOME_NAMES[outcome.kind]), "run": text(run_text(outcome.run))}
        row.update(worker=text(outcome.worker), reason=text(outcome.reason))
        result = outcome.result
        row["result_bytes"] = None if result is None else len(result)
        return row | {"ended_ms": outcome.ended_ms, "until_ms": outcome.until_ms}
    if life is None:
        return {}
    row = {"run": text(run_text(life.run)), "run_state": RUN_NAMES[life.run_state]}
    row.update(failed=life.failed, attempts=life.terms.attempts, starts=life.starts)
    row.update(replays=life.replays, since_ms=life.since_ms, worker=text(life.worker))
    row.update(is_resting=life.is_resting, is_cancelled=life.is_cancelled)
    if life.last is not None:
        row.update(cause=text(life.last.cause), reason=text(life.last.reason))
    if life.is_dead:
        row.update(dead=text(life.dead_cause), dead_ms=life.dead_ms, origin=text(life.origin))
    return row


def tube_row(kind: int, r: TaskRecord) -> dict[str, Any]:
    """The fields of a record of tubes, without bodies and uuids."""
    if kind == rec.TUBE:
        row = {"tube": text(r.queue), "type": text(r.names[1]), "next_number": r.next_number}
        for name, value in (("ttl_ms", r.ttl_ms), ("ttr_ms", r.ttr_ms)):
            row[name] = value if value < MAX_MS else None  # for ever
        return row | {"temporary": r.flag, "pri": r.pri, "capacity": r.capacity}
    if kind == rec.TUBE_DROP:
        return {"tube": text(r.queue)}
    if kind == rec.SESSION:
        return {"session": r.number, "user": text(r.user), "is_over": r.flag}
    if kind == rec.GRANT:
        row = {"tube": text(r.queue), "prefix": text(r.prefix), "call": bool(r.bits & CALL)}
        kind_of = "user" if r.user.startswith(USER) else "role"
        return row | {kind_of: text(r.user[1:]), "truncate": bool(r.bits & TRUNCATE)}
    if kind == rec.TUBE_CFG:
        return {"ttr_ms": r.ttr_ms, "in_replicaset": r.flag, "tokens_up_to": r.token}
    row = {"id": text(r.id), "status": STATUS_NAMES[r.status].decode(), "token": r.token}
    row.update(qtime_ms=r.qtime_ms, session=r.owner, delivered=r.delivered_count)
    if kind == rec.TASK_ADD:
        row.update(tube=text(r.queue), number=r.number, pri=r.pri, body_bytes=len(r.body))
        row["utube"] = text(r.subqueue)
    return row


def home_row(kind: int, r: HomeRecord) -> dict[str, Any]:
    """The leader of a tube, and what this node has of it; or a session that holds tasks there."""
    if kind == rec.TUBE_HOLDER:
        return {"tube": text(r.name), "session": r.number, "user": text(r.user)}
    row = {"tube": text(r.name), "epoch": r.epoch, "home": text(r.home[:8])}
    row.update(is_here=r.flags & MINE != 0, is_complete=r.flags & COMPLETE != 0, change=r.seq)
    return row | {"sync": r.sync, "is_dropped": r.flags & GONE != 0}


def vote_row(kind: int, r: VoteRecord) -> dict[str, Any]:
    """The list of voters, a step to the next one, or a vote of this node."""
    if kind == rec.VOTERS:
        row = {"list": r.number, "origin": r.origin.hex(), "is_in_force": r.step == IN_FORCE}
        voters = [f"{text(node_id[:8])}:{right}" for node_id, right in r.voters]
        return row | {"right": r.right, "voters": voters}
    if kind == rec.VOTERS_NEXT:
        row = {"list": r.number, "origin": r.origin.hex(), "attempt": r.attempt}
        voters = [f"{text(node_id[:8])}:{right}" for node_id, right in r.voters]
        return row | {"node": text(r.node[:8]), "written": r.written_attempt, "voters": voters}
    if kind == rec.VOTE_MARKS:
        others = [f"{text(node_id[:8])}:{right}:{mark}" for node_id, right, mark in r.marks]
        return {"right": r.right, "mark": r.mark, "others": others}
    row = {"tube": text(r.name), "epoch": r.epoch, "stands_with": text(r.node[:8])}
    return row | {"whole_epoch": r.whole_epoch, "whole_change": r.whole_seq}


def slots(nodes: int) -> list[int]:
    """The slots of a set of nodes; earlier `peer` records name them, 0 is the own node."""
    return [slot for slot in range(nodes.bit_length()) if nodes >> slot & 1]


def text(name: bytes) -> str:
    """A queue name as text, whatever its bytes."""
    return name.decode("utf-8", "backslashreplace")


def line_of(row: dict[str, Any], width: int = 0) -> str:
    """The record as a line: sequence, instant, kind, id, then its fields.

    Text beyond `width` continues in indented lines; 0: one line.
    """
    at = instant(row["at_ms"])
    skipped = ("seq", "at_ms", "record", "id")
    told = {k: v for k, v in row.items() if k == "number" or (v is not None and v not in LEFT_OUT)}
    words = [said(k, v, at) for k, v in told.items() if k not in skipped]
    rest = " ".join([row["id"], *words] if "id" in row else words)
    line = f"{row['seq']:>7} {at} {row['record']:<11} {rest}".rstrip()
    if not width or len(line) <= width:
        return line
    return "\n".join(
        textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def said(name: str, value: object, at: str) -> str:
    """A field and its value; an instant as a time, with its day if not the record's."""
    if name in INSTANTS_MS and isinstance(value, int):
        name, value = name.removesuffix("_ms"), instant(value)
    elif name in INSTANTS_NS and isinstance(value, int):
        name, value = name.removesuffix("_ns"), instant(value // 1_000_000)
    if isinstance(value, str) and value[:11] == at[:11] and len(value) == len(at):
        value = value[11:]
    return f"{name}={printable(str(value))}"


def instant(at_ms: int) -> str:
    """A local wall clock time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
