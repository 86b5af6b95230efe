"""The message about subscriptions to topics (SPEC T60.4)."""

from __future__ import annotations

from typing import Final

from tuque.core.msgs.base import Message
from tuque.core.state.topics import (
    FILTERS_MAX,
    GLOB_MAX,
    NAME_MAX,
    QUEUE_MAX,
    TOPIC_MAX,
    VERSION_MAX,
)

ID_BYTES: Final = 40


class SubscriptionAt(Message):
    """One version of a subscription, or its removal."""

    topic: bytes
    queue: bytes
    filters: list[bytes]  # names and patterns in turn
    version: int
    node: bytes  # where this version was made
    is_gone: bool


class TopicsTold(Message, tag=60):
    """Subscriptions that the sender knows: all of them, or those that changed (T60.4)."""

    all: list[SubscriptionAt]


def are_subscriptions(m: TopicsTold) -> bool:
    """Whether each is one that a client can have made (T60.2, T60.3)."""
    for one in m.all:
        if not 1 <= len(one.topic) <= TOPIC_MAX or not 1 <= len(one.queue) <= QUEUE_MAX:
            return False
        if not 0 < one.version <= VERSION_MAX or len(one.node) != ID_BYTES:
            return False
        if len(one.filters) % 2 != 0 or len(one.filters) > 2 * FILTERS_MAX:
            return False
        for i in range(len(one.filters)):
            if not 1 <= len(one.filters[i]) <= (NAME_MAX if i % 2 == 0 else GLOB_MAX):
                return False
    return True
