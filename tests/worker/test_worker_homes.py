"""A worker in a cluster whose tubes have their homes at different nodes, and move (SPEC T17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from noting import Noting

from tuque.worker import Task
from world import World

Make = Callable[..., World]


def add(world: World, task: Task[[str], object], queue: str, text: str, **options: int) -> None:
    """The job goes to the home of its tube."""
    world.loop.run(task.options(queue=queue, **options).enqueue_async(text))


def made(world: World, **homes: int) -> None:
    """Make tubes at these nodes, until the first one knows them."""
    for name, i in homes.items():
        world.client(i).tube(name).create("fifo", alone=True)
    world.until(lambda: sorted(world.client(0).tube_list()) == sorted(homes))


def left(world: World, i: int, name: str) -> int:
    """How many jobs its home knows."""
    told = world.client(i).tube(name).info()
    return told.ready + told.taken


def test_one_worker_for_tubes_at_two_nodes(
    make_world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Each job once, of a plain queue too, while one of the tubes moves to and fro."""
    world, tasks = make_world(2, tube_failover=False), Noting()  # each node leads what it made
    did, nodes = tasks.did, [world.client(0), world.client(1)]
    made(world, here=0, there=1)
    homes = [nodes[0].tube("here").home().home, nodes[1].tube("there").home().home]
    world.at_work(tasks.app, queues=("q", "here", "there"), concurrency=12)
    for number in range(30):
        for queue in ("q", "here", "there"):
            add(world, tasks.record, queue, f"{queue} {number}")
    world.until(lambda: len(did) >= 90)
    for turn in range(4):
        nodes[turn % 2].tube("here").move(homes[(turn + 1) % 2])
        for number in range(20):
            for queue in ("here", "there"):
                add(world, tasks.record, queue, f"{queue} {turn} {number}")
        world.until(lambda turn=turn: len(did) >= 90 + 40 * (turn + 1))
    for number in range(6):  # these end at one moment, so that acks for two nodes gather
        for queue in ("here", "there"):
            add(world, tasks.until_go, queue, f"{queue} together {number}")
    world.until(lambda: sum(line.startswith("begin") for line in did) == 12)
    tasks.go.set()
    world.until(lambda: sum(line.startswith("end") for line in did) == 12)
    began_ms = world.now_ms
    add(world, tasks.record, "there", "while it waits at other nodes")
    world.until(lambda: "while it waits at other nodes" in did)
    assert world.now_ms - began_ms < 15_000  # a slice of a wait takes 30 s
    world.until(lambda: left(world, 0, "here") == left(world, 1, "there") == 0)
    assert set(Counter(did).values()) == {1}
    assert "trying again" not in caplog.text


def test_a_burst_waits_for_a_home_that_is_down(
    make_world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """U4.1 `--burst`: the worker ends when each node of its queues had no job in one wait, no
    queue is unreachable, and it holds no job.
    """
    world, tasks = make_world(2, tube_failover=False), Noting()  # each node leads what it made
    made(world, there=1)
    add(world, tasks.record, "there", "there")
    world.kill(1)
    world.until(lambda: world.node(0).core.reachable_count == 0)
    shift = world.at_work(tasks.app, queues=("there", "q"), is_burst=True)
    add(world, tasks.record, "q", "q")
    world.until(lambda: "queue there cannot be reached" in caplog.text)
    world.until(lambda: tasks.did == ["q"])
    world.pass_ms(60_000)
    assert not shift.ended.done()
    world.start(1)
    assert shift.ends()
    assert tasks.did == ["q", "there"]


def test_a_home_that_is_down_keeps_nothing_else_waiting(
    make_world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of other queues are taken, and acked, while those of its tube wait for it."""
    world, tasks = make_world(3, tube_failover=False), Noting()  # the leader stays away
    did = tasks.did
    made(world, here=1, there=0)
    world.at_work(tasks.app, queues=("here", "q", "there"), concurrency=12)
    for number in range(5):
        add(world, tasks.until_go, "here", f"here {number}")
    world.until(lambda: len(did) == 5)
    world.kill(1)
    tasks.go.set()  # these cannot be acked now
    for number in range(20):
        for queue in ("q", "there"):
            add(world, tasks.record, queue, f"{queue} {number}")
    world.until(lambda: len(did) == 50)
    world.until(lambda: left(world, 0, "there") == 0)
    world.until(lambda: "queue here cannot be reached" in caplog.text)
    world.start(1)
    add(world, tasks.record, "here", "back")
    world.until(lambda: "back" in did)
    world.until(lambda: left(world, 1, "here") == 0)
    assert "queue here is back" in caplog.text
    assert set(Counter(did).values()) == {1}


def test_runs_in_a_tube_whose_home_is_down_are_no_loss_of_the_broker(
    make_world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but their heartbeats and their ends is said meanwhile, and all of it to that home."""
    world, tasks = make_world(2, tube_failover=False), Noting()  # the leader stays away
    did = tasks.did
    world.client(1).tube("here").create("tasks", ttr=3, sync=1, alone=True)
    world.until(lambda: world.client(0).tube_list() == ["here"])
    world.at_work(tasks.app, queues=("here", "q"), concurrency=4)
    for number in range(4):
        add(world, tasks.until_go, "here", f"here {number}", retry_s=3)
    world.until(lambda: len(did) == 4)
    world.kill(1)
    world.until(lambda: "cannot use node" in caplog.text)
    tasks.go.set()
    world.until(lambda: len(did) == 8)
    world.until(lambda: "not accept reports of runs" in caplog.text)
    world.start(1)
    world.until(lambda: left(world, 1, "here") == 0)
    assert "broker lost" not in caplog.text and "broker is back" not in caplog.text
