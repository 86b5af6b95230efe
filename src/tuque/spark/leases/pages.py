"""One part of a leased batch, and the replies with its jobs. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tuque.client.commands.leases import LeaseColumns
from tuque.client.sync import Client
from tuque.client.url import Address
from tuque.spark.leases.nodes import Node
from tuque.spark.options.source import SourceOptions

FETCH_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Part:
    """One part of a batch, and where to read it."""

    address: Address
    epoch: int
    seq: int
    part: int

    def lease(self, group: str) -> str:
        """The value of the column `lease`."""
        return f"{group}/{self.epoch}/{self.seq}"


def pages(options: SourceOptions, node: Node, part: Part) -> Iterator[LeaseColumns]:
    """The replies, as the node sends them."""
    position = 0
    while True:

        def fetch(client: Client, start: int = position) -> LeaseColumns:
            return client.lease_columns(
                options.group,
                part.epoch,
                part.seq,
                part.part,
                start=start,
                count=options.fetch_size,
                max_bytes=FETCH_BYTES,
            )

        page = node.ask(fetch)
        yield page
        position = page.next
        if position >= page.total:
            return
