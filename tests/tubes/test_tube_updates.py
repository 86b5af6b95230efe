"""UPDATEJOB of tasks of type `tasks`, and deliveries that nobody begins (SPEC T48.11, W6.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from raw_resp import Err
from world import World

Make = Callable[..., World]

CHANGES: Final[dict[str, tuple[object, ...]]] = {
    "BODY": ("another",),
    "DELAY": (50,),
    "TTL": (500,),
    "ATTEMPTS": (7,),
    "HEADERS": (1, "h", "v"),
    "PRI": (3,),
}
STATES: Final = ["READY", "DELAYED", "back-off", "TAKEN", "running", "flagged", "BURIED", "done",
                 "cancelled", "gone"]  # fmt: skip
REFUSED: Final = {
    "TAKEN": "ATWORK Job was delivered",
    "running": "ATWORK Job is at work at worker w",
    "flagged": "CANCELLED",
    "BURIED": "DEAD",
    "done": "ACKED",
    "cancelled": "CANCELLED",
    "gone": "NOJOB",
}
OFTEN: Final = ("TAKEN", "flagged", "running", "BURIED")  # PRI alone is changed there, too (T1.10)


def prepare(world: World, state: str, leader: int = 0) -> bytes:
    """A task of tube `t` in that state."""
    wire = world.wire(leader)
    delay = ("DELAY", 100) if state == "DELAYED" else ()
    keep = () if state == "gone" else ("KEEP", 60)
    words = ("ATTEMPTS", 3, "BACKOFF", 100, 100, 0, "TTL", 400, "UNIQUE", "u", *keep, *delay)
    id: bytes = wire.ask("ADDJOB", "t", "body", 0, *words)
    assert not isinstance(id, Err), id
    if state == "cancelled":
        assert wire.ask("CANCEL", id) == [b"ended"]
    if state in ("READY", "DELAYED", "cancelled"):
        return id
    assert [job[1] for job in wire.ask("GETJOB", "FROM", "t")] == [id]
    run = wire.ask("START", "WORKER", "w", id)[0][0] if state in ("back-off", "running") else b"-"
    if state == "back-off":
        assert wire.ask("FAIL", id, run)[0] == b"retry"
    elif state == "flagged":
        assert wire.ask("CANCEL", id) == [b"flagged"]
    elif state == "BURIED":
        wire.ask("TUBE", "BURY", "t", world.node(leader).tubes.by_name[b"t"].next_number - 1)
    elif state in ("done", "gone"):
        assert wire.ask("ACKJOB", id) == 1
    return id


def seen(world: World, id: bytes, node: int = 0) -> dict[str, Any]:
    """What SHOW says of the task, times left out that go on; with its headers."""
    shown = world.wire(node).show(id)
    work = world.node(node).core.life.by_id.get(id)
    shown["headers"] = work.headers if work is not None else b""
    shown["attempts"] = int(work.terms.attempts) if work is not None else 0
    for word in ("next-requeue-within", "next-awake-within", "awake-in", "requeue-in"):
        shown.pop(word, None)
    return shown


def phase(world: World, id: bytes, node: int = 0) -> str:
    """The state that RESULT tells."""
    reply = world.wire(node).ask("RESULT", id)
    return str(reply[reply.index(b"state") + 1].decode())


def made(before: dict[str, Any], option: str) -> dict[str, Any]:
    """What SHOW is to say after the change of that option."""
    after = dict(before)
    if option == "BODY":
        after["body"] = b"another"
    elif option == "ATTEMPTS":
        after["attempts"] = 7
    elif option == "HEADERS":
        after["headers"] = b"\x01h\x01\x00v"
    elif option == "PRI":
        after["pri"] = 3
    elif option == "TTL":
        after["ttl"] = 500
    return after


@pytest.mark.parametrize("option", CHANGES)
@pytest.mark.parametrize("state", STATES)
def test_each_option_in_each_state(make_world: Make, state: str, option: str) -> None:
    """T48.11 BODY, DELAY, TTL, ATTEMPTS and HEADERS of a task of type `tasks` are changed as those
    of a job (W10.1, W10.2), and PRI beside them: in one change of the tube. A BURIED one is dead.

    W10.2 Errors change nothing.
    """
    world = make_world(1)
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    id = prepare(world, state)
    tube = world.node().tubes.by_name[b"t"]
    seq, before = tube.seq, seen(world, id)
    reply = world.run("UPDATEJOB", id, option, *CHANGES[option])
    after = seen(world, id)
    if state in REFUSED and not (option == "PRI" and state in OFTEN):
        assert str(reply).startswith(REFUSED[state])
        assert (after, tube.seq) == (before, seq)
        return
    assert reply == b"OK"
    assert tube.seq == seq + 1
    if option != "DELAY":
        assert after == made(before, option)
        return
    is_first = state in ("READY", "DELAYED")
    assert phase(world, id) == ("scheduled" if is_first else "back-off")
    assert (after["body"], after["delay"]) == (b"body", 50 if is_first else 0)  # W10.4
    world.pass_ms(49_000)
    assert world.get("t") == []
    world.pass_ms(1_100)
    assert world.get("t") == [id]


ALL: Final = [word for option, values in CHANGES.items() for word in (option, *values)]
CHANGED: Final = {"body": b"another", "pri": 3, "attempts": 7, "headers": b"\x01h\x01\x00v"}


def led(make_world: Make, **options: object) -> tuple[World, int]:
    """Three nodes with a tube `t` that a majority confirms; the number of its leader."""
    world = make_world(3, **options)
    assert world.wire(0).ask("TUBE", "CREATE", "t", "tasks", "TTR", 30) == b"OK"
    leader = world.until(lambda: [] if world.leader("t") is None else [world.leader("t")])
    return world, leader[0]


def next_leader(world: World, old: int) -> int:
    """Another leader, once that one is lost."""
    world.kill(old)
    world.until(lambda: world.leader("t") not in (None, old))
    found = world.leader("t")
    assert found is not None
    return found


def test_all_options_are_one_change(make_world: Make) -> None:
    """T48.11 and PRI beside them: in one change of the tube.

    W10.2 ATTEMPTS not above those that failed, or PRI of a job in a plain queue: an error. Errors
    change nothing.
    """
    world = make_world(1)
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    id = prepare(world, "back-off")
    tube = world.node().tubes.by_name[b"t"]
    seq, before = tube.seq, seen(world, id)
    for words in (
        ("BODY", "x", "ATTEMPTS", 1, "PRI", 3),
        ("BODY", "x", "DELAY", 9, "TTL", 9),
        ("BODY", "x", "DELAY", 401, "HEADERS", 1, "a", "b"),
        ("BODY", "x", "DELAY", 2_147_483_647, "TTL", 0),
    ):
        assert str(world.run("UPDATEJOB", id, *words)).startswith("ERR ")
        assert (tube.seq, seen(world, id)) == (seq, before)
    assert world.run("UPDATEJOB", id, *ALL) == b"OK"
    assert tube.seq == seq + 1
    assert CHANGED.items() <= seen(world, id).items()


def test_a_follower_changes_nothing(make_world: Make) -> None:
    """T17.8 Commands that change a job or its run are refused as in T17.3 for each id that names a
    tube of another node (G6.8). So are RESULT, WAITJOB and CANCEL at a node with a replica; others
    ask (W15).
    """
    world, leader = led(make_world)
    id = prepare(world, "READY", leader)
    before = seen(world, id, leader)
    for node in world.numbers():
        if node != leader:
            for words in (
                ("UPDATEJOB", id, *ALL),
                ("RESULT", id),
                ("WAITJOB", 0, id),
                ("CANCEL", id),
            ):
                assert str(world.wire(node).ask(*words)).startswith("TUBEHOME "), words
    assert seen(world, id, leader) == before


@pytest.mark.parametrize("how", ["kill", "power", "snapshot"])
@pytest.mark.parametrize("state", ["READY", "DELAYED", "back-off"])
def test_a_change_stays_after_a_restart(make_world: Make, state: str, how: str) -> None:
    """T48.2 Terms, headers, the highest failed attempt, `crashes`, deliveries that nobody began and
    the first and last failure are part of the task, in its records and its copies
    """
    world = make_world(1, journal="always")
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    id = prepare(world, state)
    assert world.run("UPDATEJOB", id, *ALL) == b"OK"
    if how == "snapshot":
        world.rewrite()
    before, was = seen(world, id), phase(world, id)
    assert CHANGED.items() <= before.items()
    world.restart(how="power" if how == "power" else "kill")
    after = seen(world, id)
    assert {**after, "ttl": 0} == {**before, "ttl": 0} and abs(after["ttl"] - 500) <= 1
    assert phase(world, id) == was
    assert world.run("UPDATEJOB", id, "DELAY", 0) == b"OK"
    assert world.get("t") == [id]
    run, attempt, of, *_ = world.run("START", id)[0]
    assert (attempt, of) == (2 if state == "back-off" else 1, 7)
    assert world.run("DONE", id, run) == 1


@pytest.mark.parametrize("state", ["READY", "DELAYED", "back-off"])
def test_a_change_is_known_to_the_next_leader(make_world: Make, state: str) -> None:
    """T18.2 TUBE-COPY sends each follower the new state of the tasks that changed

    T27.7 with a majority no failover loses what was answered.
    """
    world, leader = led(make_world)
    id = prepare(world, state, leader)
    assert world.wire(leader).ask("UPDATEJOB", id, *ALL) == b"OK"
    before = seen(world, id, leader)
    after = next_leader(world, leader)
    told = seen(world, id, after)
    assert CHANGED.items() <= told.items()
    assert 400 < told["ttl"] <= before["ttl"]
    assert world.wire(after).ask("UPDATEJOB", id, "DELAY", 0, "BODY", "third") == b"OK"
    assert [job[1:] for job in world.wire(after).ask("GETJOB", "FROM", "t")] == [[id, b"third"]]


def test_the_task_goes_to_its_old_place(make_world: Make) -> None:
    """T48.11 DELAY 0 makes the task READY at its old place. Its keys stay."""
    world = make_world(1)
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    limit = ("LIMIT", "l", 1, "UNIQUE")
    first = world.run("ADDJOB", "t", "1", 0, *limit, "a")
    second = world.run("ADDJOB", "t", "2", 0, *limit, "b")
    assert world.run("UPDATEJOB", first, "DELAY", 50) == b"OK"
    assert world.run("ADDJOB", "t", "1", 0, *limit, "a", "ON", "reject").startswith("DUPLICATE")
    assert world.run("UPDATEJOB", first, "DELAY", 0) == b"OK"
    assert world.get("t") == [first] and world.get("t") == []
    assert world.run("NACK", first) == 1
    assert world.run("UPDATEJOB", first, "DELAY", 50) == b"OK"
    assert world.get("t") == [second] and world.get("t") == []  # the place was free
    assert world.run("UPDATEJOB", first, "DELAY", 1) == b"OK"
    world.pass_ms(1_100)
    assert world.get("t") == []
    assert world.run("ACKJOB", second) == 1
    assert world.get("t") == [first]


def test_a_body_in_another_form(make_world: Make) -> None:
    """W10.1 Changes a job that is scheduled, waiting or in a back-off.

    Its body has the form of ADDJOB then, whatever TUBE PUT said of the old one.
    """
    world = make_world(1, journal="always")
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    world.run("TUBE", "PUT", "t", "\x01", "FORM", "msgpack")
    assert world.iproto().call("queue.tube.t:peek", 0)[0][2] == 1
    id = world.node().tubes.by_name[b"t"].tasks[0].id
    assert world.run("UPDATEJOB", id, "BODY", b"\xff") == b"OK"
    for _ in range(2):
        assert world.iproto().call("queue.tube.t:peek", 0)[0][2] == b"\xff"
        world.restart()


def test_a_job_of_a_schedule_waits_for_its_copies(make_world: Make) -> None:
    """W10.2 Waits for copies: `-NOTDELIVERED`."""
    world, leader = led(make_world)
    wire = world.wire(leader)
    assert wire.ask("SCHEDULE", "ADD", "t", "s", "EVERY", 60, "b") == b"ADDED"
    others = [node for node in world.numbers() if node != leader]
    tube = world.node(leader).tubes.by_name[b"t"]
    world.pass_ms(58_000)
    world.until(lambda: world.now_ms % 60_000 > 59_900, 60_000)
    for node in others:
        world.hold(leader, node)
    world.until(lambda: len(tube.tasks) == 2)
    (made,) = [task for task in tube.tasks.values() if task.number != 0]
    assert str(wire.ask("UPDATEJOB", made.id, "DELAY", 0)).startswith("NOTDELIVERED")
    for node in others:
        world.release(leader, node)
    world.until(lambda: phase(world, made.id, leader) == "waiting")
    assert wire.ask("UPDATEJOB", made.id, "DELAY", 5) == b"OK"


def test_a_waiting_client_gets_it(make_world: Make) -> None:
    """W10.1 DELAY counts from now; 0 queues it."""
    world = make_world(1)
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    id = prepare(world, "DELAYED")
    waiting = world.wire()
    waiting.send("GETJOB", "FROM", "t")
    assert world.run("UPDATEJOB", id, "DELAY", 0, "BODY", "new") == b"OK"
    assert waiting.read() == [[b"t", id, b"new"]]


def test_ttl_is_for_ever_or_ends(make_world: Make) -> None:
    """W10.1 TTL counts from now, with decimals; 0: it never expires.

    T48.14 A task with ATTEMPTS whose ttl is over when it is READY or its attempt fails becomes dead
    with the cause `expired`
    """
    world = make_world(1)
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    id = prepare(world, "READY")
    assert world.run("UPDATEJOB", id, "TTL", 0) == b"OK"
    world.pass_ms(500_000)
    assert phase(world, id) == "waiting"
    assert world.run("UPDATEJOB", id, "TTL", 5) == b"OK"
    world.pass_ms(5_100)
    assert phase(world, id) == "dead"
    assert world.run("DEAD", "REPLAY", "t", "IDS", id)[1] == 1
    assert world.run("UPDATEJOB", id, "TTL", 7) == b"OK"
    world.pass_ms(7_100)
    assert phase(world, id) == "dead"
    assert world.run("DEAD", "REPLAY", "t", "IDS", id)[1] == 1
    assert 5 <= seen(world, id)["ttl"] <= 7, "T48.13"


def test_a_longer_body_is_paid_for(make_world: Make) -> None:
    """M1 and N11: the node and its replicas count the body that the task has now."""
    world, leader = led(make_world)
    wire = world.wire(leader)
    id = prepare(world, "READY", leader)
    world.pass_ms(2_000)
    used = [node.core.job_bytes + node.tubes.bytes_used for node in world.nodes]
    assert wire.ask("UPDATEJOB", id, "BODY", "x" * 100_000) == b"OK"
    world.pass_ms(2_000)
    more = [node.core.job_bytes + node.tubes.bytes_used - was
            for node, was in zip(world.nodes, used, strict=True)]  # fmt: skip
    assert all(99_000 < one < 102_000 for one in more), more
    assert wire.ask("CONFIG", "SET", "maxmemory", 1_000) == b"OK"
    assert str(wire.ask("UPDATEJOB", id, "BODY", "y")).startswith("OOM ")
    assert len(seen(world, id, leader)["body"]) == 100_000


def test_the_largest_body(make_world: Make) -> None:
    """L1 a body at `max-body-bytes` is taken, one above it is refused and changes nothing."""
    world = make_world(1, max_body_bytes="1mb")
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    id = prepare(world, "READY")
    assert world.run("UPDATEJOB", id, "BODY", "x" * 1_048_576) == b"OK"
    other = world.wire()
    assert str(other.ask("UPDATEJOB", id, "BODY", "y" * 1_048_577)).startswith("ERR Protocol")
    assert seen(world, id)["body"] == b"x" * 1_048_576


# ---- Deliveries that nobody begins (SPEC W6.4)


def late(world: World, id: bytes, times: int, leader: int = 0) -> None:
    """So many deliveries end that nobody began."""
    for _ in range(times):
        assert [job[1] for job in world.wire(leader).ask("GETJOB", "FROM", "t")] == [id]
        world.pass_ms(30_100)


def test_a_task_that_nobody_begins_is_dead(make_world: Make) -> None:
    """W6.4 After `unstarted-max` deliveries in a row that ended without START, RELEASE or NACK, a
    job with ATTEMPTS is dead with the cause `unstarted`. 0 switches this off.

    T48.9 A delivery without START counts for `unstarted-max` (W6.4) when its ttr is over
    """
    world = make_world(1, unstarted_max=3)
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    plain = world.run("ADDJOB", "t", "plain", 0)
    late(world, plain, 4)
    assert world.get("t") == [plain]
    assert world.run("ACKJOB", plain) == 1
    id: bytes = world.run("ADDJOB", "t", "b", 0, "ATTEMPTS", 2, "BACKOFF", 0, 0, 0)
    for end in ("RELEASE", "NACK", "FAIL"):
        late(world, id, 2)
        assert world.get("t") == [id]
        if end == "FAIL":
            assert world.run("FAIL", id, world.run("START", id)[0][0])[0] == b"retry"
        else:
            assert world.run(end, *([id, "-"] if end == "RELEASE" else [id])) == 1
    late(world, id, 2)
    world.restart()
    assert phase(world, id) == "waiting"
    late(world, id, 1)
    assert world.get("t") == [] and phase(world, id) == "dead"
    assert world.run("DEAD", "LIST", "t")[1][0][4] == b"unstarted"
    assert world.run("DEAD", "REPLAY", "t", "IDS", id)[1] == 1
    world.run("CONFIG", "SET", "unstarted-max", 0)
    late(world, id, 5)
    assert world.get("t") == [id]


def test_the_next_leader_counts_on(make_world: Make) -> None:
    """T48.2 deliveries that nobody began and the first and last failure are part of the task, in
    its records and its copies
    """
    world, leader = led(make_world, unstarted_max=3)
    id = world.wire(leader).ask("ADDJOB", "t", "b", 0, "ATTEMPTS", 2, "DEAD", "letters")
    late(world, id, 2, leader)
    after = next_leader(world, leader)
    late(world, id, 1, after)
    assert world.wire(after).ask("DEAD", "LIST", "letters")[1][0][4] == b"unstarted"
