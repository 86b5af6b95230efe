"""Since when queues are behind, as far as looks at the nodes, their points and ages say it.

Decides which of these counts: points end with a restart of their node, and jobs of a node that is
away are not seen. Asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tuque.web.read.figures import Queue, View
from tuque.web.read.history import Points

BEHIND_S: Final = 60.0  # a queue whose oldest ready job is older is behind
NEAR_S: Final = 15.0  # three points: what lies so near is one moment
WELL_S: Final = 60.0  # so long a queue must be well until it is behind no longer
KEPT_S: Final = 3600.0  # how long one that was behind is remembered


class Since(msgspec.Struct, frozen=True):
    """A moment (unix s, by the nodes' clocks) from which on a queue is behind.

    `is_seen`: just before it the queue was seen not to be; else it may be so for longer.
    """

    at_s: float
    is_seen: bool


class Behind:
    """Which queues are behind, at each look at all nodes; since when."""

    def __init__(self) -> None:
        self._since: dict[str, Since] = {}
        self._ended: dict[str, tuple[float, Since]] = {}  # when they were seen not to be
        self._looked_s = 0.0  # the last look at all nodes

    def look(self, view: View, points: Mapping[str, Points]) -> None:
        """[O14] Keeps what is seen now, and what points of queues say while they do (O14.6)."""
        now_s = view.clock_s
        late = {one.name: one for one in view.work if one.oldest_s > BEHIND_S}
        for name, queue in late.items():
            least_s = late_s(queue, now_s)
            found = self._since.get(name) or self._again(name, least_s, now_s)
            if found is None or (least_s < found.at_s - NEAR_S and not found.is_seen):
                is_seen = abs(least_s - self._looked_s) <= NEAR_S and found is None
                found = Since(least_s, is_seen)
            self._since[name] = found
            self._since[name] = self.of(queue, points.get(name, Points()), view)
        if view.old:
            return  # a queue may be behind at a node that was not asked
        for name in [one for one in self._since if one not in late]:
            self._ended[name] = (now_s, self._since.pop(name))
        for name in [one for one, (at_s, _) in self._ended.items() if at_s < now_s - KEPT_S]:
            del self._ended[name]
        if view.facts:
            self._looked_s = now_s

    def knows(self, name: str) -> bool:
        """Whether a queue was behind at the last look at all nodes, or is since."""
        return name in self._since

    def _again(self, name: str, least_s: float, now_s: float) -> Since | None:
        """What was known of a queue before it seemed to be well.

        None if it was well for long, and its oldest job is younger than that.
        """
        at_s, found = self._ended.pop(name, (0.0, Since(0.0, False)))
        return found if least_s <= at_s or now_s - at_s < WELL_S else None

    def of(self, queue: Queue, points: Points, view: View) -> Since:
        """[O14] Since when a queue is behind that is: the earliest that is known (O14.6).

        It was well before a moment that was seen: an older job came back since.
        """
        found = [Since(late_s(queue, view.clock_s), False)]
        if queue.name in self._since:
            found.append(self._since[queue.name])
        level = points.above_since_s("oldest-ms", BEHIND_S * 1000)
        if level is not None:
            at = points.at_s.index(level)
            before_s = points.at_s[at - 1] if at else 0.0
            is_heard = view.old <= {one.id for one in view.facts}
            is_seen = is_heard and before_s > max(level - NEAR_S, *begun_s(view))
            found.append(Since(level, is_seen))
        seen = [one for one in found if one.is_seen]
        return min(seen or found, key=lambda one: one.at_s)


def late_s(queue: Queue, now_s: float) -> float:
    """Since when at least a queue is behind: its oldest job has been late since."""
    return now_s - (queue.oldest_s - BEHIND_S)


def begun_s(view: View) -> list[float]:
    """When the nodes began: they have no points from before."""
    return [one.clock_s - one.number("uptime_in_seconds") for one in view.facts]
