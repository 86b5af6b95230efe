"""Restores staged jobs, publications and keys from the journal (SPEC Z6).

Records are applied in order during the load; the result enters the node at the end. Applying a
record twice changes nothing: a job of an attempt has its position, a publication its version.
"""

from typing import final

from mypy_extensions import i32, i64, u8

from tuque.core.model.job import ACTIVE, QUEUED, Job
from tuque.core.model.work import Life
from tuque.core.msgs.records import AppRow, Published, StageDrop, StagedWork
from tuque.core.node.node import Node
from tuque.core.records.jobs import (
    KEY,
    STAGED,
)
from tuque.core.records.read import Record
from tuque.core.records.staged import NO_ID, StageRecord, add_work
from tuque.core.staged.stage import add_staged, begin_attempt, watch
from tuque.core.tables.dedupe_keys import Kept, full_key
from tuque.core.tables.staged import (
    APP_BYTES,
    App,
    Staged,
    repl_of,
)


@final
class Draft:
    """An attempt as read so far."""

    def __init__(self) -> None:
        self.jobs: list[Staged] = []
        self.until_ms: i64 = 0


@final
class StageLog:
    """What is staged and published, as read so far."""

    def __init__(self) -> None:
        self.txns: dict[bytes, dict[bytes, Draft]] = {}
        self.apps: dict[bytes, App] = {}
        self.keys: dict[bytes, Kept] = {}
        self.works: dict[bytes, Life] = {}  # of the jobs that `apply` made last
        self.short: dict[bytes, None] = {}  # ids of jobs that waited for copies

    def take_up(self, job: Job) -> None:
        """A job that waited for copies: its client is gone, this copy counts (Z3.1, Z4.9)."""
        job.state = ACTIVE
        due_ms = job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000
        if job.qtime_ms < due_ms:
            job.qtime_ms = due_ms
        self.short[job.id] = None

    def apply(self, record: Record) -> list[Job]:
        """Apply one record; returns the jobs that it makes, whose work is in `works`."""
        self.works = {}
        r = record.stage
        row = record.row
        if record.kind == STAGED:
            self.on_staged(r)
        elif record.kind == KEY:
            if r.until_ms == 0:
                self.keys.pop(r.key, None)
            else:
                self.keys[r.key] = Kept(r.id, r.until_ms)
        elif isinstance(row, StagedWork):
            self.on_work(row)
        elif isinstance(row, Published):
            return self.on_published(row)
        elif isinstance(row, AppRow):
            if row.version < 0:
                self.apps.pop(row.app, None)
            else:
                self.apps[row.app] = App(row.version, row.used_ms)
        elif isinstance(row, StageDrop):
            if len(row.attempt) == 0:
                self.txns.pop(row.txn, None)
            else:
                self.drop(row.txn, row.attempt)
        return []

    def drop(self, txn: bytes, name: bytes) -> None:
        """The attempt is dropped."""
        drafts = self.txns.get(txn)
        if drafts is not None:
            drafts.pop(name, None)
            if len(drafts) == 0:
                del self.txns[txn]

    def on_staged(self, r: StageRecord) -> None:
        """Add a job unless the attempt has it."""
        drafts = self.txns.get(r.txn)
        if drafts is None:
            drafts = {}
            self.txns[r.txn] = drafts
        draft = drafts.get(r.attempt)
        if draft is None:
            draft = Draft()
            drafts[r.attempt] = draft
        if r.until_ms > draft.until_ms:
            draft.until_ms = r.until_ms
        if r.position != len(draft.jobs):
            return
        draft.jobs.append(
            Staged(
                r.queue,
                r.body,
                r.key,
                r.key_ttl_ms,
                i32(r.repl),
                i32(r.retry_s),
                i32(r.delay_s),
                i32(r.ttl_s),
                i32(r.maxlen),
                u8(r.level),
            )
        )

    def on_work(self, row: StagedWork) -> None:
        """The job at that position has this id and work."""
        drafts = self.txns.get(row.txn)
        draft = None if drafts is None else drafts.get(row.attempt)
        if draft is not None and row.position < len(draft.jobs):
            add_work(draft.jobs[row.position], row)

    def on_published(self, r: Published) -> list[Job]:
        """All jobs of a publication; none if it was restored before (Z6.2)."""
        jobs: list[Job] = []
        app = self.apps.get(r.app)
        if app is not None and r.version <= app.version:
            return jobs
        self.apps[r.app] = App(r.version, r.now_ms)
        staged: list[Staged] = []
        drafts = self.txns.pop(r.txn, None)
        if drafts is not None:
            for name in r.attempts:
                draft = drafts.get(name)
                if draft is not None:
                    staged.extend(draft.jobs)
        if len(staged) != len(r.ids):
            return jobs  # repaired journal: its staged jobs are missing
        ctime_ns: i64 = r.ctime_ns
        for i, id in enumerate(r.ids):
            if id != NO_ID:
                jobs.append(self.made(r, staged[i], id, ctime_ns))
                ctime_ns += 1
        return jobs

    def made(self, r: Published, s: Staged, id: bytes, ctime_ns: i64) -> Job:
        """A published job: queued, or waiting for its delay."""
        job = Job(
            id,
            s.queue,
            s.body,
            ctime_ns,
            r.now_ms + i64(s.ttl_s) * 1000,
            s.retry_s,
            s.delay_s,
            i32(repl_of(s, r.default_repl)),
        )
        job.level = s.level
        if s.delay_s > 0:
            job.state = ACTIVE
            job.qtime_ms = ctime_ns // 1_000_000 + i64(s.delay_s) * 1000
        else:
            job.state = QUEUED
        if len(s.key) > 0:
            self.keys[full_key(s.queue, s.key)] = Kept(id, r.now_ms + s.key_ttl_ms)
        if s.has_work():
            self.works[id] = s.work()
        return job

    def shift(self, jump_ms: i64) -> None:
        """The clock jumped: move all instants (J5.8)."""
        for drafts in self.txns.values():
            for draft in drafts.values():
                draft.until_ms += jump_ms
        for app in self.apps.values():
            app.used_ms += jump_ms
        for kept in self.keys.values():
            kept.until_ms += jump_ms

    def restore(self, n: Node) -> None:
        """[Z6] Enter what has not expired (Z6.3)."""
        staging = n.staging
        for name, app in self.apps.items():
            if name not in staging.apps:
                staging.bytes += APP_BYTES + len(name)
            staging.apps[name] = app
        for txn, drafts in self.txns.items():
            for attempt, draft in drafts.items():
                if draft.until_ms > n.now_ms and staging.attempt(txn, attempt) is None:
                    a = begin_attempt(n, txn, attempt)
                    a.until_ms = draft.until_ms
                    for job in draft.jobs:
                        add_staged(n, a, job)
                    watch(n, a)
        for full, kept in self.keys.items():
            if kept.until_ms > n.now_ms:
                n.keys.put(full, kept.id, kept.until_ms)
                if kept.id in self.short:
                    n.keys.unsure[kept.id] = 1
        self.txns = {}
        self.keys = {}
        self.short = {}
