"""The partitions, keys and groups of a tube of type `tasks`, and what waits (SPEC T41 to T43, T47).

Must not know: which partition goes next.
"""

from itertools import islice
from typing import Final, cast, final

from librt.strings import read_i32_le
from mypy_extensions import i64, mypyc_attr

from tuque.core.model.rows import Rows
from tuque.core.model.task import Task
from tuque.core.msgs.packed import FILL_MAX_NS
from tuque.tubes.entries.keys import (
    JobEntry,
    has_unique,
    keys_of,
    lane_name,
    names_of,
    numbers_at,
    share_keys,
    unpack,
)
from tuque.tubes.policies.limits import Limit, Rate
from tuque.tubes.policies.partitions import IN_RATE, IN_READY, Group, Lane, Ring
from tuque.tubes.policies.unique import Uniques
from tuque.tubes.types.driver import Driver, Table, free_some

# Estimates, without the keys' bytes. By tracemalloc, interpreted, with 20,000 and 44,000 lanes: a
# lane with a key of its own takes 670 to 760 bytes if that is a limit, 760 to 860 if a rate, 870 to
# 1,000 if a group. Compiled objects, and rings, have not been measured.
LANE_BYTES: Final = 560
KEY_BYTES: Final = 240
RING_BYTES: Final = 420
NAMED_BYTES: Final = 100  # a key that one task names
ROWS_BYTES: Final = 200  # more, if several do
ROW_BYTES: Final = 8  # each of these

# rows of LIMITS
OF_LIMIT: Final = 1
OF_RATE: Final = 2
OF_GROUP: Final = 3


@final
@mypyc_attr(acyclic=True)
class Named(Rows):
    """The tasks that name a key, by number: the last one says what it means (T40.3)."""

    def before(self, a: object, b: object) -> bool:
        """Whether the task `a` has the lower number."""
        return cast("Task", a).number < cast("Task", b).number


