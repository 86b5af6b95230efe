"""What one command, or a pipeline of one connection, may cost a turn, in counts (SPEC L2).

Each test counts what ran in one turn: the units that the node counts itself, and the lines of
Python, so that work which nobody counts is found, too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from raw_resp import encode
from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import PLAIN
from tuque.core.model.task import Task
from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.core.tables.work import Letters
from tuque.tubes import groups
from tuque.tubes.entries.group import GroupEntry
from tuque.tubes.model.options import PutSpec
from tuque.tubes.policy import tubes_of
from tuque.tubes.schedules import driver_of
from tuque.tubes.tasks import operations
from tuque.tubes.types.driver import Firsts
from world import World
from world_costs import costs

TASKS = 6_000
PRIS = 1_000
LINES_PER_UNIT = 40
LINES_OF_A_TURN = 20_000  # beside the work that a command counts


Spent = list[tuple[int, int]]  # units and lines of each turn


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node with tubes."""
    return make_world(journal="off")


def run(world: World, *words: Any) -> tuple[Any, Spent]:
    """The reply, and the units and lines of each turn."""
    with costs(world) as spent:
        return world.run.ask(*words), spent


def put_all(world: World, name: bytes, type: str, keys: int = 0, count: int = TASKS) -> None:
    """Tasks of many priorities in a tube, of so many sub-queues."""
    world.run("TUBE", "CREATE", name, type)
    n = world.n
    t = tubes_of(n)
    spec = PutSpec()
    for i in range(count):
        if keys:
            spec.utube = b"%d" % (i * 7_919 % keys)
        spec.pri = i * 7_919 % PRIS
        operations.put(n, t, t.by_name[name], b"%d" % i, 0, spec, 0, 0)


# ---- QPEEK of a tube


def test_the_head_of_a_tube_costs_what_it_shows(world: World) -> None:
    """S3.3 The first tasks of a tube are found without a look at those behind them."""
    put_all(world, b"t", "fifottl")
    n = world.n
    wanted = sorted(n.queues[b"t"].tasks.values(), key=lambda one: (one.pri, one.number))
    for count in (1, 10, 200):
        rows, spent = run(world, "QPEEK", "t", count)
        assert [row[1] for row in rows] == [one.id for one in wanted[:count]]
        assert max(lines for _, lines in spent) <= 2_000 + 60 * count
        assert sum(work for work, _ in spent) <= 2 * count + 10


def test_the_end_of_a_tube_is_found_in_slices(world: World) -> None:
    """S3.3 The last ones, and the first ones of a tube with more than 100 partitions or
    sub-queues, take a walk over all tasks in slices (L2.2).
    """
    put_all(world, b"t", "fifottl")
    put_all(world, b"u", "utubettl", keys=3_000)
    world.n.work = 0
    for name, count in ((b"t", -3), (b"u", 3), (b"u", -3)):
        tasks = world.n.queues[name].tasks.values()
        wanted = sorted(tasks, key=lambda one: (one.pri, one.number), reverse=count < 0)
        rows, spent = run(world, "QPEEK", name, count)
        assert [row[1] for row in rows] == [one.id for one in wanted[: abs(count)]]
        assert sum(work for work, _ in spent) >= TASKS // 4, "the walk is counted"
        assert max(work for work, _ in spent) <= TURN_WORK


@pytest.mark.parametrize(("type", "keys"), [("fifottl", 0), ("utubettl", 2_000), ("tasks", 0)])
def test_a_task_leaves_its_tube_for_the_cost_of_a_search(
    world: World, type: str, keys: int
) -> None:
    """L2.12 Where jobs, tasks or keys wait in an order, one that comes or leaves, wherever it
    stands, costs two searches and a bounded number of moves: nothing is sorted anew, and nothing of
    those that left is kept.
    """
    put_all(world, b"t", type, keys, 2_000)
    numbers = random.Random(1).sample(range(2_000), 2_000)
    lines = []
    for number in numbers[:1_990]:
        reply, spent = run(world, "TUBE", "DELETE", "t", number)
        assert reply is not None
        lines.append(sum(count for _, count in spent))
    _, spent = run(world, "TUBE", "TAKE", "t", "TIMEOUT", 0)
    most = 2 * sorted(lines)[1_000] + 100  # compiled modules have no lines
    assert max(lines) <= most >= sum(count for _, count in spent)
    world.check()


