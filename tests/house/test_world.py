"""The world of nodes that tests stand in: what its words promise."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from time import perf_counter

import pytest

from in_world import within
from raw_resp import NULL, Err
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs.bus import Pause, ReplJob
from tuque.core.records.jobs import ADD
from tuque.errors import ConnectionError
from tuque.server.log.log import log
from tuque.worker import App
from world import World
from world_machines import EARS
from world_wires import Status

Make = Callable[..., World]
SPIN_S = 5.0  # a bound that only something broken passes, also on a busy machine


# ---- time


def test_time_stands_until_the_test_lets_it_pass(world: World) -> None:
    began = world.now_ms
    for _ in range(2000):
        world.add()
    assert world.now_ms == world.n.now_ms == began
    world.pass_ms(1500)
    assert world.now_ms == world.n.now_ms == began + 1500


def test_what_becomes_due_runs_at_its_own_millisecond(world: World) -> None:
    world.add(delay=1, retry=10)
    world.pass_ms(999)
    assert world.qlen() == 0
    world.pass_ms(16)  # a timer is as late as that, at most
    assert world.qlen() == 1


def test_until_stops_at_the_instant_of_the_fact_and_fails_after_its_patience(world: World) -> None:
    began = world.now_ms
    world.add(delay=3, retry=10)
    assert world.until(lambda: world.n.queues[b"q"].length if b"q" in world.n.queues else 0) == 1
    assert 3000 <= world.now_ms - began <= 3016
    with pytest.raises(AssertionError, match="still 0 after 500 ms"):
        world.until(lambda: 0, 500)


def test_after_a_jump_of_the_clock_all_that_is_late_runs_at_once(world: World) -> None:
    world.add(delay=1, retry=10)
    world.add(delay=2, retry=10)
    world.jump_ms(5_000)
    assert world.qlen() == 2
    assert world.n.life.deaf_ms == world.now_ms  # the pump knows that it heard nobody


def test_no_thread_is_started(world: World) -> None:
    before = threading.active_count()
    world.client().ping()
    world.pass_ms(3000)
    assert threading.active_count() == before


def test_pauses_of_other_threads_do_not_move_the_time(world: World) -> None:
    with within(world):
        began_ms = world.now_ms
        other = threading.Thread(target=lambda: time.sleep(0.001))
        other.start()
        other.join()
        assert world.now_ms == began_ms
        time.sleep(1.0)
        assert world.now_ms == began_ms + 1_000


def test_the_same_seed_gives_the_same_ids_and_another_one_others(make_world: Make) -> None:
    one, two, other = make_world(seed=7), make_world(seed=7), make_world(seed=8)
    id = one.add()
    assert id == two.add()
    assert id != other.add()


# ---- wires


def test_a_wire_knows_each_kind_of_reply(world: World) -> None:
    assert world.run("PING") == Status(b"PONG")
    assert isinstance(world.run("PING"), Status)
    assert world.run("QLEN", "q") == 0
    assert world.run("SHOW", "D-12345678-123456789012345678901234-0001") is NULL
    error = world.run("NO", "SUCH")
    assert isinstance(error, Err)
    assert error.startswith("ERR unknown command")
    id = world.add(body="b")
    assert world.run("GETJOB", "FROM", "q") == [[b"q", id, b"b"]]
    assert world.run("GETJOB", "FROM", "q") is None
    world.wire().add(body="late")
    assert world.run.take()[0][2] == b"late"


def test_a_wire_says_and_hears_bytes(world: World) -> None:
    wire = world.wire()
    assert wire.say(b"*1\r\n$4\r\nPI", b"NG\r\nPING\r\n") == b"+PONG\r\n+PONG\r\n"
    assert wire.line("QLEN q") == b":0\r\n"
    assert wire.value("QLEN", "q") == 0
    assert wire.hear() == b""
    wire.send("QUIT")
    assert not wire.is_open()


def test_a_read_lets_time_pass_until_its_reply_comes(world: World) -> None:
    began = world.now_ms
    wire = world.wire()
    wire.send("GETJOB", "TIMEOUT", 700, "FROM", "q")
    assert wire.take() is None
    assert wire.read() is NULL
    assert world.now_ms == began + 700


def test_what_a_client_does_not_read_stays_on_the_way(world: World) -> None:
    wire = world.wire()
    wire.stop_reading()
    wire.put(b"PING\r\n")
    world.pass_ms(1000)
    assert wire.hear() == b""
    wire.read_on()
    assert wire.hear() == b"+PONG\r\n"


def test_a_wire_that_closes_is_gone_for_the_node(world: World) -> None:
    wire = world.wire(address="127.0.0.1:9")
    assert [c.address for c in world.server.clients.values()] == ["127.0.0.1:9"]
    wire.close()
    assert world.server.clients == {}


def test_a_node_takes_one_turn_and_its_words_arrive(world: World) -> None:
    one, two = world.wire(), world.wire()
    two.put(b"PING\r\n")
    one.put(b"PING\r\n" * 20_000)
    world.turn()
    assert two.values() == [b"PONG"]
    heard = len(one.values())
    assert 0 < heard < 20_000
    assert one.values() == []
    world.turn()
    heard += len(one.values())
    world.settle()
    assert heard + len(one.values()) == 20_000


def test_a_reset_ends_what_a_node_does_for_its_client(world: World) -> None:
    from tuque.core.copies.add import on_addjob, settle
    from tuque.core.model.job import AddSpec

    spec = settle(world.n, AddSpec())
    for _ in range(12_000):
        on_addjob(world.n, b"q", b"body", spec, -1, 0, 0)
    wire = world.wire()
    wire.put(b"JSCAN 0 COUNT 100000\r\n")
    world.turn()
    assert len(world.server.long_commands) == 1
    wire.reset()
    world.turn()
    assert (world.server.long_commands, world.server.clients, wire.unread) == ([], {}, b"")


def test_iproto_is_heard_whenever_it_answers(world: World) -> None:
    conn = world.iproto()
    assert conn.call("queue.create_tube", "t", "fifo", {}) == []
    began = world.now_ms
    assert conn.call("queue.tube.t:take", 0.3) == []
    assert world.now_ms == began + 300
    other = world.iproto()
    sync = conn.ask_call("queue.tube.t:take", 5)
    other.call("queue.tube.t:put", "x")
    assert conn.hear(sync).data[0][2] == "x"
    conn.close()


# ---- clients and workers


def test_the_shipped_client_speaks_to_a_node(world: World) -> None:
    client = world.client()
    began = world.now_ms
    id = client.addjob("q", b"body")
    assert world.holders(id.encode()) == [0]
    assert [job.id for job in client.getjob("q")] == [id]
    assert client.getjob("q", timeout_ms=2000) == []
    assert world.now_ms == began + 2000


def test_a_lost_reply_of_a_client_was_carried_out(world: World) -> None:
    client = world.client()
    client.lose_reply("ADDJOB")
    with pytest.raises(ConnectionError):
        client.addjob("q", b"body")
    assert world.qlen() == 1
    client.addjob("q", b"body")


def test_a_client_turns_to_another_node_when_its_own_is_killed(make_world: Make) -> None:
    world = make_world(3)
    client = world.client(0, others=True)
    client.addjob("q", b"one")
    world.kill(0)
    client.addjob("q", b"two")
    world.client(0, others=True).addjob("q", b"who began without it")
    with pytest.raises(ConnectionError):
        world.client(0).addjob("q", b"three")


def test_a_worker_runs_an_app_one_step_at_a_time(world: World) -> None:
    app = App("tuque://127.0.0.1:1", queue="q")
    ran: list[int] = []

    @app.task(keep_s=100)
    def double(x: int) -> int:
        ran.append(x)
        return 2 * x

    worker = world.worker(app)
    one, two = double.enqueue(1), double.enqueue(2)
    assert world.qlen() == 2
    assert ran == []
    job = worker.run_one()
    assert job is not None
    assert (ran, job.state) == ([1], "done")
    assert worker.run_until_idle() == 1
    assert (one.result(), two.result()) == (2, 4)
    assert world.outcome(two.id.encode()) == "done"


def test_a_killed_worker_leaves_its_job_to_the_next(world: World) -> None:
    app = App("tuque://127.0.0.1:1", queue="q")
    ran: list[int] = []

    @app.task(retry_s=30, keep_s=100)
    def note(x: int) -> None:
        ran.append(x)

    worker = world.worker(app)
    id = note.enqueue(1).id.encode()
    worker.kill("end")
    worker.run_one()
    assert (ran, world.outcome(id)) == ([1], "")
    world.pass_ms(31_000)
    worker.lose_reply("DONE")
    assert worker.run_until_idle() == 1
    assert (ran, world.outcome(id)) == ([1, 1], "done")
    assert world.server.table[b"DONE"].calls == 2  # once more for the reply that was lost


def test_a_worker_at_work_runs_jobs_and_beats_while_time_passes(make_world: Make) -> None:
    world = make_world(2)
    app = App("tuque://127.0.0.1:1", queue="q")
    did: list[str] = []

    @app.task(retry_s=3, keep_s=100)
    async def lasts(text: str) -> str:
        did.append(f"begin {text}")
        await asyncio.sleep(10)
        did.append(f"end {text}")
        return text

    one, other = world.at_work(app), world.at_work(app, 1)
    began, handles = world.now_ms, [lasts.enqueue(text) for text in "abc"]
    world.until(lambda: len(did) == 2)
    assert [handle.result(60) for handle in handles] == ["a", "b", "c"]
    assert sorted(did) == sorted(f"{what} {text}" for what in ("begin", "end") for text in "abc")
    assert 20_000 <= world.now_ms - began <= 25_000
    one.stop()
    assert one.ends()
    assert not other.ended.done()


def test_what_ends_a_worker_at_work_is_raised(world: World) -> None:
    shift = world.at_work(App("tuque://127.0.0.1:1", queue="q"), metrics_port=-1)
    with pytest.raises(OverflowError):
        world.pass_ms(10)
    assert shift.ended.done()
    world.loop.shifts.clear()


# ---- processes and disks


def test_a_killed_node_comes_back_with_what_it_had_written(make_world: Make) -> None:
    world = make_world()
    id, wire = world.add(), world.wire()
    world.kill(0)
    assert not world.node(0).is_up
    assert wire.is_closed
    assert world.holders(id) == []
    with pytest.raises(OSError, match="n0"):
        world.wire(0)
    world.pass_ms(1000)
    world.start(0)
    assert world.holders(id) == [0]
    world.kill(0)
    world.start(0, "lost")
    assert world.holders(id) == []


def test_a_node_without_a_journal_comes_back_with_nothing(make_world: Make) -> None:
    world = make_world(journal="off")
    id = world.add()
    assert world.holders(id) == [0]
    world.kill(0)
    world.start(0)
    assert world.holders(id) == []


def test_a_node_that_stops_in_order_closes_its_connections(world: World) -> None:
    wire, id = world.wire(), world.add()
    world.stop(0)
    assert wire.is_closed
    world.disk(0).lose_last(0)
    world.start(0)
    assert world.holders(id) == [0]


def test_shutdown_ends_the_process(world: World) -> None:
    world.run("SHUTDOWN")
    assert not world.node(0).is_up
    world.start(0)


def test_a_node_that_stands_still_does_nothing_meanwhile(world: World) -> None:
    wire = world.wire()
    world.add(delay=1, retry=10)
    world.stall(0, 3000)
    assert wire.say(b"PING\r\n") == b""
    world.pass_ms(2999)
    assert wire.hear() == b""
    world.pass_ms(1)
    assert wire.hear() == b"+PONG\r\n"
    assert world.n.life.deaf_ms == world.now_ms


def test_what_was_written_last_is_lost_with_the_page_cache(world: World) -> None:
    first = world.add()
    world.pass_ms(2000)
    second = world.add()
    world.kill(0)
    world.disk(0).lose_last(1000)
    world.start(0)
    assert (world.holders(first), world.holders(second)) == ([0], [])


def test_an_old_disk_comes_back(world: World) -> None:
    first = world.add()
    world.disk(0).snapshot()
    second = world.add()
    world.kill(0)
    world.start(0, "old")
    assert (world.holders(first), world.holders(second)) == ([0], [])
    world.add()
    world.kill(0)
    world.disk(0).restore()
    world.start(0)
    assert len(world.n.jobs) == 1


def test_a_full_or_failing_disk_is_one_until_it_is_well(make_world: Make) -> None:
    world = make_world(journal="always")
    disk = world.disk(0)
    for fault in (disk.full, lambda: disk.fail(writes=100), lambda: disk.fail(syncs=100)):
        held = world.wire()
        fault()
        assert held("ADDJOB", "q", "body", 0) is None
        world.pass_ms(1500)
        assert not held.is_open()
        assert world.wire()("ADDJOB", "q", "body", 0).startswith("MISCONF")
        disk.well()
        world.pass_ms(15_000)
        assert isinstance(world.wire()("ADDJOB", "q", "body", 0), Status)


def test_a_slow_disk_holds_replies_for_as_long_as_its_sync_takes(make_world: Make) -> None:
    world = make_world(journal="always")
    world.add()
    world.disk(0).slow(40)
    began = world.now_ms
    world.run.send("ADDJOB", "q", "body", 0)
    world.run.read()
    assert 40 <= world.now_ms - began <= 80
    world.disk(0).well()


def test_a_journal_rests_a_second_after_any_sync(make_world: Make) -> None:
    world = make_world(journal="always")
    for _ in range(40):
        world.add()
        world.pass_ms(1_059)
    assert world.qlen() == 40


def test_a_clock_that_was_set_back_is_that_of_the_next_start(world: World) -> None:
    world.kill(0)
    world.machines[0].clock.jump(-60_000)
    world.start(0)
    assert world.n.now_ms == world.now_ms - 60_000


@pytest.mark.parametrize(("how", "survives"), [("kill", True), ("stop", True), ("power", False)])
def test_a_node_ends_in_each_way_and_is_down_for_a_while(
    make_world: Make, how: str, *, survives: bool
) -> None:
    world = make_world()
    world.add()
    world.pass_ms(2000)
    world.add()  # synced within a second
    boots, began_ms = world.machines[0].clock.boots, world.n.now_ms
    world.restart(how=how, off_ms=3000, jump_ms=50)
    assert world.n.now_ms == began_ms + 3050
    assert world.qlen() == 1 + survives
    assert world.machines[0].clock.boots == boots + (how == "power")


def test_a_journal_is_written_anew(world: World) -> None:
    id = world.add()
    world.run("ACKJOB", world.add())
    before = world.disk().segment()
    assert before in world.disk().files.names
    world.begin_rewrite()
    assert world.node().committer.is_rewriting()
    world.until(lambda: not world.node().committer.is_rewriting())
    world.rewrite()
    assert world.info("persistence")["journal_rewrites"] == "2"
    assert world.disk().segment() > before
    assert before not in world.disk().files.names
    world.restart()
    assert list(world.n.jobs) == [id]


def test_the_power_fails_at_a_change_of_the_disk(make_world: Make) -> None:
    world = make_world(journal="always")
    world.add()
    world.disk().cut_power_at(1)
    world.run.send("ADDJOB", "q", "body", 0)
    assert not world.node().is_up
    world.start(0)
    assert world.qlen() == 1


def test_a_reply_that_is_held_waits_for_a_sync(make_world: Make) -> None:
    world = make_world(journal="always")
    is_held, id = world.run.held("ADDJOB", "q", "body", 0)
    assert is_held
    assert world.run.held("GETJOB", "FROM", "q") == (False, [[b"q", id, b"body"]])


def test_a_command_is_run_in_one_turn(make_world: Make) -> None:
    world = make_world()
    for _ in range(40):
        world.add()
    world.node().committer.slice_jobs = 10
    world.run.take()
    world.begin_rewrite()
    turns: list[int] = []
    world.lab.after_turn = turns.append
    world.run.send_in_turn("QLEN", "q")
    assert turns == [0]
    assert world.run.take() == 40
    world.until(lambda: not world.node().committer.is_rewriting())


def test_a_stuck_disk_ends_no_sync_until_it_is_well(make_world: Make) -> None:
    world = make_world(journal="always")
    world.add()
    world.disk(0).slow(1)  # the thread syncs, not the pump
    world.disk(0).stick()
    world.run.send("ADDJOB", "q", "body", 0)
    world.pass_ms(500)
    assert world.run.take() is None
    world.disk(0).well()
    world.pass_ms(10)
    assert isinstance(world.run.take(), Status)


def test_records_and_log_and_info_and_events_of_a_node(make_world: Make) -> None:
    world = make_world(events=True)
    world.node().records()
    id = world.add()
    assert [(r.kind, r.id) for r in world.node().records()] == [(ADD, id)]
    assert world.node().records() == []
    assert world.node().events() == [("added", id)]
    assert world.node().info("jobs")["registered_jobs"] == "1"
    assert "listens on port" in world.node().log[0]
    assert world.node().tubes.by_name == {}


def test_options_are_those_of_the_server(make_world: Make) -> None:
    world = make_world(2, maxmemory="64mb", tube_failover=False, only={1: {"maxmemory": "32mb"}})
    assert [int(node.core.limits.memory_bytes) >> 20 for node in world.nodes] == [64, 32]
    assert not world.cfg.tube_failover


# ---- links


def test_three_nodes_are_linked_from_the_start_and_take_no_time_for_it(make_world: Make) -> None:
    world = make_world(3)
    assert world.now_ms - world.start_ms < 100
    id = world.add(replicate=3)
    assert world.holders(id) == [0, 1, 2]
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]


def test_a_cut_link_is_down_for_both_until_it_heals(make_world: Make) -> None:
    world = make_world(3)
    world.cut(0, 1)
    assert [node.shell.linked() for node in world.nodes] == [1, 1, 2]
    world.pass_ms(10_000)
    assert not world.is_whole()
    world.heal()
    world.until(world.is_whole)
    world.isolate(2)
    assert [node.shell.linked() for node in world.nodes] == [1, 1, 0]
    before = world.now_ms
    world.link()
    assert world.is_whole()
    assert world.now_ms == before


def test_two_nodes_are_linked_again_and_the_third_is_not(make_world: Make) -> None:
    world = make_world(3)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        world.cut(a, b)
    world.link(0, 2)
    assert [world.linked(a, b) for a, b in ((0, 1), (0, 2), (1, 2))] == [False, True, False]
    world.link()
    assert world.linked(0, 1)
    assert world.linked(1, 2)


def test_what_is_said_on_a_new_link_is_on_its_way(make_world: Make) -> None:
    world = make_world(2)
    id = world.add(replicate=2)
    world.cut(0, 1)
    world.run("ACKJOB", id)
    world.join(0, 1)
    assert world.linked(1, 0)
    world.hold(1, 0)
    world.settle()
    assert world.states(id)[0] == ACKED, "the other node's word does not arrive"
    world.release(1, 0)
    assert world.holders(id) == []


def test_a_step_is_the_next_thing_of_this_instant(make_world: Make) -> None:
    world = make_world(2)
    wire = world.wire()
    wire.put(b"PING\r\n")
    steps = 0
    while not wire.values():
        assert world.step()
        steps += 1
    assert steps > 1
    world.settle()
    assert not world.step()


def test_heartbeats_are_said_and_answered_at_once(make_world: Make) -> None:
    world = make_world(2)
    n, before = world.n, world.now_ms
    peer = n.peers[world.slot(0, 1)]
    said = int(n.round)
    world.beat()
    assert (int(n.round), world.now_ms) == (said + 2, before)
    assert peer.echoed_round > said


def test_held_messages_arrive_once_they_are_released(make_world: Make) -> None:
    world = make_world(2)
    world.hold(0, 1)
    world.run.send("ADDJOB", "q", "body", 5000, "REPLICATE", 2)
    assert world.run.take() is None
    (id,) = world.n.jobs
    assert world.holders(id) == [0]
    world.release(0, 1)
    assert world.holders(id) == [0, 1]
    assert world.run.take() == id


def test_what_is_let_go_is_on_its_way(make_world: Make) -> None:
    world = make_world(2)
    world.hold(0, 1)
    id = world.at(0).begin_add(replicate=2)
    world.let_go(0, 1)
    assert world.holders(id) == [0]
    world.settle()
    assert world.holders(id) == [0, 1]


def test_a_message_of_the_test_is_sent_as_the_nodes_own(make_world: Make) -> None:
    world = make_world(2)
    world.send(0, 1, Pause(b"q", 3, world.now_ms))
    assert world.wire(1)("PAUSE", "q", "state") == b"all"


def test_what_the_test_does_to_a_core_is_carried_out(make_world: Make) -> None:
    world = make_world(2)
    world.pass_ms(333)
    n = world.node(1).core
    assert n.now_ms == world.now_ms
    from tuque.core.copies.add import on_addjob, settle
    from tuque.core.model.job import AddSpec

    spec = AddSpec()
    spec.replicate = 2
    job = on_addjob(n, b"q", b"body", settle(n, spec))
    world.settle()
    assert world.holders(job.id) == [0, 1]


def test_a_trace_has_the_form_of_the_golden_ones(make_world: Make) -> None:
    world = make_world(3)
    id = world.add(replicate=3, retry=30)
    assert world.trace() == [
        "  +0ms A > B REPLJOB J1 holders ABC",
        "  +0ms A > C REPLJOB J1 holders ABC",
        "  +0ms B > A GOTJOB J1",
        "  +0ms C > A GOTJOB J1",
        "  J1: A queued, B active, C active",
    ]
    assert world.trace() == []
    world.get()
    assert world.trace() == ["  J1: A active, B active, C active"]
    world.pass_ms(100)
    world.run("ACKJOB", id)
    assert world.trace()[0] == "  +100ms A > B SETACK J1 holders ABC"
    world.kill(2)
    assert world.trace() == ["  J1: A tombstone, B tombstone, C down"]


def test_the_leader_of_a_tube_is_found_and_another_one_after_its_loss(make_world: Make) -> None:
    world = make_world(3)
    world.until(lambda: world.node(0).tubes.voter_state.voters is not None)
    made = lambda: world.wire(0)("TUBE", "CREATE", "t", "fifo", "SYNC", 2)  # noqa: E731  as asked
    world.until(lambda: made() == b"OK" or world.leader("t") is not None)
    assert world.leader("t") == 0
    assert world.leader("other") is None
    world.pass_ms(2000)
    world.kill(0)
    assert world.leader(b"t") is None
    assert world.until(lambda: world.leader("t")) in (1, 2)


def test_dead_letters_and_outcomes_are_found(world: World) -> None:
    ids = [world.run("ADDJOB", "q", "body", 0, "ATTEMPTS", 1, "DEAD", "dead") for _ in range(2)]
    for id in ids:
        world.get()
        run = world.run("START", id)[0][0]
        assert world.run("FAIL", id, run)[0] == b"dead"
    assert world.dead("dead") == [bytes(id) for id in ids]
    world.run("DEAD", "PURGE", "dead", "ALL")
    assert world.dead("dead") == []
    assert world.outcome(ids[0]) == "gone"


# ---- the check at the end, and the price


def test_the_check_fails_when_tables_disagree_or_a_bug_was_logged(make_world: Make) -> None:
    world = make_world()
    world.check()
    id = world.add()
    job = world.n.jobs.pop(id)
    with pytest.raises(AssertionError):
        world.check()
    world.n.jobs[id] = job
    world.check()
    world.n.job_bytes += 1
    with pytest.raises(AssertionError, match="bytes of jobs"):
        world.check()
    world.n.job_bytes -= 1
    EARS.speaker = world.node().machine
    try:
        raise LookupError
    except LookupError:
        log.exception("a bug")
    EARS.speaker = None
    with pytest.raises(AssertionError, match="Traceback"):
        world.check()
    world.node().machine.records.clear()  # for the check at the end of this test


def test_worlds_are_cheap(make_world: Make) -> None:
    make_world(3)
    began = perf_counter()
    for _ in range(20):
        make_world()
    for _ in range(5):
        make_world(3).pass_ms(10_000)
    assert perf_counter() - began < SPIN_S


# ---- nodes that tests drive directly


def test_clients_of_a_node_have_numbers(make_world: Make) -> None:
    world = make_world(2)
    one, two = world.at(1, 1), world.at(1, 2)
    assert one is world.at(1, 1)
    one.wait()
    two.wait("other", timeout_ms=500)
    id = world.at(1).add(replicate=1)
    world.pass_ms(500)
    assert (one.served(), two.served()) == ([id], [])
    one.wait()
    again = world.at(1).add(replicate=1)
    assert one.served() == [id, again]
    world.kill(1)
    world.start(1)
    assert world.at(1, 1) is not one


def test_what_nodes_said_is_heard_by_its_kind(make_world: Make) -> None:
    world = make_world(2)
    world.pass_ms(5000)
    assert world.heard() == [], "only what they say whatever happens"
    id = world.at(0).add(replicate=2)
    assert [(a, b, m.id) for a, b, m in world.heard(ReplJob)] == [(0, 1, id)]
    assert world.heard(ReplJob) == world.heard()[:1]
    world.forget_heard()
    assert world.heard() == []


def test_a_job_that_waits_for_a_copy_is_begun(make_world: Make) -> None:
    world = make_world(2)
    world.hold(1, 0)
    id = world.at(0, 1).begin_add(replicate=2, timeout_ms=5000)
    assert world.copies(id) == world.holders(id) == [0, 1]
    assert world.on_way(1, 0) > 0
    world.release(1, 0)
    assert world.at(0, 1).take() == id
    assert (world.on_way(1, 0), world.believed(0, id)) == (0, [0, 1])
    world.isolate(1)
    world.at(0)("ACKJOB", id)
    assert (world.copies(id), world.holders(id)) == ([1], [0, 1])


def test_a_node_that_restarts_reaches_nobody_until_it_is_linked(make_world: Make) -> None:
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    world.restart(1)
    world.pass_ms(5000)
    assert world.holders(id) == [0, 2]
    assert [world.linked(1, b) for b in (0, 2)] == [False, False]
    world.link(1, 2)
    assert [world.linked(1, b) for b in (0, 2)] == [False, True]


def test_a_link_is_filled_until_it_is_released(make_world: Make) -> None:
    world = make_world(2, bus_buffer_limit="1mb")
    peer = world.n.peers[world.slot(0, 1)]
    world.fill(0, 1)
    world.pass_ms(3000)
    assert world.linked(0, 1)
    assert not peer.has_room
    world.release(0, 1)
    assert peer.has_room


def test_nodes_leave_and_are_forgotten(make_world: Make) -> None:
    world = make_world(3)
    world.leave(2)
    assert [bool(n.is_leaving) for n in world.cores] == [False, False, True]
    assert world.n.peers[world.slot(0, 2)].is_leaving
    world.leave(2, False)
    assert not world.n.peers[world.slot(0, 2)].is_leaving
    world.kill(2)
    world.forget(0, 2)
    assert len(world.cores) == 2
    assert world.n.forgotten >> world.slot(0, 2) & 1
