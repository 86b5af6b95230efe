"""A worker of queues with several leaders: it waits at each of them, and at all at once (U2.25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from noting import Noting

from tuque.worker import current_job
from world import World
from world_loop import Shift

Make = Callable[..., World]
TUBES = ("a", "b", "c")  # led by the nodes 0, 1 and 2
WAIT_MS = 1_000  # of one GETJOB
SOON_MS = 10


class Leaders:
    """Three nodes, each the leader of a tube of type `tasks`; what ran, and as which attempt."""

    def __init__(self, world: World) -> None:
        self.world, self.noting = world, Noting()
        self.attempts: list[int] = []
        for i, name in enumerate(TUBES):
            world.client(i).tube(name).create("tasks", ttr=30)
        world.until(lambda: all(sorted(world.client(i).tube_list()) == [*TUBES] for i in range(3)))

        @self.noting.app.task(queue="q", retry_s=30, name="counted")
        def counted(text: str) -> None:
            self.noting.did.append(text)
            self.attempts.append(current_job().attempt)

        self.counted = counted

    @property
    def did(self) -> list[str]:
        """What tasks noted."""
        return self.noting.did

    def work(self, *queues: str, **settings: int | bool) -> Shift:
        """A worker of the three tubes, or these queues, at the first node."""
        return self.world.at_work(self.noting.app, queues=queues or TUBES, **settings)

    def add(self, queue: str, text: str, task: str = "counted", **options: int) -> str:
        """A job, at the leader of its queue; its id."""
        found = self.noting.app.tasks[task]
        call = found.options(queue=queue, **options).enqueue_async(text)
        return self.world.loop.run(call).id

    def waiting(self, name: str) -> int:
        """How many GETJOBs wait at its leader."""
        i = self.world.leader(name)
        if i is None:
            return 0
        return len(self.world.node(i).core.queues[name.encode()].waiters)

    def ready(self, name: str) -> int:
        """How many of its tasks nobody has."""
        i = self.world.leader(name)
        return -1 if i is None else self.world.client(i).tube(name).info().ready

    def commands(self, i: int) -> int:
        """How many a node has run."""
        return int(self.world.node(i).info("stats")["total_commands_processed"])

    def all_wait(self) -> None:
        """Lets the worker come to a wait at each leader."""
        self.world.until(lambda: all(self.waiting(name) == 1 for name in TUBES))

    def begins_in_ms(self, queue: str, text: str) -> int:
        """How long a job takes from its `enqueue` to its begin."""
        began_ms = self.world.now_ms
        self.add(queue, text)
        self.world.until(lambda: text in self.did)
        return self.world.now_ms - began_ms


@pytest.fixture
def leaders(make_world: Make) -> Leaders:
    return Leaders(make_world(3))


def test_a_job_begins_at_once_at_each_leader(leaders: Leaders) -> None:
    """U2.25 If they have several leaders, it waits at each that has nothing, at all of them at once
    and for one job at each.
    """
    leaders.work(concurrency=8)
    leaders.all_wait()
    for turn in range(4):
        for name in TUBES:
            assert leaders.begins_in_ms(name, f"{name} {turn}") <= SOON_MS
        leaders.world.pass_ms(370)  # the waits are renewed meanwhile
    leaders.all_wait()


def test_a_busy_leader_has_all_places(leaders: Leaders) -> None:
    """U2.25 No room is kept for these jobs."""
    leaders.work(concurrency=8, prefetch=0)
    leaders.all_wait()
    for number in range(20):
        leaders.add("b", f"{number}", "until_go")
    leaders.world.until(lambda: len(leaders.did) == 8, WAIT_MS)
    assert leaders.ready("b") == 12
    leaders.noting.go.set()
    leaders.world.until(lambda: len(leaders.did) == 40)


def test_what_finds_no_room_goes_back(leaders: Leaders) -> None:
    """U2.25 RELEASE with `-` at once, unless its RETRY is 0."""
    world = leaders.world
    leaders.work(concurrency=1, prefetch=0)
    leaders.all_wait()
    leaders.add("a", "a", "until_go")
    world.until(lambda: leaders.did == ["begin a"])
    assert leaders.waiting("b") == leaders.waiting("c") == 1
    ids = [leaders.add(name, name) for name in "bc"]
    world.pass_ms(SOON_MS)
    assert leaders.ready("b") == leaders.ready("c") == 1
    for i, id in enumerate(ids, 1):
        assert world.node(i).core.jobs[id.encode()].nacks == 0
    world.pass_ms(2 * WAIT_MS)
    assert not any(map(leaders.waiting, TUBES)), "there is no room"
    leaders.noting.go.set()
    world.until(lambda: {"b", "c"} <= set(leaders.did))
    assert leaders.attempts == [1, 1]


def test_a_busy_leader_is_asked_alone(leaders: Leaders) -> None:
    """The idle ones, though first in order, are not asked again for each of its jobs."""
    leaders.work(concurrency=2)
    leaders.all_wait()
    before = [leaders.commands(i) for i in range(3)]
    for number in range(100):
        leaders.add("c", f"{number}")
    leaders.world.until(lambda: len(leaders.did) == 100)
    took = [leaders.commands(i) - before[i] for i in range(3)]
    assert max(took[:2]) <= 10 < 200 <= took[2]


def test_the_last_in_order_goes_back(leaders: Leaders) -> None:
    """U2.25 the last of those that wait here for a place, in the order of queues, is RELEASE with
    `-` at once
    """
    world = leaders.world
    leaders.work("b", "a", "c", concurrency=2, prefetch=2)
    leaders.all_wait()
    for number in range(4):
        leaders.add("a", f"{number}", "until_go")
    world.until(lambda: len(leaders.did) == 2)
    assert leaders.ready("a") == 0 and leaders.waiting("b") == leaders.waiting("c") == 1
    for name, ready in (("c", [0, 1]), ("b", [1, 1])):
        leaders.add(name, name)
        world.pass_ms(SOON_MS)
        assert [leaders.ready("a"), leaders.ready("c")] == ready
    assert leaders.ready("b") == 0


def test_a_queue_of_another_leader_has_its_priority(leaders: Leaders) -> None:
    """U2.25 A worker asks its queues for jobs in their order, a later one if the earlier ones have
    less than it has room for.
    """
    world = leaders.world
    leaders.work("a", "b", concurrency=1, prefetch=2)
    world.until(lambda: leaders.waiting("a") == leaders.waiting("b") == 1)
    leaders.add("a", "a", "until_go")
    for number in range(6):
        leaders.add("a", f"a {number}", "until_go")
        leaders.add("b", f"b {number}")
    world.pass_ms(SOON_MS)
    assert leaders.ready("b") == 6, "also the one that it waited for"
    leaders.noting.go.set()
    world.until(lambda: leaders.ready("a") == 0)
    assert leaders.ready("b") == 6
    world.until(lambda: len(leaders.did) == 20)
    assert leaders.did[-6:] == [f"b {number}" for number in range(6)]


def test_what_is_urgent_overtakes_at_another_leader(leaders: Leaders) -> None:
    """It comes while all places are taken, and goes first."""
    world = leaders.world
    leaders.work("c", "a", concurrency=1, prefetch=2)
    world.until(lambda: leaders.waiting("c") == leaders.waiting("a") == 1)
    leaders.add("a", "a 0", "until_go")
    world.until(lambda: leaders.did)
    leaders.add("a", "a 1")
    leaders.add("c", "c 0")
    world.until(lambda: leaders.ready("c") == 0)
    leaders.noting.go.set()
    world.until(lambda: len(leaders.did) == 4)
    assert leaders.did == ["begin a 0", "end a 0", "c 0", "a 1"]


def test_a_leader_that_hangs_delays_no_other_one(leaders: Leaders) -> None:
    """U2.25 No queue waits for more than 0.25 s to be asked because another leader does not
    answer.
    """
    world = leaders.world
    leaders.work(concurrency=1, prefetch=0)
    leaders.all_wait()
    leaders.add("a", "a", "until_go")
    world.until(lambda: not any(map(leaders.waiting, TUBES)))  # there is no room
    world.stall(1, 1_500)  # its lease is longer: nobody else leads the tube
    leaders.noting.go.set()
    assert leaders.begins_in_ms("c", "c") <= 250 + SOON_MS
    for turn in range(4):
        for name in "ac":
            assert leaders.begins_in_ms(name, f"{name} {turn}") <= SOON_MS
        world.pass_ms(150)
    assert leaders.begins_in_ms("b", "b") <= 2_000


def test_a_start_at_a_leader_that_hangs_delays_no_other_one(leaders: Leaders) -> None:
    """U2.16 Other queues do not wait, nor do they while another leader does not answer."""
    world = leaders.world
    leaders.work(concurrency=2, prefetch=2)
    leaders.all_wait()
    for text in ("a 0", "a 1"):
        leaders.add("a", text, "until_go")
    world.until(lambda: len(leaders.did) == 2)  # all places are taken
    leaders.add("b", "b")
    world.until(lambda: leaders.ready("b") == 0)  # it waits here
    world.stall(1, 1_500)  # its lease is longer: nobody else leads the tube
    leaders.noting.go.set()
    assert leaders.begins_in_ms("a", "a 2") <= 250 + SOON_MS
    for turn in range(4):
        assert leaders.begins_in_ms("c", f"c {turn}") <= SOON_MS
        world.pass_ms(100)
    assert "b" not in leaders.did
    world.until(lambda: "b" in leaders.did)


def test_the_others_go_on_while_a_tube_has_no_leader(
    leaders: Leaders, caplog: pytest.LogCaptureFixture
) -> None:
    world = leaders.world
    leaders.work(concurrency=8)
    leaders.all_wait()
    world.kill(2)
    turn = 0
    while world.leader("c") is None:
        for name in "ab":
            assert leaders.begins_in_ms(name, f"{name} {turn}") <= 50
        world.pass_ms(400)
        turn += 1
    assert turn > 2
    leaders.begins_in_ms("c", "c")
    leaders.all_wait()
    assert leaders.begins_in_ms("c", "c again") <= SOON_MS
    world.start(2)
    assert leaders.begins_in_ms("c", "c once more") <= SOON_MS
    assert set(Counter(leaders.did).values()) == set(leaders.attempts) == {1}
    assert "broker lost" not in caplog.text


def test_it_waits_at_the_new_leader_after_a_switchover(
    leaders: Leaders, caplog: pytest.LogCaptureFixture
) -> None:
    """At times one node leads them all, and the worker waits there once."""
    world = leaders.world
    leaders.work(concurrency=2, prefetch=2)
    leaders.all_wait()
    homes = [world.client(i).tube(name).home().home for i, name in enumerate(TUBES)]
    for turn in range(6):
        world.pass_ms(300 * turn)  # so that waits are new or old
        for number in range(6):
            if number == 3 * (turn % 2):
                for i, name in enumerate(TUBES):
                    world.client(world.leader(name) or 0).tube(name).move(homes[i * turn % 3])
            for name in TUBES:
                leaders.add(name, f"{name} {turn} {number}")
        world.until(lambda turn=turn: len(leaders.did) == 18 * (turn + 1))
    world.until(lambda: all(leaders.waiting(name) == 1 for name in TUBES))
    assert leaders.begins_in_ms("b", "b") <= SOON_MS
    assert set(Counter(leaders.did).values()) == set(leaders.attempts) == {1}
    assert "trying again" not in caplog.text


@pytest.mark.parametrize("is_at_once", [False, True])
def test_what_comes_while_it_stops_goes_back(leaders: Leaders, is_at_once: bool) -> None:
    """A GETJOB that waits when the worker stops may still bring a job; no attempt is used up."""
    world = leaders.world
    shift = leaders.work(concurrency=8)
    leaders.all_wait()
    shift.stop()
    if is_at_once:
        shift.stop()
    began_ms = world.now_ms
    for name in TUBES:
        leaders.add(name, name)
    assert not any(map(leaders.ready, TUBES)), "it has them"
    assert shift.ends()
    assert world.now_ms - began_ms <= 2_000
    assert [leaders.ready(name) for name in TUBES] == [1, 1, 1]
    leaders.work()
    world.until(lambda: len(leaders.did) == 3)
    assert leaders.attempts == [1, 1, 1]


def test_quiet_ends_the_waits_at_all_leaders(leaders: Leaders) -> None:
    """What they bring until then is run: nothing else is fetched."""
    shift = leaders.work(concurrency=8)
    leaders.all_wait()
    shift.worker.quiet()
    assert leaders.begins_in_ms("b", "b") <= SOON_MS
    leaders.world.until(lambda: not any(map(leaders.waiting, TUBES)), WAIT_MS + 100)
    for name in TUBES:
        leaders.add(name, f"{name} later")
    leaders.world.pass_ms(3 * WAIT_MS)
    assert leaders.did == ["b"]
    assert [leaders.ready(name) for name in TUBES] == [1, 1, 1]
    shift.stop()
    assert shift.ends()


def test_a_worker_that_is_killed_loses_no_job(leaders: Leaders) -> None:
    """What a reply brought and nobody got comes back after its retry time."""
    world = leaders.world
    shift = leaders.work(concurrency=8)
    leaders.all_wait()
    for name in TUBES:
        leaders.add(name, name, retry_s=3)
    shift.kill()
    leaders.work()
    world.until(lambda: set(leaders.did) == set(TUBES))


def test_a_burst_ends_when_all_leaders_have_nothing(leaders: Leaders) -> None:
    """U4.1 `--burst`: the worker ends when each node of its queues had no job in one wait, no
    queue is unreachable, and it holds no job.
    """
    for name in TUBES:
        for number in range(5):
            leaders.add(name, f"{name} {number}")
    began_ms = leaders.world.now_ms
    shift = leaders.work(concurrency=2, is_burst=True)
    assert shift.ends()
    assert len(leaders.did) == 15
    assert WAIT_MS <= leaders.world.now_ms - began_ms <= 4 * WAIT_MS


def test_a_burst_waits_at_all_leaders(leaders: Leaders) -> None:
    """A job at one of them, and it waits at all of them once more."""
    world = leaders.world
    shift = leaders.work(concurrency=2, is_burst=True)
    leaders.all_wait()
    world.pass_ms(500)
    leaders.add("c", "c 0")
    world.pass_ms(700)
    leaders.add("c", "c 1")
    assert shift.ends()
    assert leaders.did == ["c 0", "c 1"]


def test_no_more_than_max_jobs_at_several_leaders(leaders: Leaders) -> None:
    """The last one may come from each of them, so only one is asked."""
    world = leaders.world
    shift = leaders.work(concurrency=4, max_jobs=2)
    world.until(lambda: sum(map(leaders.waiting, TUBES)) == 2)
    leaders.add("c", "first")
    world.until(lambda: leaders.did)
    world.until(lambda: sum(map(leaders.waiting, TUBES)) == 1)
    for name in TUBES:
        leaders.add(name, name)
    assert shift.ends()
    assert len(leaders.did) == 2
    assert sum(map(leaders.ready, TUBES)) == 2


def test_a_job_with_retry_0_stays_where_it_came(leaders: Leaders) -> None:
    """It is of a plain queue, whose node is one more to wait at; it cannot be given back."""
    world = leaders.world
    leaders.work("q", "b", "c", concurrency=1, prefetch=0)
    world.until(lambda: leaders.waiting("b") == leaders.waiting("c") == 1)
    leaders.add("b", "b", "until_go")
    world.until(lambda: leaders.did == ["begin b"])
    leaders.add("q", "once", retry_s=0, replicate=1)
    world.pass_ms(3 * WAIT_MS)
    assert leaders.did == ["begin b"]
    leaders.noting.go.set()
    world.until(lambda: "once" in leaders.did)
    assert world.dead("q.dead") == []


def test_a_suspect_is_alone_while_it_waits_at_several_leaders(leaders: Leaders) -> None:
    """U2.23 what it has fetched in addition is RELEASE with `-`"""
    world = leaders.world
    first = leaders.work(concurrency=1, prefetch=0)
    leaders.add("a", "suspect", "until_go", retry_s=2)
    world.until(lambda: leaders.did)
    first.kill()
    leaders.did.clear()
    leaders.work(concurrency=4)
    leaders.all_wait()
    world.until(lambda: leaders.did == ["begin suspect"])
    for name in TUBES:
        leaders.add(name, name)
    world.pass_ms(WAIT_MS)
    assert leaders.did == ["begin suspect"]
    assert [leaders.ready(name) for name in TUBES] == [1, 1, 1]
    leaders.noting.go.set()
    world.until(lambda: {"a", "b", "c"} <= set(leaders.did))
    assert leaders.attempts == [1, 1, 1]


def test_plain_queues_have_one_wait(leaders: Leaders) -> None:
    """They are at one node, whatever the cluster is: none waits there while all is taken."""
    world = leaders.world
    for text in ("first", "second"):
        leaders.add("q", text, "until_go")
    leaders.work("p", "q", concurrency=1, prefetch=0)
    world.until(lambda: leaders.did == ["begin first"])
    waits = world.node(0).core.queues
    world.pass_ms(100)
    assert [len(waits[name].waiters) for name in (b"p", b"q") if name in waits] == [0]
    for name in ("q", "p"):
        leaders.add(name, name)
    leaders.noting.go.set()
    world.until(lambda: len(leaders.did) == 6)
    assert leaders.did == ["begin first", "end first", "p", "begin second", "end second", "q"]
