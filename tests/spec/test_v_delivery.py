"""SPEC V: GETJOB, waiting, fairness, delivery."""

from __future__ import annotations

import pytest

from raw_resp import NULL
from sim.engine.clock import START_MS
from world import World


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["q"], "GETJOB has no option 'q'"),
        (["NOHANG"], "GETJOB needs FROM, and a queue"),
        (["FROM"], "GETJOB needs FROM, and a queue"),
        (["COUNT", "1", "FROM"], "GETJOB needs FROM, and a queue"),
        (["NOHANG", "TIMEOUT"], "TIMEOUT needs a value"),
        (["NOHANG", "count"], "COUNT needs a value"),
        (["WHAT", "FROM", "q"], "GETJOB has no option 'WHAT'"),
    ],
)
def test_syntax(world: World, words: list[str], error: str) -> None:
    """V1.1 An unknown word: `-ERR syntax error: GETJOB has no option '<word>'`. No FROM, or no
    queue: `-ERR syntax error: GETJOB needs FROM, and a queue`. A last word that needs a value: as
    in R1.1.
    """
    world.add()
    assert world.run("GETJOB", *words) == f"ERR syntax error: {error}"
    assert world.qlen() == 1


def test_all_after_from_are_queues(world: World) -> None:
    """V1.1 Options precede FROM in any order; everything after FROM is a queue name."""
    job_id = world.add("COUNT")
    reply = world.run("GETJOB", "COUNT", 5, "NOHANG", "FROM", "NOHANG", "COUNT", "2")
    assert reply == [[b"COUNT", job_id, b"body"]]


@pytest.mark.parametrize("count", ["0", "-1", "x", "", "1.0"])
def test_count_errors(world: World, count: str) -> None:
    """V1.2 COUNT not an integer of at least 1: `-ERR COUNT must be a number greater than zero`."""
    world.add()
    reply = world.run("GETJOB", "COUNT", count, "FROM", "q")
    assert reply == "ERR COUNT must be a number greater than zero"
    assert world.qlen() == 1


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        ("-5", "ERR timeout is negative"),
        ("soon", "ERR timeout is not an integer or out of range"),
    ],
)
def test_timeout_errors(world: World, timeout: str, error: str) -> None:
    """V1.2 TIMEOUT: errors as in R1.2;"""
    assert world.run("GETJOB", "TIMEOUT", timeout, "FROM", "q") == error
    waiting = world.wire()
    assert waiting("GETJOB", "TIMEOUT", 0, "FROM", "q") is None
    world.pass_ms(10_000_000)
    assert waiting.take() is None
    assert waiting.c.is_blocked


def test_reply_form(world: World) -> None:
    """V1.3 If there is at least one, the reply is an array of jobs. Each job is an array of queue,
    id and body, and with WITHCOUNTERS also `nacks`, its count, `additional-deliveries`, its count.
    """
    job_id = world.add(body="b1")
    assert world.run("GETJOB", "FROM", "q") == [[b"q", job_id, b"b1"]]
    world.run("NACK", job_id)
    reply = world.run("GETJOB", "WITHCOUNTERS", "FROM", "q")
    assert reply == [[b"q", job_id, b"b1", b"nacks", 1, b"additional-deliveries", 0]]


def test_nohang(world: World) -> None:
    """V1.4 No job and NOHANG: a null array;"""
    world.run.hear()
    world.run("GETJOB", "NOHANG", "FROM", "nothing")
    from tuque.server.commands.dispatch import execute

    execute(world.server, world.run.c, [b"GETJOB", b"NOHANG", b"FROM", b"nothing"])
    assert world.run.hear() == b"*-1\r\n"


LEAVING = "LEAVING This node is leaving the cluster, please connect to a different one"


def test_leaving(world: World) -> None:
    """V1.5 No job and this node leaves: `-LEAVING This node is leaving the cluster, please connect
    to a different one`.
    """
    job_id = world.add()
    world.n.is_leaving = True
    assert world.get() == [job_id]
    assert world.run("GETJOB", "NOHANG", "FROM", "q") is NULL
    assert world.run("GETJOB", "FROM", "q") == LEAVING


def test_wait(world: World) -> None:
    """V1.6 Otherwise the client waits once in each of the named queues, in order of arrival, and
    the queues are created.
    """
    waiting = world.wire()
    assert waiting("GETJOB", "FROM", "a", "b", "a") is None
    for name in ("a", "b"):
        stat = world.run("QSTAT", name)
        assert stat[stat.index(b"blocked") + 1] == 1


