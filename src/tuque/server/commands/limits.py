"""LIMITS: keys of a tube for which tasks wait, and its groups (SPEC T47)."""

from typing import Final

from tuque.core.model.errors import NO_LIMITS
from tuque.server.replies.errors import core_words
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.tubes.log.leader import needs_home, unheard_refusal
from tuque.tubes.model.errors import TubeError
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.policies.tables import OF_LIMIT, OF_RATE
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError, ranged, twice, wrong_option

WORDS: Final = (b"COUNT", b"CURSOR")
COUNT: Final = 100
COUNT_MAX: Final = 1_000
CURSOR_MAX: Final = 3_000_000  # more rows than a tube has keys
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
ROW_WORK: Final = 5
SKIPPED: Final = 200  # rows that are skipped for a unit of work


def cmd_limits(s: Server, c: Client, args: list[bytes]) -> None:
    """[T47] LIMITS queue [COUNT n] [CURSOR c] (T47.1)."""
    count, cursor = page(args)
    t = tubes_of(s.n)
    tube = t.by_name.get(args[1])
    if tube is None:
        unheard = unheard_refusal(s.n, t)
        if unheard is not None:
            raise ArgError(core_words(unheard))  # T15.5
        raise TubeError(NO_LIMITS, (args[1],))  # T47.4
    needs_home(s.n, t, tube)
    driver = tube.driver
    if not isinstance(driver, Tasks):
        raise TubeError(NO_LIMITS, (tube.name,))
    driver.now_ms = s.n.now_ms
    found = driver.full_keys(cursor, count + 1)
    s.n.work += ROW_WORK * len(found) + cursor // SKIPPED
    after = cursor + count if len(found) > count else 0
    rows: list[object] = []
    for what, key in found[:count]:
        if what == OF_LIMIT:
            rows.append(limit_row(driver, key))
        elif what == OF_RATE:
            rows.append(rate_row(driver, key))
        elif len(key) > 0:  # else tasks without a group
            rows.append(group_row(driver, key))
    c.reply([b"%d" % after, rows])


def page(args: list[bytes]) -> tuple[int, int]:
    """COUNT and CURSOR."""
    count, cursor = COUNT, 0
    said: list[bytes] = []
    for i in range(2, len(args), 2):
        word = args[i].upper()
        if word not in WORDS or i + 1 == len(args):
            raise wrong_option(b"LIMITS", args[i], WORDS)
        if word in said:
            raise twice(word)
        said.append(word)
        if word == b"COUNT":
            count = int(ranged(args[i + 1], 1, COUNT_MAX, BAD_COUNT))
        else:
            cursor = int(ranged(args[i + 1], 0, CURSOR_MAX, BAD_CURSOR))
    return count, cursor


def limit_row(driver: Tasks, key: bytes) -> dict[str, object]:
    """A limit for whose places tasks wait (T47.2)."""
    limit = driver.limits[key]
    lane = limit.first()
    task = None if lane is None else lane.first()
    return {
        "kind": b"limit",
        "key": key,
        "waiting": int(limit.tasks),
        "since-ms": int(limit.since_ms),
        "next-ms": 0 if task is None else int(task.created_ms),
        "places": int(limit.places),
        "used": int(limit.used),
    }


def rate_row(driver: Tasks, key: bytes) -> dict[str, object]:
    """A rate for whose tokens tasks wait (T47.2)."""
    rate = driver.rates[key]
    ring = rate.ring
    lane = None if ring is None else ring.first()
    task = None if lane is None else lane.first()
    tokens = int(rate.tokens(driver.now_ms))
    return {
        "kind": b"rate",
        "key": key,
        "waiting": int(rate.tasks),
        "since-ms": int(rate.since_ms),
        "next-ms": 0 if task is None else int(task.created_ms),
        "token-us": int(rate.gap_ns // 1000),
        "burst": int(rate.burst),
        "tokens": tokens,
        "token-ms": int(rate.token_ms(min(tokens + 1, int(rate.burst)))),
    }


def group_row(driver: Tasks, key: bytes) -> dict[str, object]:
    """A group that has READY tasks (T47.2)."""
    group = driver.groups[key]
    lane = driver.line.first_of(key)
    task = None if lane is None else lane.first()
    return {
        "kind": b"group",
        "key": key,
        "waiting": int(group.tasks),
        "since-ms": 0,
        "next-ms": 0 if task is None else int(task.created_ms),
        "weight": int(group.weight),
        "weights": int(driver.weights),
    }
