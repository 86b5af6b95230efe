"""What a node remembers of a client's last words: the jobs handed to it, options of ADDJOB."""

from __future__ import annotations

from tuque.core.model.task import Task
from tuque.server.state.client import HANDED_BYTES, HANDED_MAX
from tuque.tubes.entries.keys import keys_of as keys_in
from tuque.wire.commands.add_options import KEPT_MAX
from world import World
from world_wires import Wire


def add(wire: Wire, body: str, *options: str | int) -> bytes:
    id = wire("ADDJOB", "q", body, 0, *options)
    assert isinstance(id, bytes)
    return id


def get(wire: Wire, count: int) -> list[bytes]:
    """The ids of jobs from the queue."""
    jobs = wire("GETJOB", "NOHANG", "COUNT", count, "FROM", "q")
    assert isinstance(jobs, list)
    return [job[1] for job in jobs]


def test_jobs_are_acked_in_any_order(world: World) -> None:
    wire = world.wire()
    ids = [add(wire, str(i)) for i in range(6)]
    assert get(wire, 5) == ids[:5]
    assert wire("ACKJOB", ids[1], ids[0], ids[5], ids[2]) == 4
    assert sorted(world.n.jobs) == sorted(ids[3:5])
    assert wire("ACKJOB", ids[3], ids[3]) == 1
    assert list(world.n.jobs) == [ids[4]]


def test_runs_begin_and_end_in_any_order(world: World) -> None:
    wire = world.wire()
    ids = [add(wire, str(i)) for i in range(3)]
    assert get(wire, 3) == ids
    runs = wire("START", ids[2], ids[1], ids[0])
    assert isinstance(runs, list)
    assert all(world.n.life.by_id[id].starts == 1 for id in ids)
    assert wire("DONE", ids[1], runs[1][0], ids[2], runs[0][0]) == 2
    assert list(world.n.jobs) == [ids[0]]
    assert wire("DONE", ids[0], runs[2][0]) == 1


def test_a_job_that_has_left_the_node_is_not_found_by_its_old_record(world: World) -> None:
    wire, other = world.wire(), world.wire()
    ids = [add(wire, str(i)) for i in range(3)]
    assert get(wire, 3) == ids
    assert other("DELJOB", ids[0]) == 1
    reply = wire("START", ids[0], ids[1])
    assert isinstance(reply, list)
    assert str(reply[0]).startswith("NOJOB")
    assert wire("DONE", ids[0], "-", ids[1], "-") == 1
    assert list(world.n.jobs) == [ids[2]]
    add(wire, "3")
    (last,) = get(wire, 1)
    assert other("DEBUG", "FLUSHALL") == b"OK"
    assert wire("ACKJOB", last) == 0
    assert wire("DONE", last, "-") == 0


def test_few_and_short_ones_are_remembered_until_they_have_ended(world: World) -> None:
    wire = world.wire()
    ids = [add(wire, "x") for _ in range(HANDED_MAX + 1)]
    get(wire, HANDED_MAX)
    client = wire.c
    assert len(client.handed) == HANDED_MAX
    wire("START", *ids[:HANDED_MAX])
    assert len(client.handed) == HANDED_MAX
    wire("DONE", ids[0], "-")
    assert client.handed == []
    get(wire, 1)
    assert len(client.handed) == 1
    wire("ACKJOB", ids[HANDED_MAX])
    assert client.handed == []
    for i in range(HANDED_MAX + 1):
        add(wire, str(i))
    get(wire, HANDED_MAX + 1)
    assert client.handed == []
    add(wire, "x" * (HANDED_BYTES + 1))
    get(wire, 1)
    assert client.handed == []


def test_the_same_options_mean_the_same_until_the_settings_change(world: World) -> None:
    wire = world.wire()

    def added(*options: str | int) -> tuple[int, int, int]:
        job = world.n.jobs[add(wire, "x", *options)]
        return int(job.retry_s), int(job.delay_s), int(job.expire_ms - world.n.now_ms) // 1000

    day_s = 86_400
    assert wire("CONFIG", "SET", "default-ttl", day_s) == b"OK"
    assert added("RETRY", 5) == added("RETRY", 5) == (5, 0, day_s)
    assert added("RETRY", 6) == (6, 0, day_s)
    assert added("RETRY", 6, "DELAY", 9) == added("RETRY", 6, "DELAY", 9) == (6, 9, day_s)
    assert added("RETRY", 6, "DELAY", 8) == (6, 8, day_s)
    assert added("DELAY", 8, "RETRY", 7) == (7, 8, day_s)
    assert wire("CONFIG", "SET", "default-ttl", day_s // 2) == b"OK"
    assert added("DELAY", 8, "RETRY", 7) == (7, 8, day_s // 2)


def test_options_that_differ_from_job_to_job_are_not_kept(world: World) -> None:
    wire = world.wire()
    first = add(wire, "x", "DEDUPE", "a")
    assert world.server.specs.last is None
    assert add(wire, "x", "DEDUPE", "a") == first
    assert add(wire, "x", "DEDUPE", "b") != first
    add(wire, "x", "HEADERS", 1, "trace", "1")
    assert world.server.specs.last is None
    add(wire, "x", "RETRY", 5, "ATTEMPTS", 3)
    assert world.server.specs.last is not None


def test_the_same_keys_mean_the_same(world: World) -> None:
    """Options with keys are kept by their words, whatever comes between; unique keys are not."""
    wire = world.wire()
    specs = world.server.specs
    assert wire("TUBE", "CREATE", "q", "tasks") == b"OK"

    def keys_of(*options: str | int) -> bytes:
        task = world.n.jobs[add(wire, "x", *options)]
        assert isinstance(task, Task)
        return keys_in(task)

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
    assert wire("CONFIG", "SET", "default-ttl", 100) == b"OK"
    assert len(specs.keyed) == 0
    for number in range(KEPT_MAX + 1):
        keys_of("GROUP", f"{number}")
    assert len(specs.keyed) == 1
