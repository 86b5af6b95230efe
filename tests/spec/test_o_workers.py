"""SPEC O: workers announce themselves, are listed with their runs, and get orders."""

from __future__ import annotations

from typing import Any

import pytest

from raw_resp import Err
from sim.engine.clock import START_MS
from tuque.server.commands import workers
from tuque.server.config.patterns import Glob
from tuque.server.state.workers import (
    DEPLOYS_BYTES,
    DEPLOYS_MAX,
    EARLY_MAX,
    SPARE_IDS,
    WORKERS_MAX,
    WorkerRegistry,
)
from world import World
from world_wires import Wire

KEYS = "name host pid version app queues slots busy done failed since-ms heard-ms state order runs"
HERE = ("WORKER", "HERE", "w1", "HOST", "h", "PID", 7, "VERSION", "1.0", "SLOTS", 4, "BUSY", 1)


def listed(world: World, *words: str | int) -> list[dict[str, Any]]:
    """The rows of WORKER LIST, as dicts."""
    cursor, rows = world.run("WORKER", "LIST", *words)
    assert cursor.isdigit()
    return [{row[i].decode(): row[i + 1] for i in range(0, len(row), 2)} for row in rows]


def run_of(world: World, name: str = "w1") -> list[Any]:
    """The only run of a worker."""
    (row,) = listed(world, "MATCH", name)
    (run,) = row["runs"]
    return list(run)


def begin(world: World, worker: str = "w1", **options: int) -> tuple[bytes, bytes]:
    """A job that the worker has begun: its id and run."""
    id = world.add(**options)
    assert world.get() == [id]
    (run,) = world.run("START", "WORKER", worker, id)
    return id, run[0]


def test_a_worker_is_listed_as_it_says(world: World) -> None:
    """O11.1 its words replace the last ones."""
    assert world.run(*HERE, "DONE", 12, "FAILED", 3, "QUEUES", "a", "b") == b"none"
    world.pass_ms(2_000)
    (row,) = listed(world)
    assert list(row) == KEYS.split()
    assert row == {
        "name": b"w1",
        "host": b"h",
        "pid": 7,
        "version": b"1.0",
        "app": b"",
        "queues": [b"a", b"b"],
        "slots": 4,
        "busy": 1,
        "done": 12,
        "failed": 3,
        "since-ms": START_MS,
        "heard-ms": 2_000,
        "state": b"alive",
        "order": b"none",
        "runs": [],
    }
    world.run("WORKER", "HERE", "w1", "QUIET", "SLOTS", 5)
    (row,) = listed(world)
    assert (row["state"], row["slots"], row["queues"]) == (b"quiet", 5, [])
    assert (row["since-ms"], row["heard-ms"]) == (START_MS, 0)


def test_a_silent_worker_is_lost(world: World) -> None:
    """O11.2 A worker that sent no HERE for 8 s is lost."""
    world.run(*HERE)
    world.run("WORKER", "QUIET", "w1")
    world.pass_ms(7_999)
    assert listed(world)[0]["state"] == b"alive"
    world.pass_ms(1)
    assert listed(world)[0]["state"] == b"lost"
    assert world.run(*HERE) == b"none"
    assert listed(world)[0]["since-ms"] == START_MS + 8_000, "it begins anew, without an order"


def test_bye_forgets_a_worker(world: World) -> None:
    """O11.3 `WORKER BYE` forgets the worker: it has ended well. The reply is OK, also of an
    unknown one.
    """
    world.run(*HERE)
    before = world.server.workers.bytes
    assert world.run("WORKER", "BYE", "w1") == world.run("WORKER", "BYE", "w1") == b"OK"
    assert listed(world) == []
    assert (before > 0, world.server.workers.bytes) == (True, 0)


