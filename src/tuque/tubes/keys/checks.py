"""Whether the tables of keyed tasks agree (SPEC T41, T42): for DEBUG CHECK and tests."""

from mypy_extensions import i64

from tuque.core.model.task import Task
from tuque.tubes.keys.lane import Lane, Line
from tuque.tubes.keys.limits import Limit, Rate
from tuque.tubes.keys.ring import IN_LIMIT, IN_RATE, IN_READY, Ring
from tuque.tubes.keys.tables import OF_GROUP, OF_LIMIT, OF_RATE, KeyTables
from tuque.tubes.keys.words import lane_name, limit_of


def check_lanes(
    lanes: dict[bytes, Lane],
    limits: dict[bytes, Limit],
    rates: dict[bytes, Rate],
    line: Ring,
    taken: list[Task],
    behind: dict[bytes, None],
) -> i64:
    """Assert that lanes, keys and rings agree; returns the number of READY tasks."""
    used: dict[bytes, int] = {}
    ready: dict[bytes, int] = {}
    waits: dict[bytes, int] = {}
    for task in taken:
        key = limit_of(task.subqueue) if len(task.subqueue) > 0 else b""
        used[key] = used.get(key, 0) + 1
    count: i64 = 0
    for lane in lanes.values():
        assert lane.count > 0, "lane without tasks"
        count += lane.count
        head = lane.first()
        assert head is not None and head.number == lane.number, "first task of a lane"
        if lane.stands == IN_LIMIT and limits[lane.limit].ring is None:
            assert limits[lane.limit].alone is lane, "lane in no ring"
        else:
            stood = ring_of(lane, limits, rates, line).lines[lane.group]
            check_place(stood, lane)
        is_placed = len(lane.limit) > 0 and lane.stands != IN_LIMIT
        assert lane.has_place == is_placed, "place of a lane"
        if lane.has_place:
            used[lane.limit] = used.get(lane.limit, 0) + 1
        if lane.stands == IN_READY:
            ready[lane.rate] = ready.get(lane.rate, 0) + 1
        elif lane.stands == IN_LIMIT:
            waits[lane.limit] = 1
    for key, limit in limits.items():
        assert limit.used == used.get(key, 0), "places of a limit"
        has_room = limit.used < limit.places and key not in behind
        assert key not in waits or not has_room, "free place"
    for key, rate in rates.items():
        assert rate.ready == ready.get(key, 0), "lanes that may go"
        ring = rate.ring
        if ring is not None:
            assert ring.count > 0, "empty ring"
            assert rate.ready >= rate.burst or rate.alarm_ms > 0, "no alarm"
    return count


def check_place(line: Line, lane: Lane) -> None:
    """Assert that the lane stands in the line, once, and that none goes before its top."""
    assert line.count > 0, "lane in no ring"
    if lane.place < 0:
        assert line.heap[lane.spot] is lane, "spot of a lane"
    else:
        assert lane.spot < 0 and line.items[lane.place - line.start] is lane, "place of a lane"
    first = line.top()
    assert not lane.goes_before(first.pri, first.number), "first lane of a line"


def check_waits(tables: KeyTables) -> None:
    """Assert that what LIMITS shows is so: who waits, tasks by key, weights (T47)."""
    tasks: dict[tuple[int, bytes], int] = {}
    for lane in tables.lanes.values():
        for what, key in ((OF_LIMIT, lane.limit), (OF_RATE, lane.rate), (OF_GROUP, lane.group)):
            tasks[what, key] = tasks.get((what, key), 0) + int(lane.count)
    known = [lane for lane in tables.lanes.values() if len(lane.packed) > 0]
    assert len(tables.by_packed) == len(known), "lane that is gone, found by its bytes"
    for lane in known:
        assert tables.by_packed[lane.packed] is lane, "lane found by its bytes"
        assert lane_name(lane.packed) == lane.name, "bytes of another lane"
    for key, limit in tables.limits.items():
        assert limit.tasks == tasks.get((OF_LIMIT, key), 0), "READY tasks of a limit"
        assert limit.waits() == (limit.since_ms != 0) == (key in tables.full_limits)
        assert limit.ring is None or limit.alone is None, "a lane that is not alone"
    for key, rate in tables.rates.items():
        assert rate.tasks == tasks.get((OF_RATE, key), 0), "READY tasks of a rate"
        assert (rate.ring is not None) == (rate.since_ms != 0) == (key in tables.full_rates)
    weights: i64 = 0
    for key, group in tables.groups.items():
        weights += group.weight
        assert len(key) == 0 or group.tasks == tasks[OF_GROUP, key], "READY tasks of a group"
    assert weights == tables.weights, "weights of groups"
    for key in tables.full_limits:
        assert key in tables.limits, "limit that is gone"
    for key in tables.full_rates:
        assert key in tables.rates, "rate that is gone"


def ring_of(lane: Lane, limits: dict[bytes, Limit], rates: dict[bytes, Rate], line: Ring) -> Ring:
    """The ring in which the lane stands."""
    ring: Ring | None = line
    if lane.stands == IN_LIMIT:
        ring = limits[lane.limit].ring
    elif lane.stands == IN_RATE:
        ring = rates[lane.rate].ring
    assert ring is not None
    return ring