def batch_of(world: World, count: int) -> int:
    """The epoch of a group with one batch of so many jobs."""
    spec = settle(world.n, PLAIN)
    for _ in range(count):
        on_addjob(world.n, b"q", b"", spec)
    epoch = world.run("LEASE", "OPEN", "g", "me", "q")
    assert world.run("LEASE", "NEXT", "g", epoch, 1, "COUNT", count, "TTL", 60_000) == count
    return int(epoch)


@pytest.mark.parametrize("command", ["BEGIN 1", "GONE 1 0", "DEFER 1", "SPLIT 1 19000"])
def test_a_look_at_a_batch_costs_its_positions(world: World, command: str) -> None:
    """L2.1 Twenty positions of a batch that are looked at or recorded are one."""
    epoch = batch_of(world, 20_000)
    word, *rest = command.split()
    if word == "DEFER":
        world.run("LEASE", "SPLIT", "g", epoch, 1, 10_000)
    world.wire().put(encode("LEASE", word, "g", epoch, *rest) * 20)
    with costs(world) as spent:
        world.settle()
    works = [work for work, _ in spent if work > 0]
    busy = 1 if word == "SPLIT" else 20  # the second one changes nothing
    assert sum(works) >= busy * 1_000
    assert max(works) <= PIECE + 1_000 + 20, "one in a turn"


def test_many_jobs_go_first_in_slices(world: World) -> None:
    """Y11.4 Many new jobs are taken over several turns, as in Y2.7: a NEXT or DEFER of another
    connection waits for that. If the batch or the lease ends first, they go back.
    """
    epoch = batch_of(world, 10)
    spec = settle(world.n, PLAIN)
    for _ in range(12_000):
        on_addjob(world.n, b"q", b"", spec)
    defer = encode("LEASE", "DEFER", "g", epoch, 1, "COUNT", 12_000)
    mine, other = world.wire(), world.wire()
    with costs(world) as spent:
        mine.put(defer)
        world.turn()
        other.put(encode("LEASE", "NEXT", "g", epoch, 2, "COUNT", 9, "TTL", 60_000))
        world.settle()
    assert mine.values() == [12_000] and max(work for work, _ in spent) <= TURN_WORK + PIECE
    assert other.values() == [10], "the former jobs have that number now"
    g = world.n.leases.groups[b"g"]
    assert [b.count for b in g.batches.values()] == [12_000, 10] and g.filling is None
    world.check()


@pytest.mark.parametrize("ending", ["COMMIT", "OPEN"])
def test_jobs_that_were_to_go_first_go_back(world: World, ending: str) -> None:
    """Y11.4 If the batch or the lease ends first, they go back."""
    epoch = batch_of(world, 10)
    spec = settle(world.n, PLAIN)
    for _ in range(12_000):
        on_addjob(world.n, b"q", b"", spec)
    mine = world.wire()
    mine.put(encode("LEASE", "DEFER", "g", epoch, 1, "COUNT", 12_000))
    world.turn()
    assert world.n.leases.groups[b"g"].filling is not None
    world.run("LEASE", ending, "g", *([epoch, 1] if ending == "COMMIT" else ["you", "q"]))
    world.settle()
    refused = str(mine.values()[0])
    assert refused.startswith("ACKED" if ending == "COMMIT" else "FENCED")
    assert world.n.queues[b"q"].length == 12_000 + (0 if ending == "COMMIT" else 10)
    assert world.n.leases.groups[b"g"].filling is None
    world.check()


def test_a_move_of_batches_waits_for_the_journal(make_world: Callable[..., World]) -> None:
    """Y11.4 While more than 1 MiB of the journal is not written yet, a DEFER waits: it may add
    much, and all replies wait for that.
    """
    world = make_world()
    committer = world.server.committer
    assert committer is not None
    world.add()
    epoch = world.run("LEASE", "OPEN", "g", "me", "q")
    assert world.run("LEASE", "NEXT", "g", epoch, 1, "COUNT", 9, "TTL", 60_000) == 1
    written = committer.thread.written_bytes
    committer.thread.written_bytes -= 2 << 20
    wire = world.wire()
    wire.put(encode("LEASE", "DEFER", "g", epoch, 1))
    world.pass_ms(50)
    assert wire.values() == [] and len(world.server.long_commands) + len(world.server.resting) == 1
    committer.thread.written_bytes += 2 << 20
    assert committer.thread.written_bytes >= written
    world.pass_ms(50)
    assert wire.values() == [1]