def test_lost_workers_leave(world: World) -> None:
    """O11.4 Lost ones leave after an hour, and above 1,000 those heard from the longest ago."""
    for i in range(1_003):
        world.run("WORKER", "HERE", f"old-{i}")
        world.pass_ms(1)
    world.pass_ms(8_000)
    workers = world.server.workers
    workers.drop_lost(world.n.now_ms)
    assert sorted(workers.by_name)[0] == b"old-10"
    assert {b"old-0", b"old-1", b"old-2"}.isdisjoint(workers.by_name)
    assert (len(workers.by_name), b"old-3" in workers.by_name) == (1_000, True)
    world.pass_ms(3_600_000 - 8_000)
    world.run("WORKER", "HERE", "new")
    workers.drop_lost(world.n.now_ms)
    assert list(workers.by_name) == [b"new"]
    for i in range(WORKERS_MAX - 1):
        assert world.run("WORKER", "HERE", f"more-{i}") == b"none"
    refused = world.run("WORKER", "HERE", "late")
    assert refused == Err("ERR too many workers: at most 10000")
    world.pass_ms(3_600_000)
    assert world.run("WORKER", "HERE", "late") == b"none", "lost ones make room"


USE_HERE = (
    "WORKER HERE name [HOST text] [PID n] [VERSION text] [APP text] [SLOTS n] [BUSY n] [DONE n] "
    "[FAILED n] [AGE ms] [QUIET] [QUEUES queue [queue ...]]"
)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("",), "ERR WORKER takes a name of 1 to 255 bytes"),
        (("x" * 256,), "ERR WORKER takes a name of 1 to 255 bytes"),
        (("w", "HOST", "x" * 256), "ERR HOST, VERSION and APP take at most 255 bytes"),
        (("w", "APP", "x" * 256), "ERR HOST, VERSION and APP take at most 255 bytes"),
        (("w", "QUEUES", *"q" * 101), "ERR a worker names at most 100 queues"),
        (
            ("w", "QUEUES", *["q" * 4_000] * 3),
            "ERR the queues of a worker have at most 8192 bytes",
        ),
        (
            ("w", "PID", "x"),
            "ERR PID, SLOTS, BUSY, DONE, FAILED and AGE take a number from 0 up, not 'x'",
        ),
        (
            ("w", "AGE", -1),
            "ERR PID, SLOTS, BUSY, DONE, FAILED and AGE take a number from 0 up, not '-1'",
        ),
        (("w", "NICE", 1), "ERR syntax error at 'NICE': use " + USE_HERE),
        (("w", "HOST"), "ERR syntax error at 'HOST': use " + USE_HERE),
    ],
)
def test_bad_words_of_here(world: World, words: tuple[str | int, ...], error: str) -> None:
    """O11.6 Errors"""
    assert world.run("WORKER", "HERE", *words) == Err(error)
    assert listed(world) == []


def test_runs_of_a_worker(world: World) -> None:
    """O12.2 id, queue, task, attempt, ms since it began, state, and the ms until it is due again"""
    world.run(*HERE)
    id = world.run("ADDJOB", "q", "b", 0, "RETRY", 60, "HEADERS", 1, "tuque-task", "m.f")
    world.get()
    world.pass_ms(3_000)
    (run,) = world.run("START", "WORKER", "w1", id)
    world.pass_ms(10_000)
    world.run(*HERE)
    assert run_of(world) == [id, b"q", b"m.f", 1, 10_000, b"running", 50_000]
    world.run("WORKING", id, run[0])
    assert run_of(world)[-1] == 60_000, "silent from now"
    world.run("DONE", id, run[0])
    assert listed(world)[0]["runs"] == []


def test_runs_of_a_lost_worker(world: World) -> None:
    """O12.2 of a lost worker `waiting` (due when its RETRY or TIMELIMIT is over), `back-off` or
    `queued`, until another worker begins the job or it ends.
    """
    world.run(*HERE)
    id, _ = begin(world, RETRY=20, ATTEMPTS=3)
    limited, _ = begin(world, RETRY=50, TIMELIMIT=15)
    once, _ = begin(world, RETRY=0)
    world.pass_ms(8_000)
    (row,) = listed(world)
    assert [(run[0], run[5], run[6]) for run in row["runs"]] == [
        (id, b"waiting", 12_000),
        (limited, b"waiting", 7_000),
        (once, b"waiting", None),
    ]
    world.run("ACKJOB", limited, once)
    world.pass_ms(12_100)
    assert run_of(world)[5] == b"back-off"
    assert 0 < run_of(world)[6] <= 1_000
    world.pass_ms(1_100)
    assert run_of(world)[5:] == [b"queued", None]
    world.get()
    world.run("START", "WORKER", "other", id)
    assert listed(world)[0]["runs"] == []


