"""Lanes that stand in line, one line for each group; the groups take turns (SPEC T43).

Deficit round robin: a group that comes to the head may send `weight` lanes, then goes to the tail.
One that has no lane left loses the rest of its turn.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from tuque.tubes.keys.lane import SLACK, SPENT, Group, Lane, Line

# where a lane stands; each is its own ring
IN_LIMIT: Final = 1
IN_RATE: Final = 2
IN_READY: Final = 3


@mypyc_attr(acyclic=True)
class Ring:
    """Lines of groups. `groups` is the table of all groups, shared by all rings of a tube."""

    def __init__(self, where: i64, groups: dict[bytes, Group]) -> None:
        self.where = where
        self.groups = groups
        self.lines: dict[bytes, Line] = {}
        self.order: list[Line] = []  # from `at` on; some may be empty
        self.at: i64 = 0
        self.count: i64 = 0  # lanes that stand here
        self.pushes: i64 = 0  # how often a lane was put into a line: the cost

    def add(self, lane: Lane) -> None:
        """The lane stands here from now on."""
        line = self.lines.get(lane.group)
        if line is None:
            line = Line(lane.group)
            self.lines[lane.group] = line
            self.order.append(line)
        lane.stands = self.where
        line.count += 1
        self.count += 1
        self.pushes += 1
        line.add(lane)

    def moved(self, lane: Lane) -> None:
        """The first task of a lane that stands here is another one."""
        line = self.lines[lane.group]
        self.pushes += 1
        line.remove(lane)
        line.add(lane)

    def leave(self, lane: Lane) -> Line:
        """The lane goes; `settle` follows."""
        line = self.lines[lane.group]
        line.remove(lane)
        line.count -= 1
        self.count -= 1
        lane.stands = 0
        return line

    def again(self, lane: Lane) -> None:
        """The lane whose turn it was has lost its first task, and stays here with the next one."""
        line = self.lines[lane.group]
        lane.look()
        self.pushes += 1
        if line.count == 1 and lane.place >= 0:
            line.last_pri = lane.pri
            line.last_number = lane.number
        else:
            line.remove(lane)
            line.add(lane)
        self.spent(line)

    def settle(self, line: Line) -> None:
        """Drop the line if it is empty: its group loses the rest of its turn."""
        if line.count > 0 or self.lines.get(line.group) is not line:
            return
        del self.lines[line.group]
        line.items.clear()
        if len(self.order) - self.at > 2 * len(self.lines) + SLACK:
            self.order = [one for one in self.order[self.at :] if one.count > 0]
            self.at = 0

    def head(self) -> Line | None:
        """The line whose turn it is."""
        while self.at < len(self.order):
            line = self.order[self.at]
            if line.count > 0:
                if line.deficit <= 0:
                    line.deficit = self.groups[line.group].weight
                return line
            self.advance()
        return None

    def advance(self) -> None:
        """The head of the ring is no longer the head."""
        self.at += 1
        if self.at >= SPENT and self.at * 2 >= len(self.order):
            del self.order[: self.at]
            self.at = 0

    def first(self) -> Lane | None:
        """The lane whose turn it is; changes nothing that is visible."""
        line = self.head()
        return None if line is None else line.top()

    def first_of(self, group: bytes) -> Lane | None:
        """The first lane of one group, whoever's turn it is."""
        line = self.lines.get(group)
        return None if line is None else line.top()

    def spent(self, line: Line) -> None:
        """A lane of the head went its way: its group has used one of its turn."""
        line.deficit -= 1
        if line.count == 0:
            self.settle(line)
        elif line.deficit <= 0 and self.order[self.at] is line:
            self.order.append(line)
            self.advance()