# ---- Bounds that are lowered


def test_outcomes_and_letters_go_in_pieces(world: World) -> None:
    """W7.4 Above `results-max-bytes` the oldest outcomes are dropped and counted, at most 500 at
    once, and the others in the next turns.

    W6.6 At most 500 go at once, and the others in the next turns.
    """
    life = world.n.life
    for i in range(1_800):
        id = world.add("q", "b", **({"KEEP": 600} if i % 2 else {"ATTEMPTS": 1}))
        world.get("q")
        run = world.run("START", id)
        world.run("DONE", id, "-") if i % 2 else world.run("FAIL", id, run[0][0])
    assert (len(life.kept), life.letter_count()) == (900, 900)
    for option, count in (
        ("results-max-bytes", lambda: len(life.kept)),
        ("dead-max-bytes", lambda: int(life.letter_count())),
    ):
        world.run.put(encode("CONFIG", "SET", option, 0))
        left = [count()]
        for _ in range(4):
            world.turn()
            left.append(count())
        falls = [a - b for a, b in itertools.pairwise(left)]
        assert max(falls) <= 500 and left[-1] <= 1, left


# ---- Schedules that fire rarely or never

RARE = ("0 0 */28 2 1#5", "0 0 29 2 1#5", "59 23 L 12 1")
NEVER = ("0 0 */31 * 1#5", "0 0 */30 2 1#5", "59 59 23 */31 * 1#4")


def test_an_expression_is_searched_by_its_fields(world: World) -> None:
    """T46.1 The next instant is found by the fields, month by month, and costs as much if it is
    years ahead. An expression that never fires is refused: `-ERR CRON '<text>' has no instant to
    come`.
    """
    world.run("TUBE", "CREATE", "t", "tasks")
    world.run("SCHEDULE", "ADD", "t", "n", "CRON", "* * * * *", "body")  # loads cronsim
    for i, text in enumerate((*RARE, *NEVER)):
        reply, spent = run(world, "SCHEDULE", "ADD", "t", f"n{i}", "CRON", text, "body")
        told = f"ERR CRON '{text}' has no instant to come"
        assert reply == b"ADDED" if text in RARE else str(reply) == told
        assert max(lines for _, lines in spent) <= 5_000
    _, spent = run(world, "SCHEDULE", "LIST", "t")
    assert max(lines for _, lines in spent) <= 5_000


def test_schedules_after_a_restart_take_turns(world: World) -> None:
    """T45.3 it looks at 25 schedules in a turn."""
    world.run("TUBE", "CREATE", "t", "tasks")
    n = world.n
    for i in range(200):
        world.run("SCHEDULE", "ADD", "t", f"n{i}", "CRON", "0 0 */28 2 1#5", "body")
    t = tubes_of(n)
    for number in driver_of(t.by_name[b"t"]).plans.by_name.values():
        t.due[t.by_name[b"t"].tasks[number].id] = None
    with costs(world) as spent:
        for _ in range(20):
            world.turn()
    assert not t.due and max(lines for _, lines in spent) <= LINES_OF_A_TURN


# ---- Lists of what is in a state, and counts


def test_reasons_are_counted_in_slices(world: World) -> None:
    """W12.3 STAT replies rows of cause, reason and count, the greatest first, at most 1000. It
    counts in slices (L2.2).
    """
    n = world.n
    letters = n.life.letters[b"q"] = Letters()
    wanted = []
    for i in range(30_000):
        letters.reasons[b"failed", b"%d" % i] = 1 + i * 7_919 % 3_000
        wanted.append((-(1 + i * 7_919 % 3_000), b"failed", b"%d" % i))
    rows, spent = run(world, "DEAD", "STAT", "q")
    assert rows == [[cause, reason, -count] for count, cause, reason in sorted(wanted)[:1_000]]
    assert len(spent) > 1 and max(work for work, _ in spent) <= TURN_WORK + 2_000
    assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK
    del n.life.letters[b"q"]


class Compared(bytes):
    """A reason that counts how often one is compared."""

    times = 0

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    def __lt__(self, other: bytes) -> bool:
        Compared.times += 1
        return super().__lt__(other)

    def __gt__(self, other: bytes) -> bool:
        Compared.times += 1
        return super().__gt__(other)