def test_a_restarted_node_hears_of_runs_again(world: World) -> None:
    """O11.5 known again with their next HERE, and a run with its next WORKING"""
    id, run = begin(world)
    world.server.workers = WorkerRegistry()  # all that was in memory
    world.run(*HERE)
    assert listed(world)[0]["runs"] == []
    world.run("WORKING", id, run)
    assert run_of(world)[0] == id


def test_runs_from_before_the_first_here(world: World) -> None:
    """O12.5 these runs count if the HERE comes within 8 s of the last of them"""
    id, _ = begin(world)
    world.pass_ms(7_999)
    assert listed(world) == [], "it has not said that it is there"
    world.run(*HERE)
    assert run_of(world)[0] == id
    late, _ = begin(world, "w2")
    world.pass_ms(8_000)
    world.run("WORKER", "HERE", "w2")
    assert listed(world, "MATCH", "w2")[0]["runs"] == []
    new, _ = begin(world, "w2")
    assert run_of(world, "w2")[0] == new != late


def test_those_who_never_say_here_leave(world: World) -> None:
    """O12.5 The node keeps them for the last 1,000 names that begin jobs so."""
    id = world.add(RETRY=600)
    world.get()
    workers = world.server.workers
    world.run("START", id)
    assert (len(workers.early), workers.bytes) == (0, 0), "a client without a name is no worker"
    for i in range(EARLY_MAX + 1):
        workers.note(world.n, b"early-%d" % i, [id])
    assert len(workers.early) == EARLY_MAX and b"early-0" not in workers.early
    world.run("WORKER", "HERE", "early-1")
    assert len(workers.early) == EARLY_MAX - 1
    world.pass_ms(8_000)
    workers.drop_lost(world.n.now_ms)
    world.run("WORKER", "BYE", "early-1")
    assert (len(workers.early), workers.bytes) == (0, 0)


def test_ended_runs_cost_nothing(world: World) -> None:
    """O12.2 runs are the jobs that the worker began at this node"""
    world.run(*HERE)
    kept, _ = begin(world)
    for _ in range(500):
        id, run = begin(world)
        world.run("DONE", id, run)
    assert len(world.server.workers.by_name[b"w1"].ids) <= 2 + SPARE_IDS
    assert run_of(world)[0] == kept


def test_pages_of_workers(world: World) -> None:
    """O12.3 They come in the order of their first HERE"""
    for i in range(5):
        world.run("WORKER", "HERE", f"w{i}")
    cursor, rows = world.run("WORKER", "LIST", "COUNT", 2)
    assert [row[1] for row in rows] == [b"w0", b"w1"]
    world.run("WORKER", "BYE", "w2")
    cursor, rows = world.run("WORKER", "LIST", cursor, "COUNT", 2)
    assert [row[1] for row in rows] == [b"w3", b"w4"]
    assert [row["name"] for row in listed(world, "MATCH", "*[13]")] == [b"w1", b"w3"]
    for count in (0, 1001):
        bad = Err(f"ERR COUNT must be a number from 1 to 1000, not '{count}'")
        assert world.run("WORKER", "LIST", "COUNT", count) == bad


def deploys(world: World) -> list[list[Any]]:
    return list(world.run("WORKER", "DEPLOYS"))


def test_deploys(world: World) -> None:
    """O12.6 for each its instant in ms, the new APP, and queues"""
    world.run("WORKER", "HERE", "w1", "APP", "41", "QUEUES", "a", "b")
    world.run("WORKER", "HERE", "other", "QUEUES", "a", "b")  # says none
    first = [START_MS, b"41", [b"a", b"b"]]
    assert deploys(world) == [first]
    assert listed(world, "MATCH", "w1")[0]["app"] == b"41"
    world.pass_ms(1_000)
    world.run("WORKER", "HERE", "w2", "APP", "42", "QUEUES", "a", "b")
    world.run("WORKER", "HERE", "w1", "APP", "41", "QUEUES", "a", "b")
    world.run("WORKER", "HERE", "w3", "APP", "42", "QUEUES", "a", "b")
    second = [START_MS + 1_000, b"42", [b"a", b"b"]]
    assert deploys(world) == [first, second], "w1 goes on, w3 is one more"
    world.run("WORKER", "HERE", "w1", "APP", "42", "QUEUES", "a", "b")
    assert deploys(world) == [first, second]
    world.pass_ms(1_000)
    world.run("WORKER", "HERE", "w4", "APP", "41", "QUEUES", "a", "b")
    assert deploys(world)[2:] == [[START_MS + 2_000, b"41", [b"a", b"b"]]], "back to the one before"


