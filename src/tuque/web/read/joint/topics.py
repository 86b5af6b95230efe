"""Topics as the nodes know them: each subscription once, with the jobs that came over all nodes."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from tuque.aio import Client
from tuque.client.commands.topics import Subscription, topic_page
from tuque.web.read.lists import Thrift
from tuque.web.read.nodes import Nodes

STEP: Final = 1_000  # subscriptions of one reply
STEPS: Final = 10  # a node knows 10,000


class SubscriptionRow(msgspec.Struct):
    """A queue that gets the jobs of a topic; `jobs` came by ADDs at all nodes that answer."""

    topic: str
    queue: str
    filters: dict[str, str]
    jobs: int

    @property
    def name(self) -> str:
        """Its topic and its queue, as filters of the page see it."""
        return f"{self.topic} {self.queue}"


class Topics:
    """All subscriptions, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._rows: list[SubscriptionRow] = []
        self._thrift = Thrift()
        self._read_at: frozenset[str] = frozenset()

    def expire(self) -> None:
        """They have changed: the next page reads them anew."""
        self._thrift = Thrift()

    async def every(self) -> list[SubscriptionRow]:
        """[O14] All that nodes know, by topic and queue (O14.32)."""
        up = frozenset(node.id for node in self._nodes.up())
        if self._thrift.may() or up != self._read_at:
            begun_s = time.monotonic()
            found: dict[tuple[str, str], SubscriptionRow] = {}
            for some in (await self._nodes.ask(all_at)).values():
                for one in some:
                    add(found, one)
            self._rows = [found[at] for at in sorted(found)]
            self._read_at = up
            self._thrift.spent(time.monotonic() - begun_s)
        return self._rows


def add(found: dict[tuple[str, str], SubscriptionRow], one: Subscription) -> None:
    """Count what one node says of a subscription."""
    row = found.setdefault(
        (one.topic, one.queue), SubscriptionRow(one.topic, one.queue, one.filters, 0)
    )
    row.jobs += one.jobs


async def all_at(client: Client) -> list[Subscription]:
    """The subscriptions that a node knows."""
    rows: list[Subscription] = []
    cursor = "0"
    for _ in range(STEPS):
        cursor, some = await client.run(topic_page(cursor, count=STEP))
        rows += some
        if cursor == "0":
            break
    return rows
