"""Subscriptions to topics: made, removed, and agreed on with other nodes (SPEC T60, T61)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.refusal import SUBSCRIPTIONS_FULL, TENANT_TOPICS, TOPIC_FULL, Refusal
from tuque.core.msgs.topics import SubscriptionAt, TopicsTold
from tuque.core.node.node import Node
from tuque.core.node.slots import say
from tuque.core.outbox.topic_records import tell_topic
from tuque.core.state.shares import FAIR
from tuque.core.state.topics import (
    GONE_MAX,
    OF_TOPIC_MAX,
    SUBSCRIPTIONS_MAX,
    Subscription,
)

MESSAGE_MAX: Final = 500  # subscriptions in one message


def subscribe(
    n: Node, topic: bytes, queue: bytes, filters: list[bytes], tenant: bytes = b""
) -> tuple[bool, Refusal | None]:
    """[T61] SUBSCRIBE: whether it changed anything, or why it is refused (T61.1, T60.2).

    `tenant`: that of the user, if it is of one.
    """
    known = n.topics.find(topic, queue)
    if known is not None and not known.is_gone and known.filters == filters:
        return False, None
    if known is None or known.is_gone:
        count = len(n.topics.by_topic.get(topic, {}))
        if count >= OF_TOPIC_MAX:
            return False, Refusal(TOPIC_FULL, (topic, count))
        if n.topics.count >= SUBSCRIPTIONS_MAX:
            return False, Refusal(SUBSCRIPTIONS_FULL, (n.topics.count,))
        its = n.topics.by_tenant.get(tenant, 0) if len(tenant) > 0 else 0
        if its * FAIR >= SUBSCRIPTIONS_MAX:
            return False, Refusal(TENANT_TOPICS, (tenant, its))  # N11.8
    next_version(n, Subscription(topic, queue, filters, 1, n.node_id, False), known)
    return True, None


def unsubscribe(n: Node, topic: bytes, queue: bytes) -> bool:
    """[T61] UNSUBSCRIBE: whether there was such a subscription (T61.2)."""
    known = n.topics.find(topic, queue)
    if known is None or known.is_gone:
        return False
    next_version(n, Subscription(topic, queue, [], 1, n.node_id, True), known)
    return True


def next_version(n: Node, one: Subscription, known: Subscription | None) -> None:
    """[T60] A change that a client made here (T60.4)."""
    one.version = max(1, n.now_ms)
    if known is not None:
        one.version = max(one.version, known.version + 1)
        one.jobs = known.jobs
    take(n, one, 0)


def take(n: Node, one: Subscription, teller: i64) -> None:
    """Keep a version that is new here, and pass it on to all but its teller (T60.4)."""
    n.topics.put(one)
    if n.records is not None:
        tell_topic(n.records, one)  # T60.6
    forget_oldest(n)
    for peer in n.peers:
        if peer.slot != teller and peer.is_linked:
            say(n, peer.slot, TopicsTold([as_told(one)]))


def forget_oldest(n: Node) -> None:
    """Keep no more removals than there may be (T60.5)."""
    while len(n.topics.gone) > GONE_MAX:
        topic, queue = n.topics.oldest_gone()
        forget_one(n, topic, queue)


def forget_one(n: Node, topic: bytes, queue: bytes) -> None:
    """Nothing is known of it any more, in the journal too."""
    n.topics.forget(topic, queue)
    if n.records is not None:
        tell_topic(n.records, Subscription(topic, queue, [], 0, n.node_id, True))


def as_told(one: Subscription) -> SubscriptionAt:
    """The subscription as in a message."""
    return SubscriptionAt(
        one.topic, one.queue, one.filters, int(one.version), one.node, one.is_gone
    )


def topics_link_up(n: Node, slot: i64) -> None:
    """[T60] A link came up: send all that is known (T60.4).

    The last message is not a full one: the other node knows then that it has all (T60.8).
    """
    n.topics.heard &= ~(1 << slot)
    known = n.topics.known()
    for i in range(0, len(known) + 1, MESSAGE_MAX):
        say(n, slot, TopicsTold([as_told(one) for one in known[i : i + MESSAGE_MAX]]))


def on_topics(n: Node, slot: i64, m: TopicsTold) -> None:
    """[T60] ON RECV TOPICS: take what is newer (T60.4, T60.5)."""
    if len(m.all) < MESSAGE_MAX:
        n.topics.heard |= 1 << slot
    for at in m.all:
        one = Subscription(at.topic, at.queue, at.filters, at.version, at.node, at.is_gone)
        known = n.topics.find(one.topic, one.queue)
        if one.beats(known):
            if known is not None:
                one.jobs = known.jobs
            take(n, one, slot)


def restore_topics(n: Node, loaded: dict[tuple[bytes, bytes], Subscription]) -> None:
    """[T60] The journal is loaded; a link may have told newer versions already (T60.6)."""
    for key, one in loaded.items():
        if one.beats(n.topics.find(key[0], key[1])):
            n.topics.put(one)
    forget_oldest(n)
    n.topics.begun_ms = n.now_ms


def flush_topics(n: Node) -> None:
    """[T60] Forget all here (T60.7)."""
    for one in n.topics.known():
        forget_one(n, one.topic, one.queue)


def topic_figures(n: Node) -> dict[str, object]:
    """[T62] Figures for INFO (T62.9)."""
    topics = n.topics
    return {
        "topics": len(topics.by_topic),
        "topic_subscriptions": int(topics.count),
        "topic_removals": len(topics.gone),
        "topic_bytes": int(topics.bytes),
        "topic_adds": int(topics.adds),
        "topic_jobs": int(topics.jobs),
        "topic_adds_unheard": int(topics.unheard),
    }