def test_rounds(world: World) -> None:
    """V2.1 The queues are visited in rounds from left to right, one job from each, until COUNT is
    reached or a round gave nothing. A queue may be named twice.
    """
    a, b, c = world.add("q1"), world.add("q1"), world.add("q2")
    assert world.get("q1", "q2", "q1", count=10) == [a, c, b]
    ids = {name: [world.add(name) for _ in range(3)] for name in ("x", "y")}
    taken = world.get("x", "y", count=5)
    assert taken == [ids["x"][0], ids["y"][0], ids["x"][1], ids["y"][1], ids["x"][2]]


def test_paused_out_gives_nothing(world: World) -> None:
    """V2.2 A queue whose output is paused gives nothing."""
    job_id = world.add()
    world.run("PAUSE", "q", "out")
    assert world.get() == []
    assert world.get("q", "other") == []
    world.run("PAUSE", "q", "none")
    assert world.get() == [job_id]


def test_expired_is_not_handed_out(world: World) -> None:
    """V2.3 A queue gives its oldest job by order key. An expired job is not delivered but
    unregistered (G7.2).
    """
    old, young = world.add(TTL=5), world.add(TTL=50)
    world.jump_ms(5_000)
    assert world.get(count=5) == [young]
    assert world.state(old) == "gone"
    assert world.n.ledger.expired == 1


def test_served_in_the_same_step(world: World) -> None:
    """V3.1 Waiting clients are served after each command and timer that queued a job or cleared
    an output pause, queue by queue in the order in which these became ready.
    """
    by_command, by_timer, by_pause = world.wire(), world.wire(), world.wire()
    late = world.add("t", DELAY=5)
    world.run("PAUSE", "p", "out")
    held = world.add("p")
    by_command("GETJOB", "FROM", "c")
    by_timer("GETJOB", "FROM", "t")
    by_pause("GETJOB", "FROM", "p")
    now = world.add("c")
    assert by_command.take()[0][1] == now
    assert by_timer.take() is None
    world.pass_ms(5_100)
    assert by_timer.take()[0][1] == late
    assert by_pause.take() is None
    world.run("PAUSE", "p", "none")
    assert by_pause.take()[0][1] == held


def test_longest_waiting_first(world: World) -> None:
    """V3.2 The client that has waited longest is served first."""
    waiting = [world.wire() for _ in range(5)]
    for session in waiting:
        session("GETJOB", "FROM", "q")
    ids = [world.add() for _ in range(5)]
    assert [session.take()[0][1] for session in waiting] == ids


def test_woken_client_gets_up_to_count(world: World) -> None:
    """V3.2 It gets up to COUNT jobs out of all its queues (V2), in the reply form of V1.3."""
    ids = [world.add() for _ in range(4)]
    world.get(count=4)
    waiting, second = world.wire(), world.wire()
    waiting("GETJOB", "COUNT", 3, "WITHCOUNTERS", "FROM", "other", "q")
    second("GETJOB", "COUNT", 3, "FROM", "q")
    world.run("NACK", *ids)
    reply = waiting.take()
    assert [job[1] for job in reply] == ids[:3]
    assert reply[0][3:] == [b"nacks", 1, b"additional-deliveries", 0]
    assert [job[1] for job in second.take()] == ids[3:]


def test_served_client_leaves_all_lists(world: World) -> None:
    """V3.3 A client that was served from one queue leaves the waiting lists of all."""
    waiting = world.wire()
    waiting("GETJOB", "FROM", "a", "b")
    world.add("a")
    assert len(waiting.take()) == 1
    world.add("b")
    assert waiting.take() is None
    assert world.qlen("b") == 1


def test_delivered_job_is_active(world: World) -> None:
    """V4.1 The job leaves the queue and becomes active; `jobs-out` grows and the idle time of the
    queue restarts.
    """
    job_id = world.add()
    world.pass_ms(5_000)
    world.get()
    stat = world.run("QSTAT", "q")
    assert world.state(job_id) == "active"
    assert stat[stat.index(b"jobs-out") + 1] == 1
    assert stat[stat.index(b"idle") + 1] == 0


def test_delivery_is_counted(world: World) -> None:
    """V4.2 The job counts as delivered; the times of its first and last delivery are kept."""
    job = world.job(world.add(RETRY=1))
    world.pass_ms(100)
    world.get()
    world.pass_ms(2_000)
    world.get()
    assert job.delivered_count == 2
    assert (job.first_ms, job.last_ms) == (START_MS + 100, START_MS + 2_100)


