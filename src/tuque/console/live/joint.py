"""What tubes of type tasks have besides jobs, for `tuque top`: groups of jobs, and keys.

Decides how much is read: a page of each of the first tubes, at each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from tuque.client.commands.calls import Call
from tuque.client.commands.groups import JobGroup, group_page
from tuque.client.commands.operate import KeyRow, limits_page
from tuque.client.sync import Client
from tuque.errors import ReplyError

T = TypeVar("T")

TUBES: Final = 50  # that are asked
KEYS: Final = 20  # of a tube: those with the longest wait come first
TASKS: Final = "tasks"  # the type of these tubes


def groups_of(client: Client, names: Iterable[str]) -> list[JobGroup]:
    """Groups that are not their callback, of the tubes that this node leads."""
    found = pages(client, names, lambda name: group_page(name, "0"))
    return [one for _, some in found for one in some]


def keys_of(client: Client, names: Iterable[str]) -> list[tuple[str, KeyRow]]:
    """Limits and rates that tasks wait for, each with its tube, of those that this node leads."""
    found = pages(client, names, lambda name: limits_page(name, "0", count=KEYS))
    return [(name, row) for name, some in found for row in some if row.since_ms]


def pages(
    client: Client, names: Iterable[str], page: Callable[[str], Call[tuple[str, list[T]]]]
) -> list[tuple[str, list[T]]]:
    """A page of each tube that this node leads; of another one it names the leader."""
    wanted = list(names)[:TUBES]
    found: list[tuple[str, list[T]]] = []
    replies: list[Any] = client.run_all([page(name) for name in wanted]) if wanted else []
    for name, reply in zip(wanted, replies, strict=True):
        if isinstance(reply, tuple):
            found.append((name, reply[1]))
        elif not isinstance(reply, ReplyError):
            raise reply
    return found
