"""What a node remembers of a client's last words: the jobs handed to it, options of ADDJOB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pump_box import PumpBox, ask
from raw_resp import Wire
from tuque.core.model.task import Task
from tuque.server.state.caches import KEPT_MAX
from tuque.server.state.client import HANDED_BYTES, HANDED_MAX, Client


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PumpBox]:
    box = PumpBox(tmp_path)
    yield box
    box.check()
    box.close()
    box.listener.close()


def add(box: PumpBox, wire: Wire, body: str, *options: str | int) -> bytes:
    id = ask(box, wire, "ADDJOB", "q", body, 0, *options)
    assert isinstance(id, bytes)
    return id


def get(box: PumpBox, wire: Wire, count: int) -> list[bytes]:
    """The ids of jobs from the queue."""
    jobs = ask(box, wire, "GETJOB", "NOHANG", "COUNT", count, "FROM", "q")
    assert isinstance(jobs, list)
    return [job[1] for job in jobs]


def only_client(box: PumpBox) -> Client:
    (client,) = box.server.clients.values()
    return client


def test_jobs_are_acked_in_any_order(box: PumpBox) -> None:
    wire = box.connect()
    ids = [add(box, wire, str(i)) for i in range(6)]
    assert get(box, wire, 5) == ids[:5]
    assert ask(box, wire, "ACKJOB", ids[1], ids[0], ids[5], ids[2]) == 4
    assert sorted(box.n.jobs) == sorted(ids[3:5])
    assert ask(box, wire, "ACKJOB", ids[3], ids[3]) == 1
    assert list(box.n.jobs) == [ids[4]]


def test_runs_begin_and_end_in_any_order(box: PumpBox) -> None:
    wire = box.connect()
    ids = [add(box, wire, str(i)) for i in range(3)]
    assert get(box, wire, 3) == ids
    runs = ask(box, wire, "START", ids[2], ids[1], ids[0])
    assert isinstance(runs, list)
    assert all(box.n.life.by_id[id].starts == 1 for id in ids)
    assert ask(box, wire, "DONE", ids[1], runs[1][0], ids[2], runs[0][0]) == 2
    assert list(box.n.jobs) == [ids[0]]
    assert ask(box, wire, "DONE", ids[0], runs[2][0]) == 1


def test_a_job_that_has_left_the_node_is_not_found_by_its_old_record(box: PumpBox) -> None:
    wire, other = box.connect(), box.connect()
    ids = [add(box, wire, str(i)) for i in range(3)]
    assert get(box, wire, 3) == ids
    assert ask(box, other, "DELJOB", ids[0]) == 1
    reply = ask(box, wire, "START", ids[0], ids[1])
    assert isinstance(reply, list)
    assert str(reply[0]).startswith("NOJOB")
    assert ask(box, wire, "DONE", ids[0], "-", ids[1], "-") == 1
    assert list(box.n.jobs) == [ids[2]]
    add(box, wire, "3")
    (last,) = get(box, wire, 1)
    assert ask(box, other, "DEBUG", "FLUSHALL") == b"OK"
    assert ask(box, wire, "ACKJOB", last) == 0
    assert ask(box, wire, "DONE", last, "-") == 0


def test_few_and_short_ones_are_remembered_until_they_have_ended(box: PumpBox) -> None:
    wire = box.connect()
    ids = [add(box, wire, "x") for _ in range(HANDED_MAX + 1)]
    get(box, wire, HANDED_MAX)
    client = only_client(box)
    assert len(client.handed) == HANDED_MAX
    ask(box, wire, "START", *ids[:HANDED_MAX])
    assert len(client.handed) == HANDED_MAX
    ask(box, wire, "DONE", ids[0], "-")
    assert client.handed == []
    get(box, wire, 1)
    assert len(client.handed) == 1
    ask(box, wire, "ACKJOB", ids[HANDED_MAX])
    assert client.handed == []
    for i in range(HANDED_MAX + 1):
        add(box, wire, str(i))
    get(box, wire, HANDED_MAX + 1)
    assert client.handed == []
    add(box, wire, "x" * (HANDED_BYTES + 1))
    get(box, wire, 1)
    assert client.handed == []


def test_the_same_options_mean_the_same_until_the_settings_change(box: PumpBox) -> None:
    wire = box.connect()

    def added(*options: str | int) -> tuple[int, int, int]:
        job = box.n.jobs[add(box, wire, "x", *options)]
        return int(job.retry_s), int(job.delay_s), int(job.expire_ms - box.n.now_ms) // 1000

    day_s = 86_400
    assert ask(box, wire, "CONFIG", "SET", "default-ttl", day_s) == b"OK"
    assert added("RETRY", 5) == added("RETRY", 5) == (5, 0, day_s)
    assert added("RETRY", 6) == (6, 0, day_s)
    assert added("RETRY", 6, "DELAY", 9) == added("RETRY", 6, "DELAY", 9) == (6, 9, day_s)
    assert added("RETRY", 6, "DELAY", 8) == (6, 8, day_s)
    assert added("DELAY", 8, "RETRY", 7) == (7, 8, day_s)
    assert ask(box, wire, "CONFIG", "SET", "default-ttl", day_s // 2) == b"OK"
    assert added("DELAY", 8, "RETRY", 7) == (7, 8, day_s // 2)


def test_options_that_differ_from_job_to_job_are_not_kept(box: PumpBox) -> None:
    wire = box.connect()
    first = add(box, wire, "x", "DEDUPE", "a")
    assert box.server.specs.last is None
    assert add(box, wire, "x", "DEDUPE", "a") == first
    assert add(box, wire, "x", "DEDUPE", "b") != first
    add(box, wire, "x", "HEADERS", 1, "trace", "1")
    assert box.server.specs.last is None
    add(box, wire, "x", "RETRY", 5, "ATTEMPTS", 3)
    assert box.server.specs.last is not None


def test_the_same_keys_mean_the_same(box: PumpBox) -> None:
    """Options with keys are kept by their words, whatever comes between; unique keys are not."""
    wire = box.connect()
    specs = box.server.specs
    assert ask(box, wire, "TUBE", "CREATE", "q", "tasks") == b"OK"

    def keys_of(*options: str | int) -> bytes:
        task = box.n.jobs[add(box, wire, "x", *options)]
        assert isinstance(task, Task)
        return task.subqueue

    one, other = keys_of("GROUP", "a"), keys_of("GROUP", "b")
    assert one != other and len(specs.keyed) == 2
    assert keys_of("GROUP", "a") is one and keys_of("GROUP", "b") is other
    assert keys_of("GROUP", "a", "WEIGHT", 2) not in (one, other)
    assert keys_of("GROUP", "a") == one
    assert keys_of("LIMIT", "a", 1) != keys_of("LIMIT", "a", 2) != one
    count = len(specs.keyed)
    keys_of("GROUP", "a", "UNIQUE", "u")
    keys_of("GROUP", "a", "HEADERS", 1, "trace", "1")
    assert len(specs.keyed) == count
    # words that look the same when joined are not the same
    assert keys_of("GROUP", "a LIMIT b 1") != keys_of("GROUP", "a", "LIMIT", "b", 1)
    assert ask(box, wire, "CONFIG", "SET", "default-ttl", 100) == b"OK"
    assert len(specs.keyed) == 0
    for number in range(KEPT_MAX + 1):
        keys_of("GROUP", f"{number}")
    assert len(specs.keyed) == 1
