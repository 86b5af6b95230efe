"""`tuque journal`: what a person sees, and the exit codes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from click.testing import CliRunner
from journal_lab import NODE_ID, START_MS
from test_aof_import import blob, command, numbered

from tuque.core.copies.add import on_addjob, settle
from tuque.core.leases.leases import commit, on_next, on_open
from tuque.core.model.job import PLAIN, QUEUED
from tuque.core.model.task import BYTES
from tuque.core.node.node import Node
from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.server.journal.tool import journal
from tuque.store.disk import Disk
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.admin import create_tube
from tuque.tubes.tasks.operations import put

FAR_S = 4_000_000_000
NOW_MS = time.time_ns() // 1_000_000


def run(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(journal, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def server_dir(path: Path, count: int = 3) -> list[str]:
    """A stopped server's dir; the ids of its jobs."""
    n, committer = opened(path)
    ids = []
    for i in range(count):
        ids.append(on_addjob(n, b"q%d" % i, b"body", settle(n, PLAIN)).id.decode())
        assert n.records is not None
        committer.commit(n.records, n.now_ms)
    assert committer.close(n.now_ms) == ""
    return ids


def opened(path: Path, seed: bytes = b"seed") -> tuple[Node, Committer]:
    n = Node(NODE_ID, seed, NOW_MS)
    committer = Committer(Disk(), str(path / "journal"), NODE_ID, NOW_MS, "always", threaded=False)
    committer.lock()
    loader = committer.loader()
    while not loader.step(n, 100):
        pass
    committer.start(NOW_MS)
    n.records = Records()
    return n, committer


def test_check_repair_and_show(tmp_path: Path) -> None:
    ids = server_dir(tmp_path)
    code, text = run("check", tmp_path)
    assert code == 0 and "ok" in text and "4 records" in text
    segment = next((tmp_path / "journal").glob("*.log"))
    assert run("check", segment)[0] == 0
    code, text = run("show", tmp_path)
    assert code == 0 and all(job_id in text for job_id in ids) and "close" in text
    code, text = run("show", tmp_path, "--json", "--id", ids[1])
    row = json.loads(text)
    assert (row["record"], row["queue"], row["state"]) == ("add", "q1", "queued")
    assert ids[2] in run("show", tmp_path, "--queue", "q2")[1]
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    code, text = run("check", tmp_path)
    assert code == 1 and "damaged at offset 128" in text and "1 records missing" in text
    assert run("repair", tmp_path)[0] == 1  # not confirmed
    assert segment.read_bytes() == bytes(data)
    code, text = run("repair", tmp_path, "--yes")
    assert code == 0 and "quarantine-128" in text and "loads now" in text
    assert run("check", tmp_path)[0] == 0
    n, committer = opened(tmp_path)
    assert len(n.jobs) == 2
    code, text = run("repair", tmp_path)
    assert code == 1 and "stop that server first" in text
    committer.close(START_MS)


def test_check_and_show_know_segments_that_are_newer_than_the_manifest(tmp_path: Path) -> None:
    """J7.5 Segments that the next start loads too (J5.13) are no damage: `check` names them, and a
    repair writes the manifest anew with them.
    """
    ids = server_dir(tmp_path)
    manifest = tmp_path / "journal" / "manifest"
    old = manifest.read_bytes()
    n, committer = opened(tmp_path, b"another")
    job = on_addjob(n, b"q9", b"later", settle(n, PLAIN))
    assert n.records is not None
    committer.commit(n.records, NOW_MS)
    committer.close(NOW_MS)
    manifest.write_bytes(old)
    code, text = run("check", tmp_path)
    assert code == 0 and "the next start also loads journal-00000002.log" in text
    later = job.id.decode()
    assert later in run("show", tmp_path)[1]
    code, text = run("repair", tmp_path, "--yes")
    assert code == 0 and "loads now" in text
    code, text = run("check", tmp_path)
    assert code == 0 and "older" not in text
    n, committer = opened(tmp_path)
    assert {one.decode() for one in n.jobs} == {later, *ids}
    committer.close(START_MS)


def test_no_journal_there(tmp_path: Path) -> None:
    code, text = run("check", tmp_path)
    assert code == 1 and "holds no journal" in text
    code, text = run("show", tmp_path)
    assert code == 1 and "holds no journal" in text


