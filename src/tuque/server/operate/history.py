"""HISTORY: points of the past (SPEC O3)."""

from __future__ import annotations

from typing import Final

from tuque.core.model.stats import BOUNDS
from tuque.server.figures.rings import Points
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.commands.arguments import FIELDS, ArgError, history_args
from tuque.wire.proto.resp import NULL_ARRAY

NO_SUMS: Final = b"NOPERM the points of the whole node are not for users of a tenant: name a QUEUE"


def cmd_history(s: Server, c: Client, args: list[bytes]) -> None:
    """[O3] HISTORY 5s|1m [QUEUE name | TIMES what] [FROM ms] [COUNT n] [field ...] | QUEUES."""
    asked = history_args(args)
    if asked.step_ms == 0:
        c.reply(sorted(c.named(name) for name in with_points(s) if c.sees(name)))  # O3.5
        return
    if asked.queue is None and c.is_tenant():
        raise ArgError(NO_SUMS)  # N10.5
    points: Points | None = s.watch.points
    names: list[object] = [FIELDS[field] for field in asked.fields if asked.times == b""]
    if asked.times != b"":
        points = s.watch.waits if asked.times == b"wait" else s.watch.works
        names = list(BOUNDS)  # O3.7
    if asked.queue is not None:
        points = with_points(s).get(asked.queue)  # O3.4
    if points is None:
        c.reply(NULL_ARRAY)
        return
    rows = points.ring(asked.step_ms).points(asked.from_ms, asked.count, asked.fields)
    s.n.work += 10 + len(rows) * (len(asked.fields) + 1) // 10
    c.reply([int(asked.step_ms), names, rows])


def with_points(s: Server) -> dict[bytes, Points]:
    """The queues that have points: the first `rings-queues` of those watched."""
    found: dict[bytes, Points] = {}
    for name, watched in s.watch.watched.items():
        if len(found) >= s.cfg.rings_queues:
            break
        found[name] = watched.points
    return found