def test_a_worker_from_another_node_is_no_deploy(world: World) -> None:
    """O12.6 Its instant is AGE ago by the clock of this node

    O12.6 So a worker that comes from another node changes nothing that was known, and a
    restarted node gets the instants again.
    """

    def here(name: str, app: int, began_ms: int) -> None:
        age_ms = START_MS + 100_000 - began_ms
        world.run("WORKER", "HERE", name, "APP", app, "AGE", age_ms, "QUEUES", "q")

    world.pass_ms(100_000)
    here("new", 42, START_MS + 50_000)
    here("old", 41, START_MS + 1_000)  # it worked at another node
    here("older", 41, START_MS + 500)  # the earlier one stays alone
    here("newer", 42, START_MS + 70_000)
    assert deploys(world) == [[START_MS + 500, b"41", [b"q"]], [START_MS + 50_000, b"42", [b"q"]]]
    here("unborn", 43, START_MS + 100_000)  # no age
    assert deploys(world)[2:] == [[START_MS + 100_000, b"43", [b"q"]]]
    here("back", 42, START_MS + 100_000)
    assert deploys(world)[3:] == [[START_MS + 100_000, b"42", [b"q"]]]
    workers = world.server.workers
    assert workers.deploy_bytes == sum(one.bytes for one in workers.deploys)
    assert workers.bytes == workers.deploy_bytes + sum(
        one.bytes for one in workers.by_name.values()
    )


def test_few_deploys_are_kept(world: World) -> None:
    """O12.6 The latest 100 are kept, in memory only, as long as their words have at most 65,536
    bytes.
    """
    for i in range(DEPLOYS_MAX + 5):
        world.run("WORKER", "HERE", f"w{i}", "APP", i, "QUEUES", "q")
    assert [row[1] for row in deploys(world)] == [b"%d" % i for i in range(5, 105)]
    before = world.server.workers.deploy_bytes
    for i in range(20):
        world.run("WORKER", "HERE", f"l{i}", "APP", i, "QUEUES", *["q" * 80] * 100)
    assert len(deploys(world)) < 10 and before < world.server.workers.deploy_bytes <= DEPLOYS_BYTES


def test_orders(world: World) -> None:
    """O13.1 STOP replaces QUIET, not the other way round."""
    world.run(*HERE)
    other: Wire = world.wire()
    assert other("WORKER", "QUIET", "w1") == b"OK"
    assert world.run(*HERE) == b"quiet"
    other("WORKER", "STOP", "w1")
    other("WORKER", "QUIET", "w1")
    assert world.run(*HERE) == world.run(*HERE) == b"stop"
    assert listed(world)[0]["order"] == b"stop"


def test_orders_are_pushed(world: World) -> None:
    """O13.1 and is pushed to the connection of the last one, if that speaks RESP3"""
    session, plain = world.wire(), world.wire()
    session("HELLO", 3)
    session("WORKER", "HERE", "w3")
    plain("WORKER", "HERE", "w2")
    for name in ("w2", "w3"):
        world.run("WORKER", "STOP", name)
    assert plain.hear() == b""
    assert session.hear() == b">3\r\n$12\r\nworker-order\r\n$2\r\nw3\r\n$4\r\nstop\r\n"


def test_orders_for_nobody(world: World) -> None:
    """O13.2 A worker that is unknown or lost: `-NOWORKER no worker of that name is heard here`."""
    none = Err("NOWORKER no worker of that name is heard here")
    assert world.run("WORKER", "STOP", "w1") == none
    world.run(*HERE)
    world.pass_ms(8_000)
    assert world.run("WORKER", "QUIET", "w1") == none


def test_a_costly_glob_is_done_in_slices(world: World) -> None:
    """O12.3 MATCH is a glob of their names."""
    for i in range(200):
        world.run("WORKER", "HERE", "a" * 250 + str(i))
    words = "*" + "?a" * 60 + "b*"
    assert world.run("WORKER", "LIST", "MATCH", words) == [b"0", []]
    hands = workers.hands_after(world.server.workers, 0)
    roll = workers.Roll(world.server, world.run.c, hands, 100, Glob(words))
    assert not roll.step(1_000)
    assert 0 < roll.at <= 16  # of 200
