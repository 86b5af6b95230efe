"""What one command, or a pipeline of one connection, may cost a turn, in counts (SPEC L2).

Each test counts what ran in one turn: the units that the node counts itself, and the lines of
Python, so that work which nobody counts is found, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hiredis
import pytest

from pump_box import PumpBox
from raw_resp import encode
from tuque.core.model.task import Task
from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.core.tables.work import Letters
from tuque.tubes import groups
from tuque.tubes.entries.group import GroupPlan
from tuque.tubes.model.options import PutSpec
from tuque.tubes.policy import tubes_of
from tuque.tubes.schedules import driver_of
from tuque.tubes.tasks import operations
from tuque.tubes.types.ordering import Firsts

TASKS = 6_000
PRIS = 1_000
LINES_PER_UNIT = 40
LINES_OF_A_TURN = 20_000  # beside the work that a command counts


class Costly:
    """A node, one connection, and what each turn of it cost."""

    def __init__(self, box: PumpBox) -> None:
        self.box = box
        self.wire = box.connect()

    def run(self, *words: Any) -> tuple[Any, list[tuple[int, int]]]:
        """The reply, and the units and lines of each turn."""
        replies, spent = self.run_all(encode(*words), 1)
        return replies[0], spent

    def run_all(self, data: bytes, count: int) -> tuple[list[Any], list[tuple[int, int]]]:
        """The replies of a pipeline, and the units and lines of each turn."""
        sock = self.wire.sock
        sock.setblocking(False)
        reader, replies, spent = hiredis.Reader(), [], []
        for _ in range(100_000):
            if data:
                try:
                    data = data[sock.send(data) :]
                except BlockingIOError:
                    pass
            spent.append(self.turn())
            try:
                reader.feed(sock.recv(1 << 22))
            except BlockingIOError:
                continue
            reply = reader.gets()
            while reply is not False:
                replies.append(reply)
                reply = reader.gets()
            if len(replies) == count:
                return replies, spent
        raise AssertionError("no reply")

    def turn(self) -> tuple[int, int]:
        """One turn: the units of work that it did, and the lines of Python."""
        lines = 0

        def on_line(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return on_line

        before = sys.gettrace()
        sys.settrace(on_line)
        try:
            self.box.pump.turn(0)
        finally:
            sys.settrace(before)
        return int(self.box.n.work), lines


@pytest.fixture
def costly(tmp_path: Path) -> Iterator[Costly]:
    box = PumpBox(tmp_path)
    yield Costly(box)
    box.check()
    box.close()


def put_all(costly: Costly, name: bytes, type: str, keys: int = 0) -> None:
    """Tasks of many priorities in a tube, of so many sub-queues."""
    costly.run("TUBE", "CREATE", name, type)
    n = costly.box.n
    t = tubes_of(n)
    spec = PutSpec()
    for i in range(TASKS):
        if keys:
            spec.utube = b"%d" % (i * 7_919 % keys)
        spec.pri = i * 7_919 % PRIS
        operations.put(n, t, t.by_name[name], b"%d" % i, 0, spec, 0, 0)


# ---- QPEEK of a tube


def test_the_head_of_a_tube_costs_what_it_shows(costly: Costly) -> None:
    """S3.3 Of a tube the first tasks are found without a look at those behind them."""
    put_all(costly, b"t", "fifottl")
    n = costly.box.n
    wanted = sorted(n.queues[b"t"].tasks.values(), key=lambda one: (one.pri, one.number))
    for count in (1, 10, 200):
        rows, spent = costly.run("QPEEK", "t", count)
        assert [row[1] for row in rows] == [one.id for one in wanted[:count]]
        assert max(lines for _, lines in spent) <= 2_000 + 60 * count
        assert sum(work for work, _ in spent) <= 2 * count + 10


def test_the_end_of_a_tube_is_found_in_slices(costly: Costly) -> None:
    """S3.3 The last ones, and the first ones of a tube with more than 100 lanes or sub-queues, take
    a walk over all tasks in slices (L2.2).
    """
    put_all(costly, b"t", "fifottl")
    put_all(costly, b"u", "utubettl", keys=3_000)
    costly.box.n.work = 0
    for name, count in ((b"t", -3), (b"u", 3), (b"u", -3)):
        tasks = costly.box.n.queues[name].tasks.values()
        wanted = sorted(tasks, key=lambda one: (one.pri, one.number), reverse=count < 0)
        rows, spent = costly.run("QPEEK", name, count)
        assert [row[1] for row in rows] == [one.id for one in wanted[: abs(count)]]
        assert sum(work for work, _ in spent) >= TASKS // 4, "the walk is counted"
        assert max(work for work, _ in spent) <= TURN_WORK


# ---- Schedules that fire rarely or never

RARE = ("0 0 */28 2 1#5", "0 0 29 2 1#5", "59 23 L 12 1")
NEVER = ("0 0 */31 * 1#5", "0 0 */30 2 1#5", "59 59 23 */31 * 1#4")


def test_an_expression_is_searched_by_its_fields(costly: Costly) -> None:
    """T46.1 The next instant is found by the fields, month by month, and costs as much if it is
    years ahead. An expression that never fires is refused: `-ERR CRON '<text>' has no instant to
    come`.
    """
    costly.run("TUBE", "CREATE", "t", "tasks")
    costly.run("SCHEDULE", "ADD", "t", "n", "CRON", "* * * * *", "body")  # loads cronsim
    for i, text in enumerate((*RARE, *NEVER)):
        reply, spent = costly.run("SCHEDULE", "ADD", "t", f"n{i}", "CRON", text, "body")
        told = f"ERR CRON '{text}' has no instant to come"
        assert reply == b"ADDED" if text in RARE else str(reply) == told
        assert max(lines for _, lines in spent) <= 5_000
    _, spent = costly.run("SCHEDULE", "LIST", "t")
    assert max(lines for _, lines in spent) <= 5_000


def test_schedules_after_a_restart_take_turns(costly: Costly) -> None:
    """T45.3 It looks at 25 schedules in a turn."""
    costly.run("TUBE", "CREATE", "t", "tasks")
    n = costly.box.n
    for i in range(200):
        costly.run("SCHEDULE", "ADD", "t", f"n{i}", "CRON", "0 0 */28 2 1#5", "body")
    t = tubes_of(n)
    for number in driver_of(t.by_name[b"t"]).plans.by_name.values():
        t.due[t.by_name[b"t"].tasks[number].id] = None
    spent = [costly.turn() for _ in range(20)]
    assert not t.due and max(lines for _, lines in spent) <= LINES_OF_A_TURN


# ---- Lists of what is in a state, and counts


def test_reasons_are_counted_in_slices(costly: Costly) -> None:
    """W12.3 STAT replies rows of cause, reason and count, the greatest first, at most 1000. It
    counts in slices (L2.2).
    """
    n = costly.box.n
    letters = n.life.letters[b"q"] = Letters()
    wanted = []
    for i in range(30_000):
        letters.reasons[b"failed", b"%d" % i] = 1 + i * 7_919 % 3_000
        wanted.append((-(1 + i * 7_919 % 3_000), b"failed", b"%d" % i))
    rows, spent = costly.run("DEAD", "STAT", "q")
    assert rows == [[cause, reason, -count] for count, cause, reason in sorted(wanted)[:1_000]]
    assert len(spent) > 1 and max(work for work, _ in spent) <= TURN_WORK + 2_000
    assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK
    del n.life.letters[b"q"]


def test_groups_of_a_state_are_found_in_slices(costly: Costly) -> None:
    """T51.4 It looks at the groups in slices (L2.2)."""
    costly.run("TUBE", "CREATE", "t", "tasks")
    n, t = costly.box.n, tubes_of(costly.box.n)
    tube = t.by_name[b"t"]
    for _ in range(9_000):
        plan = GroupPlan()
        plan.size = 9
        groups.create(n, t, tube, plan, b"", 0, 1_000)
    reply, spent = costly.run("GROUP", "LIST", "t", "STATE", "failed")
    assert reply == [b"0", []]
    assert len(spent) > 1 and max(work for work, _ in spent) <= TURN_WORK + 1_000
    assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK


def test_tasks_of_a_state_are_found_and_written_in_slices(costly: Costly) -> None:
    """T5, L2.2: the first tasks of many are kept in order as they come, and written in pieces."""
    put_all(costly, b"t", "fifottl")
    tasks = costly.box.n.queues[b"t"].tasks.values()
    wanted = [b"%d" % one.number for one in sorted(tasks, key=lambda one: (one.pri, one.number))]
    for count in (1, 100, 2_000, 5_000):
        rows, spent = costly.run("TUBE", "TASKS", "t", "READY", "COUNT", count)
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


def test_a_line_about_a_connection_costs_its_parts(costly: Costly) -> None:
    """L2.10: CLIENT INFO counts the replies that its connection has not been sent yet."""
    replies, spent = costly.run_all(encode("CLIENT", "INFO") * 3_000, 3_000)
    assert all(reply.startswith(b"id=") for reply in replies)
    assert max(work for work, _ in spent) <= PIECE + 50
    assert sum(work for work, _ in spent) >= 10 * 3_000


# ---- Subscriptions with costly globs


def test_costly_filters_are_compared_in_slices(costly: Costly) -> None:
    """T62.3 The filters are compared before, in slices (L2.2). What unsubscribes meanwhile gets no
    job.
    """
    glob = "*" + "[!b]" * 31 + "z*"
    for i in range(256):
        costly.run("TOPIC", "SUBSCRIBE", "t", f"q{i:03}", "FILTER", "a", glob if i % 2 else "a*")
    costly.run("TOPIC", "SUBSCRIBE", "t", "q001", "FILTER", "a", "*a")
    other = costly.box.connect()
    other.sock.send(encode("TOPIC", "UNSUBSCRIBE", "t", "q254"))
    ids, spent = costly.run("TOPIC", "ADD", "t", "b", 0, "HEADERS", 1, "a", "a" * 1_000)
    assert len(ids) == 129 - 1
    assert len(spent) > 3, "the filters take several turns"
    assert max(work for work, _ in spent) <= 2 * TURN_WORK
    assert max(lines for _, lines in spent) <= LINES_PER_UNIT * TURN_WORK