class KeyTables(Driver):
    """What the type `tasks` knows of lanes and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.uniques = Uniques()
        # buckets not known before were empty at that instant (T42.4)
        self.empty_ns: i64 = -FILL_MAX_NS
        self.lanes: dict[bytes, Lane] = {}
        self.by_packed: dict[bytes, Lane] = {}  # by what most of their tasks carry
        self.limits: dict[bytes, Limit] = {}
        self.near = Limit()  # the last one that `limit_at` found
        self.near_key = b""  # its key, compared by identity; empty: none
        self.rates: dict[bytes, Rate] = {}
        self.groups: dict[bytes, Group] = {}
        self.weights: i64 = 0  # of all groups
        # by key, the one task that names it, or all of them: in whatever status (T40.3)
        self.of_limit: dict[bytes, object] = {}
        self.of_rate: dict[bytes, object] = {}
        self.of_group: dict[bytes, object] = {}
        self.full_limits: dict[bytes, None] = {}  # that tasks wait for, the longest first
        self.full_rates: dict[bytes, None] = {}
        self.line = Ring(IN_READY, self.groups)

    def cost(self) -> i64:
        """How often a lane was put into a line so far."""
        return self.line.pushes

    def free(self, most: i64) -> None:
        """Free some keys, then partitions, which they name."""
        keys: list[Table] = [self.line.lines, self.limits, self.rates, self.groups]
        keys += [self.of_limit, self.of_rate, self.of_group]
        free_some([*keys, self.uniques.claims, self.by_packed, self.lanes], most)

    def keys(self) -> i64:
        """How many keys are known."""
        count: i64 = len(self.limits) + len(self.rates) + len(self.groups)
        return count + len(self.uniques.claims)

    def new_lane(self, name: bytes) -> Lane:
        """Make the lane of that name, and the keys that it has."""
        group_key, limit_key, rate_key = names_of(name)
        group = self.groups.get(group_key)
        if group is None:
            group = Group()
            if len(group_key) > 0:
                group.weight = weight_in(self.counted(self.of_group, group_key))
            self.groups[group_key] = group
            self.weights += group.weight
            self.bytes_used += KEY_BYTES + len(group_key)
        group.lanes += 1
        lane = Lane(name, group_key, group, limit_key, rate_key)
        self.lanes[name] = lane
        self.bytes_used += LANE_BYTES + len(name)
        if len(lane.limit) > 0:
            self.known_limit(lane.limit).lanes += 1
        if len(lane.rate) > 0:
            rate = self.rates.get(lane.rate)
            if rate is None:
                keys = unpack(self.counted(self.of_rate, lane.rate))
                rate = Rate(keys, self.empty_ns + keys.burst * keys.gap_ns)
                self.rates[lane.rate] = rate
                self.bytes_used += KEY_BYTES + len(lane.rate)
            rate.lanes += 1
        return lane

    def lane_of(self, task: Task) -> Lane:
        """The lane that the task joins.

        Most tasks of a lane have the same keys. The third task enters their bytes in `by_packed`;
        later tasks find the lane there, and share its entry, or if they have work the bytes.
        """
        packed = keys_of(task)
        lane: Lane | None = None
        if len(self.by_packed) > 0 and len(packed) > 0:
            lane = self.by_packed.get(packed)
        if lane is not None:
            share_keys(task, lane.entry)
            return lane
        name = lane_name(packed)
        lane = self.lanes.get(name)
        if lane is None:
            return self.new_lane(name)
        if lane.count > 1 and len(packed) > 0 and not has_unique(packed):
            shared = JobEntry(packed, None)
            if len(lane.entry.keys) > 0:
                del self.by_packed[lane.entry.keys]
            lane.entry = shared
            self.by_packed[packed] = lane
            share_keys(task, shared)
        return lane

    def drop_lane(self, lane: Lane) -> None:
        """The lane has no READY task any more, and stands nowhere."""
        del self.lanes[lane.name]
        if len(lane.entry.keys) > 0:
            del self.by_packed[lane.entry.keys]
        self.bytes_used -= LANE_BYTES + len(lane.name)
        group = lane.tenant
        group.lanes -= 1
        if group.lanes == 0:
            del self.groups[lane.group]
            self.weights -= group.weight
            self.bytes_used -= KEY_BYTES + len(lane.group)
        if len(lane.limit) > 0:
            limit = self.limit_at(lane.limit)
            limit.lanes -= 1
            self.drop_limit(lane.limit, limit)
        if len(lane.rate) > 0:
            self.rates[lane.rate].lanes -= 1

    def known_limit(self, key: bytes) -> Limit:
        """The limit of that key, made if it is new."""
        limit = self.limits.get(key)
        if limit is None:
            limit = Limit()
            limit.follow(self.counted(self.of_limit, key))
            self.limits[key] = limit
            self.bytes_used += KEY_BYTES + len(key)
        return limit

    def limit_at(self, key: bytes) -> Limit:
        """The limit of that key. Calls in a row mostly ask for the same one."""
        if key is not self.near_key:
            self.near = self.limits[key]
            self.near_key = key
        return self.near

    def drop_limit(self, key: bytes, limit: Limit) -> None:
        """Forget a limit that nobody uses."""
        if limit.lanes == 0 and limit.used == 0 and self.limits.get(key) is limit:
            self.near_key = b""
            del self.limits[key]
            self.bytes_used -= KEY_BYTES + len(key)

    def new_ring(self, where: i64) -> Ring:
        """A ring for lanes that wait."""
        self.bytes_used += RING_BYTES
        return Ring(where, self.groups)

    def drop_ring(self, ring: Ring) -> None:
        """An empty ring goes."""
        self.bytes_used -= RING_BYTES
        self.line.pushes += ring.pushes  # as part of the cost

    def wait_for(self, rate: Rate) -> Ring:
        """The ring of lanes that wait for a token."""
        ring = rate.ring
        if ring is None:
            ring = self.new_ring(IN_RATE)
            rate.ring = ring
        return ring

    # ---- who says what a key means (T40.3)

    def name(self, named: dict[bytes, object], key: bytes, task: Task) -> bool:
        """One more task names the key; whether it is the one that counts now."""
        known = named.get(key)
        if known is None:
            named[key] = task
            self.bytes_used += NAMED_BYTES + len(key)
            return True
        if isinstance(known, Named):
            rows = known
        else:
            rows = Named()
            rows.add(known)
            named[key] = rows
            self.bytes_used += ROWS_BYTES
        rows.add(task)
        self.bytes_used += ROW_BYTES
        return rows.last() is task

    def unname(self, named: dict[bytes, object], key: bytes, task: Task) -> bool:
        """The task is gone; whether another one counts now."""
        rows = named[key]
        if not isinstance(rows, Named):
            assert rows is task, "another task names the key"
            del named[key]
            self.bytes_used -= NAMED_BYTES + len(key)
            return False
        counted = rows.last() is task
        rows.remove(task)
        self.bytes_used -= ROW_BYTES
        if rows.count == 1:
            named[key] = rows.last()
            self.bytes_used -= ROWS_BYTES
        return counted

    def counted(self, named: dict[bytes, object], key: bytes) -> bytes:
        """The bytes of the task that counts for the key."""
        known = named[key]
        last = known.last() if isinstance(known, Named) else known
        return keys_of(cast("Task", last))

    # ---- who waits (T47)

    def note_limit(self, key: bytes, limit: Limit) -> None:
        """Remember since when tasks wait for a place, or that none does."""
        if not limit.waits():
            if limit.since_ms != 0:
                limit.since_ms = 0
                del self.full_limits[key]
        elif limit.since_ms == 0:
            limit.since_ms = self.now_ms
            self.full_limits[key] = None

    def note_rate(self, key: bytes, rate: Rate) -> None:
        """As `note_limit`, of a token."""
        if rate.ring is None:
            if rate.since_ms != 0:
                rate.since_ms = 0
                del self.full_rates[key]
        elif rate.since_ms == 0:
            rate.since_ms = self.now_ms
            self.full_rates[key] = None

    def longest_ms(self, now_ms: i64) -> i64:
        """How long tasks have waited for a place or a token without a break, of all keys."""
        found: i64 = 0
        for limit_key in self.full_limits:
            found = now_ms - self.limits[limit_key].since_ms
            break  # the longest comes first
        for rate_key in self.full_rates:
            waited = now_ms - self.rates[rate_key].since_ms
            return waited if waited > found else found
        return found

    def longest_held(self) -> list[Task]:
        """The next task of the limit, and of the rate, for which tasks have waited longest."""
        lanes: list[Lane | None] = []
        for limit_key in self.full_limits:
            lanes.append(self.limits[limit_key].first())
            break
        for rate_key in self.full_rates:
            ring = self.rates[rate_key].ring
            lanes.append(None if ring is None else ring.first())
            break
        found: list[Task] = []
        for lane in lanes:
            task = None if lane is None else lane.first()
            if task is not None:
                found.append(task)
        return found

    def uncount(self, lane: Lane) -> None:
        """One READY task of the lane was taken, or is gone."""
        if len(lane.group) > 0:
            lane.tenant.tasks -= 1
        if len(lane.limit) > 0:
            self.limit_at(lane.limit).tasks -= 1
        if len(lane.rate) > 0:
            self.rates[lane.rate].tasks -= 1

    def weigh(self, group: Group, weight: i64) -> None:
        """The group has another weight."""
        self.weights += weight - group.weight
        group.weight = weight

    def full_keys(self, first: i64, count: i64) -> list[tuple[i64, bytes]]:
        """[T47] Up to `count` rows from the one of that place on: what each is, and its key."""
        found: list[tuple[i64, bytes]] = []
        for what, keys in ((OF_LIMIT, self.full_limits), (OF_RATE, self.full_rates)):
            for key in islice(keys, int(first), int(first + count - len(found))):
                found.append((what, key))
            first = max(0, first - len(keys))
        for key in islice(self.groups, int(first), int(first + count - len(found))):
            found.append((OF_GROUP, key))
        return found


def weight_in(packed: bytes) -> i64:
    """The weight of its group that a task's bytes have."""
    return i64(read_i32_le(packed, numbers_at(packed)))
