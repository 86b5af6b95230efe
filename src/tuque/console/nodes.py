"""Clients of all nodes of a cluster that are in reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import click

from tuque.client.api import ClusterNode
from tuque.client.sync import Client
from tuque.client.url import url_of
from tuque.console.terminal.format import printable
from tuque.errors import Error
from tuque.nodeoptions import NodeOptions

AWAY: Final = ("handshake", "fail", "fail?", "noaddr")  # flags of nodes that are not asked


@contextmanager
def every_node(node: NodeOptions, is_here: bool, what: str) -> Iterator[list[Client]]:
    """Clients of the node in the options, and of the others; `is_here`: of that node alone.

    ClickException for what a node refuses. A node out of reach is named on standard error; `what`
    of it is left out.
    """
    settings = node.settings()
    with ExitStack() as stack:
        try:
            first = stack.enter_context(Client(node.full_url(), discover=False))
            clients = [first]
            for other in [] if is_here else first.cluster_nodes():
                if "myself" in other.flags:
                    continue
                if is_away(other):
                    place = printable(f"{other.host}:{other.port}")
                    click.echo(f"{place} is unreachable: its {what} are left out", err=True)
                    continue
                url = url_of(settings, other.host, other.port)
                clients.append(stack.enter_context(Client(url, discover=False)))
            yield clients
        except Error as err:
            raise click.ClickException(printable(str(err))) from None


def is_away(node: ClusterNode) -> bool:
    """Whether the node asked has no link to that one.

    One that is silent because its journal fails is there: it answers clients.
    """
    if "journal-fails" in node.flags:
        return not node.connected
    return not node.connected or any(flag in node.flags for flag in AWAY)
