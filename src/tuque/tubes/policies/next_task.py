"""Which task of a tube of type `tasks` goes next: places, tokens and turns (SPEC T41 to T43).

READY tasks with the same group, limit and rate are a partition. A partition waits as a whole: for a
place of its LIMIT, then for a token of its RATE, then for its group's turn. It keeps the place
meanwhile; the token is spent when the task is taken, and the place goes with the task. So a task
that may not go costs nothing, and a take costs O(log n) whatever waits.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.rows import Instants
from tuque.core.model.task import Task
from tuque.tubes.entries.keys import (
    NO_NAME,
    UNTIL_START,
    JobEntry,
    has_unique,
    keys_of,
    lane_name,
    limit_of,
    names_of,
    unique_of,
    until_of,
)
from tuque.tubes.entries.schedule import HoldEntry, Plans
from tuque.tubes.policies.limits import NS, Limit, Rate
from tuque.tubes.policies.partitions import (
    IN_LIMIT,
    IN_RATE,
    IN_READY,
    NO_LANE,
    Lane,
    Line,
    Ring,
)
from tuque.tubes.policies.tables import (
    KEY_BYTES,
    OF_GROUP,
    OF_LIMIT,
    OF_RATE,
    KeyTables,
    weight_in,
)
from tuque.tubes.types.driver import Order, listing_of

STEP: Final = 500  # lanes of one key that move at once (T41.6)


# ---- The tables of keyed tasks must agree: for DEBUG CHECK and tests (SPEC T41, T42)


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
        keys = keys_of(task)
        key = limit_of(keys) if len(keys) > 0 else b""
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
    known = [lane for lane in tables.lanes.values() if len(lane.entry.keys) > 0]
    assert len(tables.by_packed) == len(known), "lane that is gone, found by its bytes"
    for lane in known:
        assert tables.by_packed[lane.entry.keys] is lane, "lane found by its bytes"
        assert lane_name(lane.entry.keys) == lane.name, "bytes of another lane"
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


@final
class Tasks(KeyTables):
    """The driver of the type `tasks`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.has_keys = True
        self.plans = Plans()
        self.alarms = Instants()  # of rates
        self.behind: dict[bytes, None] = {}  # limits with lanes to move in the next turn
        self.count: i64 = 0  # READY tasks
        self.chosen = NO_LANE  # of the task that `first` gave

    def begin_empty(self, now_ms: i64) -> None:
        """[T42] Another leader may have spent the tokens (T42.4)."""
        self.now_ms = now_ms
        self.empty_ns = now_ms * NS

    # ---- what the tube reports

    def joined(self, task: Task) -> None:
        """[T44] The task is in the tube, in whatever status: it may have a unique key (T44.6)."""
        entry = task.entry
        if entry is None:
            return
        if isinstance(entry, JobEntry):
            if len(entry.keys) == 0 or not has_unique(entry.keys):
                return
        elif not isinstance(entry, HoldEntry):
            self.bytes_used += self.plans.joined(task)
            self.apart = self.plans.values.tasks
            return
        uniques = self.uniques
        used = uniques.bytes_used
        uniques.joined(task, self.now_ms)
        self.bytes_used += uniques.bytes_used - used
        if uniques.ends.count > 0:
            self.alarm_ms = min(self.alarm_ms, uniques.next_ms())

    def ended(self, task: Task) -> None:
        """[T44] The task is gone: its unique key is free (T44.2)."""
        entry = task.entry
        if entry is not None and not isinstance(entry, JobEntry):
            if isinstance(entry, HoldEntry):
                self.give_up_key(entry.key, task.number)
            else:
                self.bytes_used -= self.plans.ended(task)
                self.apart = self.plans.values.tasks
            return
        if len(self.plans.held) > 0:
            self.plans.held.pop(int(task.number), None)
        keys = keys_of(task)
        if len(keys) > 0:
            if len(lane_name(keys)) > len(NO_NAME):
                self.forget_names(keys, task)
            if has_unique(keys):
                self.give_up_key(unique_of(keys), task.number)

    def died(self, task: Task) -> None:
        """[T44] The task is BURIED: its unique key is free (T44.2), unless for its time (T44.3)."""
        if len(self.plans.held) > 0:
            self.plans.held.pop(int(task.number), None)
        keys = keys_of(task)
        if len(keys) > 0 and has_unique(keys) and until_of(keys) <= 0:
            self.give_up_key(unique_of(keys), task.number)

    def give_up_key(self, key: bytes, number: i64) -> None:
        """Free the unique key, if that task has it."""
        if len(key) > 0:
            used = self.uniques.bytes_used
            self.uniques.free(key, number)
            self.bytes_used += self.uniques.bytes_used - used

    def enter(self, task: Task) -> None:
        """A READY task joins its lane."""
        self.count += 1
        lane = self.lane_of(task)
        if not lane.is_free or len(lane.group) > 0:
            self.count_in(lane)
        lane.add(task)
        if lane.stands == 0:
            self.stand(lane)
        elif task.pri < lane.pri or (task.pri == lane.pri and task.number < lane.number):
            self.look(lane)

    def look(self, lane: Lane) -> None:
        """The first task of a lane that stands somewhere may be another one."""
        if lane.look():
            ring = self.ring_of(lane)
            if ring is not None:
                ring.moved(lane)

    def ring_of(self, lane: Lane) -> Ring | None:
        """The ring in which the lane stands; None: it waits for a place alone."""
        if lane.stands == IN_LIMIT:
            return self.limits[lane.limit].ring
        return ring_of(lane, self.limits, self.rates, self.line)

    def first(self) -> Task | None:
        """The task to take next."""
        room = STEP
        lane = self.line.first()
        while lane is not None and not lane.is_free and self.has_lost(lane):
            room -= 1
            if room == 0:
                self.go_on_later(b"")  # T41.6: no limit has this name
                return None
            lane = self.line.first()
        if lane is None:
            return None
        if not lane.is_free:
            lane = self.better(lane)
        self.chosen = lane
        return lane.first()

    def peek(self) -> Task | None:
        """The task of the lane whose turn it is; lanes that may go no longer stay (T41.4)."""
        lane = self.line.first()
        return None if lane is None else lane.first()

    def took(self, task: Task) -> None:
        """`first` was taken: a token is spent, the place goes with the task."""
        self.count -= 1
        lane = self.chosen
        if lane.stands != IN_READY or lane.number != task.number:
            lane = self.lanes[lane_name(keys_of(task))]
        self.uncount(lane)
        if len(self.uniques.claims) > 0:
            keys = keys_of(task)
            if len(keys) > 0 and until_of(keys) == UNTIL_START:
                self.give_up_key(unique_of(keys), task.number)
        lane.remove(task)
        if lane.is_free and lane.count > 0:
            self.line.again(lane)
            return
        lane.has_place = False
        line = self.line.leave(lane)
        rate: Rate | None = None
        if len(lane.rate) > 0:
            rate = self.rates[lane.rate]
            rate.spend(self.now_ms)
            rate.ready -= 1
        if lane.count > 0:
            self.stand(lane)
        else:
            self.drop_lane(lane)
        self.line.spent(line)
        if rate is not None:
            self.feed_rate(lane.rate, rate)

    def left(self, task: Task) -> None:
        """A READY task is gone, or buried."""
        self.count -= 1
        lane = self.lanes[lane_name(keys_of(task))]
        self.uncount(lane)
        lane.remove(task)
        if lane.count > 0:
            self.look(lane)
            return
        stood = lane.stands
        ring = self.ring_of(lane)
        limit = self.limits.get(lane.limit)
        if ring is not None:
            ring.settle(ring.leave(lane))
        elif limit is not None:
            limit.alone = None
            lane.stands = 0
        rate = self.rates.get(lane.rate)
        if rate is not None and stood == IN_READY:
            rate.ready -= 1
        if limit is not None and lane.has_place:
            lane.has_place = False
            limit.used -= 1
        self.drop_lane(lane)
        if limit is not None:
            self.feed_limit(lane.limit, limit)
        if rate is not None:
            self.feed_rate(lane.rate, rate)

    def freed(self, task: Task) -> None:
        """A task is TAKEN no longer: its place is free."""
        keys = keys_of(task)
        if len(keys) == 0:
            return
        key = limit_of(keys)
        if len(key) > 0:
            limit = self.limit_at(key)
            limit.used -= 1
            self.feed_limit(key, limit)

    def held(self, task: Task) -> None:
        """The task is TAKEN already: it has a place, whatever the others have (T41.4)."""
        keys = keys_of(task)
        if len(keys) == 0:
            return
        key = limit_of(keys)
        if len(key) > 0:
            self.known_limit(key).used += 1

    def listing(self) -> list[Task]:
        """All READY tasks, also those that may not go."""
        return listing_of(self.lanes.values())

    def orders(self, most: i64) -> list[Order] | None:
        """The lanes, unless they are many."""
        if len(self.lanes) > most:
            return None
        found: list[Order] = []
        found.extend(self.lanes.values())
        return found

    def check(self, taken: list[Task]) -> None:
        """Assert that lanes, keys and rings agree; `taken` are the tasks that are TAKEN."""
        assert self.count == check_lanes(
            self.lanes, self.limits, self.rates, self.line, taken, self.behind
        )
        check_waits(self)

    # ---- the way of a lane

    def stand(self, lane: Lane) -> None:
        """The lane, which has tasks, begins its way."""
        lane.look()
        if len(lane.limit) > 0 and not lane.has_place:
            limit = self.limit_at(lane.limit)
            if limit.alone is None and limit.ring is None:
                limit.alone = lane
                lane.stands = IN_LIMIT
            else:
                self.places_of(limit).add(lane)
            self.feed_limit(lane.limit, limit)
        else:
            self.go_on(lane)

    def places_of(self, limit: Limit) -> Ring:
        """The ring of lanes that wait for a place: there are several."""
        ring = limit.ring
        if ring is None:
            ring = self.new_ring(IN_LIMIT)
            limit.ring = ring
            lane = limit.alone
            limit.alone = None
            if lane is not None:
                ring.add(lane)
        return ring

    def go_on(self, lane: Lane) -> None:
        """The lane has its place: a token is next."""
        if len(lane.rate) == 0:
            self.line.add(lane)
            return
        rate = self.rates[lane.rate]
        if rate.ring is None and rate.ready < rate.tokens(self.now_ms):
            rate.ready += 1  # it need not wait
            self.line.add(lane)
        else:
            self.wait_for(rate).add(lane)
        self.feed_rate(lane.rate, rate)

    def feed_limit(self, key: bytes, limit: Limit) -> i64:
        """Places that are free go to the lanes that wait, by their groups' turns; how many went."""
        moved: i64 = 0
        ring = limit.ring
        has_room = limit.used < limit.places
        if len(self.behind) > 0:
            has_room = has_room and key not in self.behind
        alone = limit.alone
        if alone is not None and has_room:
            limit.alone = None
            limit.used += 1
            alone.has_place = True
            self.go_on(alone)
            moved = 1
        elif ring is not None:
            if has_room:
                moved = self.feed_ring(key, limit, ring)
            if ring.count == 0 and limit.ring is ring:
                self.drop_ring(ring)
                limit.ring = None
        self.note_limit(key, limit)
        self.drop_limit(key, limit)
        return moved

    def feed_ring(self, key: bytes, limit: Limit, ring: Ring) -> i64:
        """As `feed_limit`, for the lanes of a ring."""
        moved: i64 = 0
        while limit.used < limit.places:
            line = ring.head()
            if line is None:
                break
            if moved == STEP:
                self.go_on_later(key)
                break
            moved += 1
            lane = line.top()
            ring.leave(lane)
            limit.used += 1
            lane.has_place = True
            ring.spent(line)
            self.go_on(lane)
        return moved

    def feed_rate(self, key: bytes, rate: Rate) -> i64:
        """As many lanes may go as there are tokens; the alarm is set anew (T42.3); as above."""
        moved: i64 = 0
        ring = rate.ring
        if ring is not None:
            tokens = rate.tokens(self.now_ms)
            while rate.ready < tokens and not rate.is_behind:
                line = ring.head()
                if line is None:
                    break
                lane = line.top()
                ring.leave(lane)
                ring.spent(line)
                rate.ready += 1
                moved += 1
                rate.is_behind = moved == STEP
                self.line.add(lane)
            if ring.count == 0:
                rate.is_behind = False
                self.drop_ring(ring)
                rate.ring = None
                ring = None
            self.note_rate(key, rate)
        at_ms: i64 = 0
        if ring is not None:
            if rate.ready < rate.burst:
                at_ms = max(rate.token_ms(rate.ready + 1), self.now_ms)  # now: T41.6
        elif rate.lanes == 0:
            at_ms = rate.full_ms()
            if at_ms <= self.now_ms:
                del self.rates[key]
                self.bytes_used -= KEY_BYTES + len(key)
                self.set_alarm(rate, key, 0)
                return moved
        self.set_alarm(rate, key, at_ms)
        return moved

    def has_lost(self, lane: Lane) -> bool:
        """Whether the lane may not go after all: then it waits again.

        Its key has fewer places, or a slower rate, than when it was let go, or tasks that were
        TAKEN before a load need the place (T41.4).
        """
        rate = self.rates.get(lane.rate) if len(lane.rate) > 0 else None
        if len(lane.limit) > 0:
            limit = self.limit_at(lane.limit)
            if limit.used > limit.places:
                self.line.settle(self.line.leave(lane))
                lane.has_place = False
                limit.used -= 1
                if rate is not None:
                    rate.ready -= 1
                self.stand(lane)
                if rate is not None:
                    self.feed_rate(lane.rate, rate)
                return True
        if rate is not None and rate.tokens(self.now_ms) <= 0:
            self.line.settle(self.line.leave(lane))
            rate.ready -= 1
            self.wait_for(rate).add(lane)
            self.feed_rate(lane.rate, rate)
            return True
        return False

    def better(self, lane: Lane) -> Lane:
        """A lane of the same group and keys that came later, but goes first: it takes over."""
        if len(lane.rate) > 0:
            ring = self.rates[lane.rate].ring
            other = None if ring is None else ring.first_of(lane.group)
            if ring is not None and other is not None and other.goes_before(lane.pri, lane.number):
                self.swap(ring, other, lane)
                lane = other
        return lane

    def swap(self, ring: Ring, other: Lane, lane: Lane) -> None:
        """`other`, of the ring, and `lane`, which may go, change places; the group is the same."""
        ring.leave(other)
        self.line.leave(lane)
        ring.add(lane)
        self.line.add(other)

    # ---- time

    def next_ms(self) -> i64:
        """When `wake` has work next."""
        if len(self.behind) > 0:
            return self.now_ms
        return min(self.next_alarm_ms(), self.uniques.next_ms())

    def next_alarm_ms(self) -> i64:
        """When tokens come next."""
        return self.alarms.first_ms()

    def wake(self, most: i64) -> i64:
        """Move about `most` lanes that may go now, and free keys whose time is over; returns how
        many more it might have been.
        """
        uniques = self.uniques
        used = uniques.bytes_used
        most = uniques.drop_late(self.now_ms, most)  # T44.3
        self.bytes_used += uniques.bytes_used - used
        while most > 0 and (len(self.behind) > 0 or self.next_alarm_ms() <= self.now_ms):
            most -= 1
            if len(self.behind) > 0:
                key = next(iter(self.behind))
                del self.behind[key]
                limit = self.limits.get(key)
                if limit is not None:
                    most -= self.feed_limit(key, limit)
                continue
            key = self.alarms.first_key()
            rate = self.rates[key]
            self.set_alarm(rate, key, 0)
            rate.is_behind = False
            most -= self.feed_rate(key, rate)
        self.alarm_ms = self.next_ms()
        return most

    def go_on_later(self, key: bytes) -> None:
        """More lanes of the limit move in the next turn (T41.6)."""
        self.behind[key] = None
        self.alarm_ms = min(self.alarm_ms, self.now_ms)

    def set_alarm(self, rate: Rate, key: bytes, at_ms: i64) -> None:
        """Remember the next instant that matters to the rate; 0: there is none."""
        if at_ms == rate.alarm_ms:
            return
        if rate.alarm_ms != 0:
            self.alarms.unset(key, rate.alarm_ms)
        rate.alarm_ms = at_ms
        if at_ms != 0:
            self.alarms.set(key, at_ms)
            self.alarm_ms = min(self.alarm_ms, at_ms)

    # ---- what tasks say (T40.3)

    def named(self, task: Task) -> None:
        """The task is in the tube, in whatever status, with the keys that it names."""
        packed = keys_of(task)
        if len(packed) == 0 or len(lane_name(packed)) == len(NO_NAME):
            return
        group, limit, rate = names_of(lane_name(packed))
        if len(group) > 0 and self.name(self.of_group, group, task):
            self.follow_group(group, packed)
        if len(limit) > 0 and self.name(self.of_limit, limit, task):
            self.follow_limit(limit, packed)
        if len(rate) > 0 and self.name(self.of_rate, rate, task):
            self.follow_rate(rate, packed)

    def forget_names(self, packed: bytes, task: Task) -> None:
        """The task is gone: of its keys, those for which it counted go by another one."""
        group, limit, rate = names_of(lane_name(packed))
        if len(group) > 0 and self.unname(self.of_group, group, task):
            self.follow_group(group, self.counted(self.of_group, group))
        if len(limit) > 0 and self.unname(self.of_limit, limit, task):
            self.follow_limit(limit, self.counted(self.of_limit, limit))
        if len(rate) > 0 and self.unname(self.of_rate, rate, task):
            self.follow_rate(rate, self.counted(self.of_rate, rate))

    def follow_group(self, key: bytes, packed: bytes) -> None:
        """The group goes by these bytes, if it has READY tasks."""
        group = self.groups.get(key)
        if group is not None:
            self.weigh(group, weight_in(packed))

    def follow_limit(self, key: bytes, packed: bytes) -> None:
        """The limit goes by these bytes, if somebody uses it."""
        limit = self.limits.get(key)
        if limit is not None and limit.follow(packed):
            self.feed_limit(key, limit)

    def follow_rate(self, key: bytes, packed: bytes) -> None:
        """The rate goes by these bytes, if its bucket is known."""
        rate = self.rates.get(key)
        if rate is not None and rate.follow(packed, self.now_ms):
            self.feed_rate(key, rate)

    def count_in(self, lane: Lane) -> None:
        """One READY task more is in the lane."""
        if len(lane.group) > 0:
            lane.tenant.tasks += 1
        if len(lane.limit) > 0:
            self.limit_at(lane.limit).tasks += 1
        if len(lane.rate) > 0:
            self.rates[lane.rate].tasks += 1

    def loaded(self) -> None:
        """[T41, T42] All tasks are in: what their keys mean is known.

        Buckets are empty of what they hold now (T42.4), and lanes that were let go too early wait
        again (T41.4).
        """
        self.plans.values.loaded()
        slower: list[bytes] = []
        for key, rate in self.rates.items():
            full_ns = self.empty_ns + rate.burst * rate.gap_ns
            if rate.full_ns < full_ns:
                rate.full_ns = full_ns
                slower.append(key)
        if len(slower) == 0 and all(one.used <= one.places for one in self.limits.values()):
            return
        for lane in list(self.lanes.values()):
            if not lane.is_free and self.ring_of(lane) is self.line:
                self.has_lost(lane)
        for key in slower:
            self.feed_rate(key, self.rates[key])