@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_to_compare_reasons_is_work_too(world: World, order: str) -> None:
    """W12.3 It counts in slices (L2.2)."""
    n = world.n
    letters = n.life.letters[b"q"] = Letters()
    names = [Compared(b"%05d" % i) for i in range(20_000)]
    if order == "falling":
        names.reverse()
    elif order == "mixed":
        random.Random(1).shuffle(names)
    letters.reasons = {(b"failed", name): 1 for name in names}
    Compared.times = 0
    rows, spent = run(world, "DEAD", "STAT", "q")
    assert rows == [[b"failed", b"%05d" % i, 1] for i in range(1_000)]
    assert Compared.times < 24 * sum(work for work, _ in spent)
    del n.life.letters[b"q"]


def test_groups_of_a_state_are_found_in_slices(world: World) -> None:
    """T51.4 It looks at the groups in slices (L2.2)."""
    world.run("TUBE", "CREATE", "t", "tasks")
    n, t = world.n, tubes_of(world.n)
    tube = t.by_name[b"t"]
    for _ in range(9_000):
        plan = GroupEntry()
        plan.size = 9
        groups.create(n, t, tube, plan, b"", 0, 1_000)
    reply, spent = run(world, "GROUP", "LIST", "t", "STATE", "failed")
    assert reply == [b"0", []]
    assert len(spent) > 1 and max(work for work, _ in spent) <= TURN_WORK + 1_000
    assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK


def test_tasks_of_a_state_are_found_and_written_in_slices(world: World) -> None:
    """T5, L2.2: the first tasks of many are kept in order as they come, and written in pieces."""
    put_all(world, b"t", "fifottl")
    tasks = world.n.queues[b"t"].tasks.values()
    wanted = [b"%d" % one.number for one in sorted(tasks, key=lambda one: (one.pri, one.number))]
    for count in (1, 100, 2_000, 5_000):
        rows, spent = run(world, "TUBE", "TASKS", "t", "READY", "COUNT", count)
        assert [row[2] for row in rows] == wanted[:count]
        assert max(work for work, _ in spent) <= TURN_WORK + PIECE
        assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK
        assert len(spent) > 1 or count <= 100


def test_the_first_of_many_leave_out_the_others() -> None:
    """Few keys are kept beside those that are wanted, and each is sorted few times."""
    numbers = [i * 7_919 % 60_000 for i in range(60_000)]
    tasks = [Task(b"", b"", b"", 0, number, number // 7, 0) for number in numbers]
    for is_last in (False, True):
        firsts = Firsts(1_000, is_last)
        moved = 0
        for task in tasks:
            if firsts.add(task):
                moved += firsts.merge()
            assert len(firsts.keys) + len(firsts.fresh) <= 2_000
        moved += firsts.merge()
        wanted = sorted(((n // 7, n) for n in numbers), reverse=is_last)
        assert firsts.keys == wanted[:1_000]
        assert moved <= 15_000


# ---- What a connection shows of itself


def test_a_line_about_a_connection_costs_its_parts(world: World) -> None:
    """L2.10: CLIENT INFO counts the replies that its connection has not been sent yet."""
    wire = world.wire()
    wire.put(encode("CLIENT", "INFO") * 3_000)
    with costs(world) as spent:
        world.settle()
    replies = wire.values()
    assert len(replies) == 3_000
    assert all(reply.startswith(b"id=") for reply in replies)
    assert max(work for work, _ in spent) <= PIECE + 50
    assert sum(work for work, _ in spent) >= 10 * 3_000


# ---- Subscriptions with costly globs


def test_costly_filters_are_compared_in_slices(world: World) -> None:
    """T62.3 The filters are compared before, in slices (L2.2). What unsubscribes meanwhile gets no
    job.
    """
    glob = "*" + "[!b]" * 31 + "z*"
    for i in range(256):
        world.run("TOPIC", "SUBSCRIBE", "t", f"q{i:03}", "FILTER", "a", glob if i % 2 else "a*")
    world.run("TOPIC", "SUBSCRIBE", "t", "q001", "FILTER", "a", "*a")
    world.wire().put(encode("TOPIC", "UNSUBSCRIBE", "t", "q254"))
    ids, spent = run(world, "TOPIC", "ADD", "t", "b", 0, "HEADERS", 1, "a", "a" * 1_000)
    assert len(ids) == 129 - 1
    assert len(spent) > 3, "the filters take several turns"
    assert max(work for work, _ in spent) <= 2 * TURN_WORK
    assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK
