"""Groups of jobs as the leaders of their tubes know them, and the children of one, page by page.

Decides how much is read: lists of groups as those of schedules are, children only those shown.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.aio import Client
from tuque.client.commands.groups import (
    GroupChild,
    GroupStatus,
    JobGroup,
    children_page,
    group_page,
)
from tuque.errors import NoJobGroup
from tuque.web.read.lists import Lists, Thrift
from tuque.web.read.nodes import Node, Nodes
from tuque.web.read.rows import PAGE
from tuque.web.read.tubes import PLANS, first_of

CALLED: Final = "called"
STEPS: Final = 20  # commands for one page of children: each looks at 1,000 of up to 10,000
ChildState: TypeAlias = Literal["", "open", "done", "failed", "dead"]


class GroupRow(msgspec.Struct, frozen=True):
    """A group, and the leader of its tube."""

    node: str
    group: JobGroup

    @property
    def name(self) -> str:
        """Its tube and its id, as filters see it."""
        return f"{self.group.queue} {self.group.id}"


class Read(msgspec.Struct):
    """One list of groups, as it was read last; `is_all`: none has more (O14.28)."""

    rows: list[GroupRow] = []
    is_all: bool = True
    thrift: Thrift = msgspec.field(default_factory=Thrift)
    at: frozenset[str] = frozenset()


class Groups:
    """The groups of all tubes, as they were read last; each at the leader of its tube."""

    def __init__(self, nodes: Nodes, lists: Lists) -> None:
        self._nodes = nodes
        self._lists = lists
        self._kept: dict[bool, Read] = {}

    def expire(self) -> None:
        """They have changed: the next page reads them anew."""
        self._kept.clear()

    async def of(self, queue: str) -> list[GroupRow]:
        """All of one tube, also those that are their callback."""
        both = [await self.every(False), await self.every(True)]
        return [row for read in both for row in read.rows if row.group.queue == queue]

    async def every(self, is_called: bool) -> Read:
        """[O14] Those that are their callback, or all others; open ones first (O14.28)."""
        read = self._kept.setdefault(is_called, Read())
        up = frozenset(node.id for node in self._nodes.up())
        if read.thrift.may() or up != read.at:
            begun_s = time.monotonic()
            listing = await self._lists.of(PLANS)
            names, is_all = list(listing.queues), len(listing.queues) >= listing.total
            state: GroupStatus | None = "called" if is_called else None
            page = partial(group_page, state=state)

            async def question(client: Client) -> tuple[list[JobGroup], bool]:
                return await first_of(client, names, page)

            found = await self._nodes.ask(question) if names else {}
            rows = [GroupRow(id, one) for id, (some, _) in found.items() for one in some]
            read.rows = sorted(rows, key=by_need)
            read.is_all = is_all and all(whole for _, whole in found.values())
            read.at = up
            read.thrift.spent(time.monotonic() - begun_s)
        return read


def by_need(row: GroupRow) -> tuple[bool, int, str]:
    """The order of groups: open ones first, the oldest of them first; then what ended last."""
    one = row.group
    is_open = one.state == "open"
    return not is_open, one.created_ms if is_open else -(one.over_ms or one.created_ms), one.id


class Found(msgspec.Struct, frozen=True):
    """A group, and the node that leads its tube; None: `is_gone`, or no node that answers does."""

    node: Node | None = None
    group: JobGroup | None = None
    is_gone: bool = False


async def group_of(nodes: Nodes, tube: str, id: str) -> Found:
    """One group, as the leader of its tube says now."""

    async def question(client: Client) -> JobGroup | None:
        try:
            return await client.group_show(tube, id)
        except NoJobGroup:
            return None

    found = await nodes.ask(question)  # other nodes name the leader: an error
    for at, group in found.items():
        node = nodes.known.get(at)
        if group is not None and node is not None:
            return Found(node, group)
    return Found(is_gone=bool(found))


class Children(msgspec.Struct, frozen=True):
    """Children of a group from an index on; `then`: where the next page begins, 0: nowhere."""

    rows: list[GroupChild]
    then: int


def counts(group: JobGroup) -> dict[ChildState, int]:
    """How many children there are in each state; "": of those that were added."""
    return {
        "": group.added,
        "open": group.added - group.done - group.failed,
        "done": group.done,
        "failed": group.failed,
        "dead": group.dead,
    }


async def children_of(found: Found, start: int, state: ChildState) -> Children:
    """[O14] A page of the children of a group, of one state if that is given (O14.29)."""
    node, group = found.node, found.group
    if node is None or group is None:
        return Children([], 0)
    known = counts(group)[state]
    rows: list[GroupChild] = []
    cursor = str(start)
    for _ in range(STEPS):
        if len(rows) >= PAGE or (start == 0 and len(rows) >= known):
            break
        page = children_page(
            group.queue,
            group.id,
            cursor,
            count=PAGE - len(rows),
            state=state or None,
        )
        cursor, some = await node.client.run(page)
        rows += some
        if cursor == "0":
            break
    is_over = start == 0 and len(rows) >= known
    return Children(rows, 0 if is_over else int(cursor))
