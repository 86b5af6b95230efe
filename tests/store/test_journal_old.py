"""A journal of an older format is read, goes on in the new format, and is shown as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tuque.console.journal.commands import journal
from tuque.core.jobs.transitions import check
from tuque.core.model.add_spec import PLAIN
from tuque.core.model.job import ACTIVE, DELIVERED, QUEUED
from tuque.core.node.node import Node
from tuque.core.outbox.records import Records
from tuque.core.replication.add import on_addjob, settle
from tuque.store.files.disk import MemoryDisk
from tuque.store.journal import VERSION, Boot, decode_header
from tuque.store.replay import Loader
from tuque.store.writer import Journal

OLD = [1, 2, 3, 4]
PATH = "/journal"
NODE_ID = b"c0ffee01" * 5
NOW_MS = 1_750_000_010_000
FIRST, SECOND, THIRD, FOURTH = (
    b"D-c0ffee01-T/CLtT991ykIc6AAZKbNw1xZ-ffff",
    b"D-c0ffee01-T/CLtT991ykIc6ABTkPmeWWx-ffff",
    b"D-c0ffee01-GLC6CegcyijscAAAQZhNHk4y-fffe",
    b"D-c0ffee01-T/CLtT991ykIc6ACNXssREIw-ffff",
)


def loaded(disk: MemoryDisk, seed: bytes) -> tuple[Node, Loader]:
    """A node that has read the journal."""
    n = Node(NODE_ID, seed, NOW_MS)
    loader = Loader(disk, PATH, Boot(NOW_MS, b"boot", 0), False)
    while not loader.step(n, 3):
        pass
    check(n)
    return n, loader


def files_of(version: int) -> Path:
    """A journal that a program of that format wrote."""
    return Path(__file__).parent / f"journal_v{version}"


@pytest.mark.parametrize("old", OLD)
def test_old_files_are_read_and_continued(old: int) -> None:
    disk = MemoryDisk()
    disk.makedirs(PATH)
    for file in files_of(old).iterdir():
        handle = disk.open_append(f"{PATH}/{file.name}")
        disk.write(handle, file.read_bytes())
        disk.fdatasync(handle)
    n, loader = loaded(disk, b"0")
    for seed in (b"1", b"2"):
        assert set(n.jobs) >= {FIRST, THIRD, FOURTH} and SECOND not in n.jobs
        first, third, fourth = n.jobs[FIRST], n.jobs[THIRD], n.jobs[FOURTH]
        assert (first.state, first.nacks, first.delivered_count) == (ACTIVE, 1, 2)
        assert third.state == ACTIVE and third.flags & DELIVERED
        assert fourth.body == b"fourth" and fourth.qtime_ms == 1_750_000_000_000 + 10**9
        assert {job.holders for job in n.jobs.values()} == {1}
        assert n.queues[b"r"].pause == 2
        engine = Journal(disk, PATH, NODE_ID, Boot(NOW_MS, b"boot", 0))
        engine.start(loader.manifest, loader.seq(), NOW_MS)
        n.records = Records(n.node_ids, n.lives)
        new = on_addjob(n, b"q", b"new", settle(n, PLAIN))
        assert engine.append(n.records.take(), 1, NOW_MS)
        assert engine.sync()
        engine.close()
        n, loader = loaded(disk, seed)
        assert n.jobs[new.id].state == QUEUED
    versions = set()
    for name in disk.listdir(PATH):
        header = decode_header(disk.read(f"{PATH}/{name}", 0, 128), name)
        if header is not None:
            versions.add(header.version)
    assert versions == {old, VERSION}


def test_what_older_programs_would_misread_has_a_version_of_its_own() -> None:
    """J1.4 A program reads its own format version and all older ones, and refuses a newer one."""
    assert VERSION not in OLD


@pytest.mark.parametrize("old", OLD)
def test_old_files_are_checked_and_shown(old: int) -> None:
    result = CliRunner().invoke(journal, ["check", str(files_of(old))])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(journal, ["show", "--json", str(files_of(old))])
    assert result.exit_code == 0, result.output
    kinds = [json.loads(line)["record"] for line in result.output.splitlines()]
    assert kinds.count("add") >= 3
    expected = {
        1: ["first", "ack", "pause", "close"],
        2: ["end", "pause", "close"],
        3: ["key", "app", "pause", "close"],
        4: ["lease-group", "lease-group", "lease-batch"],
    }
    assert kinds[-len(expected[old]) :] == expected[old]