def test_import_into_a_new_and_an_old_journal(tmp_path: Path) -> None:
    aof = tmp_path / "disque.aof"
    aof.write_bytes(
        command(b"LOADJOB", blob(numbered(1), etime_s=FAR_S))
        + command(b"LOADJOB", blob(numbered(2), etime_s=FAR_S, retry_s=0))
        + command(b"LOADJOB", blob(numbered(3), etime_s=5))
        + command(b"DELJOB", numbered(7))
        + command(b"LOADJOB", b"what")
        + b"*2\r\n$7\r\nLOAD"
    )
    code, text = run("import", aof, "--dir", tmp_path / "new")
    assert code == 1 and "new is not there; --create makes the directory" in text
    assert not (tmp_path / "new").exists()
    code, text = run("import", aof, "--dir", tmp_path / "new", "--create")
    assert code == 1 and "cannot be read, nothing was imported; --skip-bad imports the rest" in text
    assert "read 2 jobs, acked or deleted 1, expired 1, bad 1, unfinished end of 12 bytes" in text
    assert not list((tmp_path / "new").rglob("*.log"))
    code, text = run("import", aof, "--dir", tmp_path / "new", "--create", "--skip-bad")
    assert code == 0 and "imported into" in text, text
    n, committer = opened(tmp_path / "new")
    assert sorted(n.jobs) == [numbered(1), numbered(2)]
    assert all(job.state == QUEUED for job in n.jobs.values())
    committer.close(NOW_MS)
    server_dir(tmp_path / "old")
    code, text = run("import", aof, "--dir", tmp_path / "old", "--hold-at-most-once", "--skip-bad")
    assert code == 0, text
    n, committer = opened(tmp_path / "old")
    assert len(n.jobs) == 5
    assert [q.length for q in n.queues.values() if q.name == b"qq"] == [1]
    code, text = run("import", aof, "--dir", tmp_path / "old")
    assert code == 1 and "stop that server first" in text
    committer.close(NOW_MS)


def test_what_a_cluster_writes_is_shown(tmp_path: Path) -> None:
    """Sets of nodes are shown by slot, and the slots by node id."""
    n, committer = opened(tmp_path)
    records = Records([NODE_ID, b"1" * 40, b"2" * 40], {2: 77})
    n.records = records
    job = on_addjob(n, b"q", b"body", settle(n, PLAIN))
    job.holders = 7
    records.holders(job)
    records.add(job)
    records.ack_job(job)
    records.tomb(job.id, 99, 3)
    committer.commit(records, n.now_ms)
    assert committer.close(n.now_ms) == ""
    code, text = run("show", tmp_path, "--json")
    assert code == 0
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["record"] for row in rows] == [
        "add",
        "peer",
        "peer",
        "holders",
        "add",
        "acked",
        "tomb",
        "close",
    ]
    peer, holders, whole = rows[2], rows[3], rows[4]
    assert (peer["slot"], peer["node"], peer["incarnation"]) == (2, "2" * 40, 77)
    assert holders["holders"] == whole["holders"] == rows[5]["holders"] == [0, 1, 2]
    assert rows[6]["id"] == job.id.decode() and rows[6]["expire_ms"] == 99
    assert run("check", tmp_path)[0] == 0


def test_tubes_are_shown(tmp_path: Path) -> None:
    """Each record names its tube; the number 0 is told, for ever is not, columns are straight."""
    n, committer = opened(tmp_path)
    tube = create_tube(n, tubes_of(n), b"pages", b"utubettl", TubeOptions(), b"user")
    spec = PutSpec()
    spec.utube = b"a.example"
    task = put(n, tubes_of(n), tube, b"body", BYTES, spec, 1, 1)
    assert task is not None and n.records is not None
    on_addjob(n, b"q", b"body", settle(n, PLAIN))
    committer.commit(n.records, n.now_ms)
    assert committer.close(n.now_ms) == ""
    code, text = run("show", tmp_path, "--queue", "pages")
    assert code == 0
    told = [line.split(None, 3)[3] for line in text.splitlines()]
    assert told[0] == "tube        tube=pages type=utubettl"
    assert told[1].startswith(f"tube-home   tube=pages epoch=1 home={NODE_ID[:8].decode()} is_here")
    assert told[2].startswith(f"task-add    {task.id.decode()} status=READY tube=pages number=0 ")
    assert told[2].endswith("utube=a.example")
    assert len(told) == 3
    rows = [json.loads(line) for line in run("show", tmp_path, "--json")[1].splitlines()]
    by_kind = {row["record"]: row for row in rows}
    assert {"tube", "tube-home", "task-add", "add", "close"} <= set(by_kind)
    added = by_kind["task-add"]
    assert (by_kind["tube"]["ttl_ms"], added["number"], added["utube"]) == (None, 0, "a.example")


def test_leases_are_shown(tmp_path: Path) -> None:
    """Groups and batches by name and number; the number of the record stays its own."""
    n, committer = opened(tmp_path)
    records = n.records = Records()
    for _ in range(3):
        on_addjob(n, b"q", b"body", settle(n, PLAIN))
    epoch, _ = on_open(n, b"g", b"me", [b"q"])
    g = n.leases.groups[b"g"]
    on_next(n, 1, g, 1, 2, 1 << 20, 2, 1000)
    commit(n, b"g", epoch, 1)
    committer.commit(records, n.now_ms)
    assert committer.close(n.now_ms) == ""
    code, text = run("show", tmp_path, "--json")
    assert code == 0
    rows = [json.loads(line) for line in text.splitlines()][3:]
    kinds = ["lease-group", "lease-group", "lease-batch", "ack", "ack", "lease-group", "close"]
    assert [row["record"] for row in rows] == kinds
    assert [row["seq"] for row in rows] == list(range(4, 11))
    assert {row["group"] for row in rows if "group" in row} == {"g"}
    batch, last = rows[2], rows[5]
    assert (batch["epoch"], batch["batch"], batch["positions"], batch["parts"]) == (epoch, 1, 2, 2)
    assert (last["owner"], last["batch"], last["committed"]) == ("me", 1, 1)
