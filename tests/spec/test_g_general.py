"""SPEC G: lookup, register, unregister, enqueue, dequeue, ids, timers, clock, ledger."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest

from raw_resp import NULL, Err
from sim.engine.clock import START_MS
from tuque.client.api import url_id
from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.model import stats
from tuque.core.model.job import ACKED, ACTIVE, LEGAL, QUEUED, WAIT_REPL, Job, set_state
from tuque.core.model.job_id import IdMaker, is_genuine, is_job_id, is_marked
from tuque.core.node.node import Node
from tuque.core.queues.procedures import FAR, register
from tuque.core.records.events import Events
from tuque.core.records.jobs import Records
from world import World
from world_machines import name_of


def test_lookup(world: World) -> None:
    """G1.1 A job is found by its 40-byte id. An unknown id gives nothing."""
    job_id = world.add()
    assert world.show(job_id)["id"] == job_id
    other = job_id[:20] + b"A" * 15 + job_id[35:]
    assert world.run("SHOW", other) is NULL


@pytest.mark.parametrize(
    ("way_out", "cause"),
    [("ack", "gc_acked"), ("ttl", "expired"), ("del", "admin_deleted"), ("evict", "evicted")],
)
def test_a_job_leaves_with_a_cause(world: World, way_out: str, cause: str) -> None:
    """G2.1 A record leaves the node with exactly one cause, under which the ledger counts it:
    gc-acked, expired, moved, deleted, evicted or add-failed.
    """
    job_id = world.add(TTL=10, RETRY=0)
    if way_out == "ack":
        world.run("ACKJOB", job_id)
    elif way_out == "del":
        world.run("DELJOB", job_id)
    elif way_out == "ttl":
        world.pass_ms(11_000)
    else:
        world.get()
        world.n.limits.memory_bytes = 1
        world.run("PING")
    counts = dict(zip(stats.CAUSES, world.n.ledger.counts(), strict=True))
    assert {name: count for name, count in counts.items() if count} == {"created": 1, cause: 1}


def test_an_unknown_cause_is_a_fault() -> None:
    """G9.1 Each cause of G5.1 and G2.1 has a counter."""
    book = stats.Ledger()
    with pytest.raises(AssertionError):
        book.enter(stats.EXPIRED)
    with pytest.raises(AssertionError):
        book.leave(stats.CREATED)


def test_the_ledger_balances(world: World) -> None:
    """G9.1 created + imported + replicated + loaded equals the jobs known plus all that left."""
    ids = [world.add(TTL=10) for _ in range(10)]
    world.run("ACKJOB", *ids[:3])
    world.run("DELJOB", *ids[3:5])
    assert world.n.ledger.balance(5) == 0
    assert world.n.ledger.balance(6) == -1
    world.pass_ms(11_000)
    assert world.n.ledger.balance(0) == 0


def test_a_queued_job_that_leaves_leaves_its_queue(world: World) -> None:
    """G2.2 A queued job leaves its queue."""
    first, second = world.add(), world.add()
    world.run("DELJOB", first)
    assert world.qlen() == 1
    assert world.get(count=5) == [second]


def test_a_job_that_leaves_has_no_timer(world: World) -> None:
    """G2.3 Its timer is cancelled."""
    job_id = world.add(TTL=10)
    assert world.n.wheel.count == 1
    world.run("DELJOB", job_id)
    assert world.n.wheel.count == 0


def test_removal_is_recorded(world: World) -> None:
    """G2.5 The removal is in the journal."""
    job_id = world.add()
    world.node().take_recorded()
    world.run("DELJOB", job_id)
    assert job_id in world.node().take_recorded()


def test_removal_is_an_event(world: World) -> None:
    """G2.6 The event `expired` is written if the job expired, `deleted` if it was deleted or
    evicted (E).
    """
    old, gone = world.add(TTL=10), world.add()
    world.run("DELJOB", gone)
    world.pass_ms(10_100)
    assert world.node().kinds(old) == ["added", "expired"]
    assert world.node().kinds(gone) == ["added", "deleted"]


def test_enqueue_does_nothing_twice(world: World) -> None:
    """G3.1 Nothing happens if the job is already queued or acked, or if it is AMO and was
    delivered.
    """
    queued = world.add()
    assert world.run("ENQUEUE", queued) == 0
    at_most_once = world.add("amo", RETRY=0)
    assert world.get("amo") == [at_most_once]
    assert world.run("ENQUEUE", at_most_once) == 0
    assert world.run("NACK", at_most_once) == 0
    assert world.state(at_most_once) == "active"


def test_queue_order(world: World) -> None:
    """G3.2 The job enters its queue at its order key: PRI, creation time, then id. A missing queue
    is created.
    """
    ids = [world.add() for _ in range(5)]
    taken = world.get(count=3)
    assert taken == ids[:3]
    world.run("NACK", ids[2], ids[0])
    world.run("NACK", ids[1])
    assert world.get(count=5) == ids


def test_enqueue_makes_the_state_queued(world: World) -> None:
    """G3.3 The state becomes queued."""
    assert world.state(world.add()) == "queued"


def test_due_time_after_enqueue(world: World) -> None:
    """G3.4 The due time of an ALO job becomes now + retry + J; that of an AMO job becomes 0."""
    at_least = world.job(world.add(RETRY=7))
    at_most = world.job(world.add(RETRY=0))
    assert at_least.qtime_ms == START_MS + 7_000
    assert at_most.qtime_ms == 0


def test_first_enqueue_is_silent(world: World) -> None:
    """G3.5 The first enqueue of a job is silent at its origin. Any other is announced: its
    counter grows, `nacks` after a NACK, else `additional-deliveries`.
    """
    job_id = world.add(DELAY=5, RETRY=10)
    world.pass_ms(5_100)
    assert world.show(job_id)["additional-deliveries"] == 0
    world.get()
    world.pass_ms(10_100)
    assert world.show(job_id)["additional-deliveries"] == 1
    world.get()
    world.run("NACK", job_id)
    shown = world.show(job_id)
    assert (shown["nacks"], shown["additional-deliveries"]) == (1, 1)


def test_enqueue_serves_and_counts(world: World) -> None:
    """G3.6 The queue's `jobs-in` grows and its idle time restarts. Clients that wait there are
    served (V3), unless its output is paused.
    """
    consumer = world.wire()
    assert consumer("GETJOB", "FROM", "q") is None
    world.pass_ms(3_000)
    job_id = world.add()
    assert consumer.take() == [[b"q", job_id, b"body"]]
    stat = world.run("QSTAT", "q")
    assert stat[stat.index(b"jobs-in") + 1] == 1
    assert stat[stat.index(b"idle") + 1] == 0


def test_requeue_is_recorded(world: World) -> None:
    """G3.7 The new state is in the journal."""
    job_id = world.add()
    world.get()
    world.node().take_recorded()
    world.run("NACK", job_id)
    assert job_id in world.node().take_recorded()


def test_dequeue(world: World) -> None:
    """G4.1 Nothing happens unless the job is queued."""
    job_id = world.add()
    assert world.run("DEQUEUE", job_id) == 1
    assert world.run("DEQUEUE", job_id) == 0


def test_dequeue_makes_active(world: World) -> None:
    """G4.2 The job leaves its queue and becomes active."""
    job_id = world.add()
    world.run("DEQUEUE", job_id)
    assert world.state(job_id) == "active"
    assert world.qlen() == 0


def test_register_counts_the_cause() -> None:
    """G5.1 A job enters the node with exactly one cause, under which the ledger counts it:
    created, imported, replicated or loaded.
    """
    n = Node(name_of(0), b"s", START_MS)
    for cause in (stats.CREATED, stats.IMPORTED, stats.REPLICATED, stats.LOADED):
        job = Job(n.ids.make(10, 1), b"q", b"", 1, START_MS + 10, 1, 0, 1)
        register(n, job, cause)
    assert n.ledger.counts()[:4] == [1, 1, 1, 1]


def test_every_record_lists_its_node(world: World) -> None:
    """G5.2 This node is in the holder set of every record that it has."""
    assert world.show(world.add())["nodes-delivered"] == [name_of(0)]


def test_an_added_job_is_recorded_whole(world: World) -> None:
    """G5.3 the event `added` is written if the job was created here."""
    world.node().take_recorded()
    job_id = world.add(queue="a queue", body="the body")
    payload = world.node().take_recorded()
    assert job_id in payload
    assert b"a queue" in payload
    assert b"the body" in payload
    assert world.node().kinds(job_id) == ["added"]


def test_form_of_an_id(world: World) -> None:
    """G6.1 An id is `D-`, the first 8 characters of the origin's node id, `-`, 24 characters out
    of `A-Z a-z 0-9 . ~`, `-`, and the TTL field of 4 lower-case hexadecimal digits. So it needs no
    escapes in URLs and file names.
    """
    ids = [world.add() for _ in range(600)]
    assert len(set(ids)) == 600
    assert {b".", b"~"} < {job_id[i : i + 1] for job_id in ids for i in range(11, 35)}
    for job_id in ids:
        assert re.fullmatch(rb"D-0a0a0a0a-[A-Za-z0-9.~]{24}-[0-9a-f]{4}", job_id)
        assert quote(job_id) == job_id.decode() == url_id(job_id.decode())


def test_ids_of_former_versions_are_known() -> None:
    """G6.1 Ids of former versions have `+` and `/` for `.` and `~`."""
    ids = IdMaker(b"0a" * 20, b"seed", b"a key")
    ids.add_tube(b"tube")
    of_queue = b"D-0a0a0a0a-O5+iPHI0A45/E3ABl/kK+7HX-05a1"
    assert is_genuine(b"a key", of_queue) and not is_genuine(b"other", of_queue)
    of_ann = b"D-0a0a0a0a-1o61A/dERfT+HlAASbXE622y-05a1"
    assert is_marked(of_ann, b"ann") and not is_marked(of_ann, b"bob")
    assert ids.tube_of(b"D-0a0a0a0a-O5+iPHI0A45/E3Al+rup/+J+-05a1") == b"tube"


def test_ids_of_a_group(world: World) -> None:
    """G6.5 Of the 24 characters 14 are random and shared by up to 128 ids; 2 count these ids"""
    ids = [world.add() for _ in range(129)]
    assert len({id[:25] for id in ids[:128]}) == 1
    assert len({id[25:27] for id in ids[:128]}) == 128
    assert ids[128][:25] != ids[0][:25]


@pytest.mark.parametrize(
    ("ttl", "retry", "field"),
    [
        (86400, 300, b"05a1"),
        (86400, 0, b"05a0"),
        (30, 1, b"0001"),
        (5, 0, b"0000"),
        (130, 0, b"0002"),
        (9_999_999, 0, b"fffe"),
        (9_999_999, 1, b"ffff"),
    ],
)
def test_ttl_field(world: World, ttl: int, retry: int, field: bytes) -> None:
    """G6.2 The TTL field is TTL/60 rounded down, at most 65535, with the lowest bit set for ALO
    and cleared for AMO.
    """
    assert world.add(TTL=ttl, RETRY=retry)[-4:] == field


@pytest.mark.parametrize(
    "word",
    [
        "",
        "x",
        "D-12345678-123456789012345678901234-000",
        "D-12345678-123456789012345678901234-00011",
        "d-12345678-123456789012345678901234-0001",
        "D_12345678-123456789012345678901234-0001",
        "D-12345678_123456789012345678901234-0001",
        "D-12345678-123456789012345678901234_0001",
    ],
)
def test_bad_id(world: World, word: str) -> None:
    """G6.3 Otherwise the command does nothing: `-BADID Invalid Job ID format.`, of several ids
    `-BADID Invalid Job ID format: '<word>'.` for the first wrong one.
    """
    good = world.add()
    for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"):
        assert world.run(command, good, word) == f"BADID Invalid Job ID format: '{word[:64]}'."
        assert world.run(command, word) == "BADID Invalid Job ID format."
    for command in ("SHOW", "WORKING"):
        assert world.run(command, word) == "BADID Invalid Job ID format."
    assert world.state(good) == "queued"


def test_only_the_form_of_an_id_is_looked_at() -> None:
    """G6.3 An argument is an id if it is 40 bytes long with `D` at 0 and `-` at 1, 10 and 35."""
    assert is_job_id(b"D-\x00234567!-\xff23456789012345678901234-zzzz")


def test_creation_time_grows(world: World) -> None:
    """G6.4 Creation time is the clock in ms x 1,000,000, or the last creation time plus 1 if
    that is greater.
    """
    first = world.show(world.add())["ctime"]
    second = world.show(world.add())["ctime"]
    assert first == START_MS * 1_000_000
    assert second == first + 1
    world.pass_ms(1)
    assert world.show(world.add())["ctime"] == (START_MS + 1) * 1_000_000


def test_one_timer(world: World) -> None:
    """G7.1 A job has one timer, at its expiry, or at its due time if the job is active and that
    is earlier and not 0.
    """
    job_id = world.add(TTL=100, RETRY=30)
    assert world.show(job_id)["next-awake-within"] == 100_000
    world.get()
    assert world.show(job_id)["next-awake-within"] == 30_000
    world.run("WORKING", job_id)
    assert world.n.wheel.count == 1


def test_expiry(world: World) -> None:
    """G7.2 At expiry the job is unregistered with cause expired. No message is sent."""
    job_id = world.add(TTL=10)
    world.pass_ms(9_900)
    assert world.state(job_id) == "queued"
    world.pass_ms(200)
    assert world.state(job_id) == "gone"
    assert world.n.ledger.expired == 1


def test_due_time_runs_q2(world: World) -> None:
    """G7.3 At the due time of an active job Q2 runs."""
    job_id = world.add(RETRY=5)
    world.get()
    world.pass_ms(4_990)
    assert world.state(job_id) == "active"
    world.pass_ms(50)
    assert world.state(job_id) == "queued"


def test_a_queued_job_has_only_its_expiry(world: World) -> None:
    """G7.4 A queued job without other holders has only its expiry armed."""
    job_id = world.add(TTL=1000, RETRY=1)
    world.pass_ms(20_000)
    shown = world.show(job_id)
    assert shown["next-awake-within"] == 980_000
    assert shown["additional-deliveries"] == 0


def test_no_wake_without_a_deadline(world: World) -> None:
    """G7.5 The node sleeps until the earliest of all timers."""
    assert next_timer_ms(world.n) == FAR
    world.add(TTL=3600, RETRY=3600)
    world.get()
    world.run("PAUSE", "q", "in")
    wakes = 0
    while (at := next_timer_ms(world.n)) <= START_MS + 3_600_000 - 60_000:
        assert at > world.n.now_ms
        world.n.now_ms = at
        world.settle()
        wakes += 1
    assert wakes < 30, "a node with one waiting job woke up too often"


def test_clock_is_given_from_outside(make_world: Callable[..., World]) -> None:
    """G8.1 Now is the wall clock at start plus the time since then by the machine's steady
    clock, where possible one that counts while the machine is suspended. It never goes back
    while the node runs.
    """
    from tuque.server.loop.pump import Pump

    world = make_world(events=True)
    pump = Pump(world.server)
    world.server.clock_offset_ms = 1 << 50
    pump.clock()
    ahead = world.n.now_ms
    world.server.clock_offset_ms = 0
    pump.clock()
    assert world.n.now_ms == ahead
    pump.poller.close()


@pytest.mark.parametrize("option", ["TTL", "RETRY", "DELAY"])
def test_no_option_wraps(world: World, option: str) -> None:
    """G8.2 All deadlines are 64-bit milliseconds. No option can make one overflow."""
    most = (1 << 31) - 1
    words = ["ADDJOB", "q", "b", 0, "TTL", most, "RETRY", 1, option, most - (option == "DELAY")]
    job_id = world.run(*words)
    job = world.job(job_id)
    assert job.expire_ms == START_MS + most * 1000
    world.get()
    assert world.job(job_id).qtime_ms > START_MS
    for value in (most + 1, 1 << 32, (1 << 32) + 5, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 64):
        assert isinstance(world.run("ADDJOB", "q", "b", 0, option, value), Err)


def test_info_shows_the_ledger(world: World) -> None:
    """G9.2 INFO shows the counters of the ledger (G9.1)."""
    world.add()
    world.run("ACKJOB", world.add())
    text = world.run("INFO").decode()
    for cause, count in zip(stats.CAUSES, world.n.ledger.counts(), strict=True):
        assert re.search(rf"{cause}\w*:{count}\r\n", text), cause


def test_illegal_arrows_stop_the_node() -> None:
    """Legal arrows; any other change of state is a programming error and stops the node."""
    legal = {
        (WAIT_REPL, ACTIVE),
        (WAIT_REPL, ACKED),
        (ACTIVE, QUEUED),
        (ACTIVE, ACKED),
        (QUEUED, ACTIVE),
        (QUEUED, ACKED),
    }
    for was in range(4):
        for to in range(4):
            assert bool(LEGAL[was * 4 + to]) == ((was, to) in legal)
            job = Job(b"D" * 40, b"q", b"", 1, 1, 1, 0, 1)
            job.state = was
            if (was, to) in legal:
                set_state(job, to)
            else:
                with pytest.raises(AssertionError):
                    set_state(job, to)


def test_node_works_without_outboxes(make_world: Callable[..., World]) -> None:
    """Nothing in the core asks for a journal or for events."""
    world = make_world(events=True)
    world.n.records = None
    world.n.events = None
    world.run("NACK", world.add())
    world.run("ACKJOB", *world.get())
    world.n.records = Records()
    world.n.events = Events(1 << 10, 1)