def test_retry_runs_from_the_delivery(world: World) -> None:
    """V4.3 The due time of an ALO job becomes now + retry + J."""
    job_id = world.add(RETRY=10)
    world.pass_ms(8_900)
    assert world.get() == [job_id]
    world.pass_ms(9_900)
    assert world.get() == []
    world.pass_ms(200)
    assert world.get() == [job_id]


def test_at_most_once_is_delivered_once(world: World) -> None:
    """V4.3 That of an AMO job becomes 0."""
    job_id = world.add(RETRY=0, TTL=100)
    assert world.get() == [job_id]
    world.run("NACK", job_id)
    world.run("ENQUEUE", job_id)
    world.run("WORKING", job_id)
    world.run("DEQUEUE", job_id)
    world.pass_ms(99_000)
    assert world.get() == []
    assert world.show(job_id)["next-requeue-within"] is None


def test_delivery_is_recorded(world: World) -> None:
    """V4.4 The new state is in the journal."""
    for retry in (0, 10):
        job_id = world.add(RETRY=retry)
        world.node().take_recorded()
        world.get()
        assert job_id in world.node().take_recorded()


def test_delivery_is_an_event(world: World) -> None:
    """V4.5 The event `delivered` is written."""
    job_id = world.add()
    world.get()
    assert world.node().kinds(job_id) == ["added", "delivered"]


def test_timeout(world: World) -> None:
    """V5.1 At its timeout the client gets a null array and leaves all waiting lists. Each
    timeout has its own timer.
    """
    crowd = [world.wire() for _ in range(300)]
    for session in crowd:
        session("GETJOB", "FROM", "idle")
    waiting = world.wire()
    waiting("GETJOB", "TIMEOUT", 10, "FROM", "q", "r")
    world.pass_ms(9)
    assert waiting.take() is None
    world.pass_ms(1)
    assert waiting.hear() == b"*-1\r\n"
    world.add("q")
    assert waiting.take() is None
    assert world.qlen() == 1
    assert waiting("PING") == b"PONG"


def test_an_old_timeout_does_not_hit_a_new_wait(world: World) -> None:
    """V5.1 Each timeout has its own timer."""
    waiting = world.wire()
    waiting("GETJOB", "TIMEOUT", 100, "FROM", "q")
    world.add()
    assert waiting.take()
    waiting("GETJOB", "TIMEOUT", 500, "FROM", "q")
    world.pass_ms(400)
    assert waiting.take() is None
    world.pass_ms(100)
    assert waiting.take() is NULL


def test_disconnect_while_waiting(world: World) -> None:
    """V6.1 A client that disconnects leaves all waiting lists. No job is delivered to it after
    that.
    """
    from tuque.core.queues.procedures import stop_waiting

    waiting = world.wire()
    waiting("GETJOB", "FROM", "q", "r")
    stop_waiting(world.n, waiting.c.number)  # what the pump calls when the connection ends
    job_id = world.add()
    assert waiting.take() is None
    assert world.get() == [job_id]


def test_starting_to_leave(world: World) -> None:
    """V7.1 Clients that wait in GETJOB get `-LEAVING This node is leaving the cluster, please
    connect to a different one`.
    """
    waiting = world.wire()
    waiting("GETJOB", "FROM", "q")
    assert world.run("CLUSTER", "LEAVING", "yes") == b"OK"
    world.settle()
    assert waiting.take() == LEAVING


def test_flushall_while_waiting(world: World) -> None:
    """V7.1 on DEBUG FLUSHALL and CLUSTER RESET a null array."""
    for words in (("DEBUG", "FLUSHALL"), ("CLUSTER", "RESET")):
        waiting = world.wire()
        waiting("GETJOB", "FROM", "q")
        assert world.run(*words) == b"OK"
        world.settle()
        assert waiting.take() is NULL


def test_lost_reply_counts_as_delivery(world: World) -> None:
    """V6.2 A reply that was made and could not be sent counts as a delivery: an ALO job comes back
    after retry, an AMO job is lost.
    """
    often, once = world.add(RETRY=5), world.add(RETRY=0)
    leaver = world.wire()
    leaver("GETJOB", "COUNT", 2, "FROM", "q")  # the reply is thrown away
    world.pass_ms(5_100)
    assert world.get(count=2) == [often]
    assert world.state(once) == "active"
