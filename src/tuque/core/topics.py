"""Topics: subscriptions, on which nodes agree, and TOPIC ADD (SPEC T60-T62)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.copies.add import (
    make_job,
    memory_refusal,
    must_be_external,
    on_addjob,
)
from tuque.core.model.errors import (
    KEY_WAITS,
    MANY_PATTERNS,
    NOREPL_LEAVING,
    SUBSCRIPTIONS_FULL,
    TENANT_TOPICS,
    TOPIC_FULL,
    TOPICS_UNHEARD,
    Refusal,
)
from tuque.core.model.job import AddSpec, Job
from tuque.core.model.stats import tenant_of
from tuque.core.msgs.bus import AnyMessage, SubscriptionAt, TopicsTold
from tuque.core.msgs.records import TopicKeys, TopicRow, topic_row
from tuque.core.node.node import Node
from tuque.core.node.peers import say
from tuque.core.node.tables import record_job
from tuque.core.queues.dedupe import (
    keep_key,
    kept_key,
    keys_refusal,
    must_wait,
    on_copies,
)
from tuque.core.staged.publish import COPIES_MS, await_copies, send_some
from tuque.core.tables.dedupe_keys import full_key
from tuque.core.tables.staged import Publishing, share_of
from tuque.core.tables.topics import (
    GONE_MAX,
    OF_TOPIC_MAX,
    PATTERNS_MAX,
    SUBSCRIPTIONS_MAX,
    Subscription,
)

MESSAGE_MAX: Final = 500  # subscriptions in one message


def subscribe(
    n: Node,
    topic: bytes,
    queue: bytes,
    filters: list[bytes],
    tenant: bytes = b"",
    key: bytes | None = None,
) -> tuple[bool, Refusal | None]:
    """[T61, T63] SUBSCRIBE: whether it changed anything, or why it is refused (T61.1, T60.2).

    `tenant`: that of the user, if it is of one. `key`: one pattern more (T63.2).
    """
    known = n.topics.find(topic, queue)
    keys: list[bytes] = []
    if key is not None:
        keys = [] if known is None or known.is_gone else [one for one in known.keys if one != key]
        keys.append(key)
        if known is not None and not known.is_gone and key in known.keys:
            keys = known.keys
        if len(keys) > PATTERNS_MAX:
            return False, Refusal(MANY_PATTERNS, (queue, PATTERNS_MAX, topic))
    if known is not None and not known.is_gone and known.filters == filters:
        if known.keys == keys:
            return False, None
    if known is None or known.is_gone:
        count = len(n.topics.by_topic.get(topic, {}))
        if count >= OF_TOPIC_MAX:
            return False, Refusal(TOPIC_FULL, (topic, count))
        if n.topics.count >= SUBSCRIPTIONS_MAX:
            return False, Refusal(SUBSCRIPTIONS_FULL, (n.topics.count,))
        its = n.topics.by_tenant.get(tenant, 0) if len(tenant) > 0 else 0
        if len(tenant) > 0 and its >= share_of(SUBSCRIPTIONS_MAX, n.topics.count, its):
            return False, Refusal(TENANT_TOPICS, (tenant, its))  # N11.8
    next_version(n, Subscription(topic, queue, filters, 1, n.node_id, False, keys), known)
    return True, None


def unsubscribe(n: Node, topic: bytes, queue: bytes, key: bytes | None = None) -> bool:
    """[T61] UNSUBSCRIBE: whether there was such a subscription (T61.2); with its last pattern it
    goes as well (T63.2).
    """
    known = n.topics.find(topic, queue)
    if known is None or known.is_gone or (key is not None and key not in known.keys):
        return False
    if key is not None and len(known.keys) > 1:
        keys = [one for one in known.keys if one != key]
        fresh = Subscription(topic, queue, known.filters, 1, n.node_id, False, keys)
        next_version(n, fresh, known)
        return True
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
        n.records.put(topic_row(one))  # T60.6
        if len(one.keys) > 0:
            n.records.put(TopicKeys(one.topic, one.queue, one.keys))
    forget_oldest(n)
    send_linked(n, teller, TopicsTold([as_told(one)]))


def send_linked(n: Node, source: i64, m: AnyMessage) -> None:
    """Send the change to all linked nodes but the one that it came from."""
    for peer in n.peers:
        if peer.slot != source and peer.is_linked:
            send_to(n, peer.slot, m)


def send_to(n: Node, slot: i64, m: AnyMessage) -> None:
    """Send it to the node."""
    say(n, slot, m)


def forget_oldest(n: Node) -> None:
    """Keep no more removals than there may be (T60.5)."""
    while len(n.topics.gone) > GONE_MAX:
        topic, queue = n.topics.oldest_gone()
        forget_one(n, topic, queue)


def forget_one(n: Node, topic: bytes, queue: bytes) -> None:
    """Nothing is known of it any more, in the journal too."""
    n.topics.forget(topic, queue)
    if n.records is not None:
        n.records.put(TopicRow(0, n.node_id, 1, topic, queue, []))


def as_told(one: Subscription) -> SubscriptionAt:
    """The subscription as in a message."""
    return SubscriptionAt(
        one.topic, one.queue, one.filters, int(one.version), one.node, one.is_gone, one.keys
    )


def topics_link_up(n: Node, slot: i64) -> None:
    """[T60] A link came up: send all that is known (T60.4).

    The last message is not a full one: the other node knows then that it has all (T60.8).
    """
    n.topics.heard &= ~(1 << slot)
    known = n.topics.known()
    for i in range(0, len(known) + 1, MESSAGE_MAX):
        send_to(n, slot, TopicsTold([as_told(one) for one in known[i : i + MESSAGE_MAX]]))


def on_topics(n: Node, slot: i64, m: TopicsTold) -> None:
    """[T60] ON RECV TOPICS: take what is newer (T60.4, T60.5)."""
    if len(m.all) < MESSAGE_MAX:
        n.topics.heard |= 1 << slot
    for at in m.all:
        one = Subscription(at.topic, at.queue, at.filters, at.version, at.node, at.is_gone, at.keys)
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


# ---- TOPIC ADD: a job for each queue that is subscribed, all of them or none (SPEC T62)
#
# The caller has checked each of them. All are added in one turn: their records are one frame.


@final
class Share:
    """What one queue gets of an ADD."""

    def __init__(self, one: Subscription, spec: AddSpec) -> None:
        self.one = one
        self.spec = spec
        self.known = b""  # the id of the job that has the DEDUPE key already


def unheard_refusal(n: Node) -> Refusal | None:
    """[T60] Why a node that has just started adds to no topic yet (T60.8)."""
    if len(n.peers) <= 1 or n.now_ms >= n.topics.begun_ms + n.limits.node_timeout_ms:
        return None
    is_informed = n.topics.heard != 0 and (n.linked & ~n.topics.heard & ~1) == 0
    return None if is_informed else Refusal(TOPICS_UNHEARD)


def node_refusal(n: Node) -> Refusal | None:
    """[T62] Why this node takes no jobs at all now (T62.2)."""
    if not must_be_external(n):
        return None
    return Refusal(NOREPL_LEAVING) if n.is_leaving else memory_refusal(n)


def find_known(n: Node, shares: list[Share], key: bytes) -> Refusal | None:
    """[T62] Find the jobs that have the key; or why the ADD is refused (T62.6)."""
    if len(key) == 0:
        return None
    fresh: i64 = 0
    for x in shares:
        full = full_key(x.one.queue, key)
        kept = kept_key(n, x.one.queue, full)
        if kept is None:
            running = n.staging.running
            if running is not None and running.is_decided and full in running.fresh:
                return Refusal(KEY_WAITS, (key,))
            fresh += 1
        elif must_wait(n, kept.id):
            return Refusal(KEY_WAITS, (key,))
        else:
            x.known = kept.id
    return keys_refusal(n, fresh, tenant_of(shares[0].one.topic)) if fresh > 0 else None


def add_all(
    n: Node, shares: list[Share], body: bytes, client: i64, serial: i64, timeout_ms: i64
) -> tuple[list[bytes], Publishing | None]:
    """[T62] Add the jobs (T62.3): their ids, and what waits for copies; the reply then comes
    through n.added.
    """
    ids: list[bytes] = []
    waiting: list[Job] = []
    added: i64 = 0
    p = Publishing(b"", 0)
    for x in shares:
        if len(x.known) > 0:
            n.keys.hits += 1
            ids.append(x.known)
            continue
        job = begin_one(n, p, x, body, waiting)
        ids.append(job.id)
        added += 1
        x.one.jobs += 1
        if len(x.spec.key) > 0:
            keep_key(n, x.one.queue, x.spec.key, x.spec.key_ttl_ms, job, False)
    n.topics.adds += 1
    n.topics.jobs += added
    if len(waiting) == 0:
        return ids, None
    p.client = client
    p.serial = serial
    p.count = added
    p.told = ids
    p.until_ms = n.now_ms + COPIES_MS
    p.end_ms = n.now_ms + timeout_ms if timeout_ms > 0 else 0
    p.left += 1
    n.staging.publishing.append(p)
    send_some(n, p)
    on_copies(n, p)
    return ids, p


def begin_one(n: Node, p: Publishing, x: Share, body: bytes, waiting: list[Job]) -> Job:
    """Add one of them; it may wait for copies (T62.5)."""
    spec = x.spec
    q = n.queues.get(x.one.queue)
    is_tube = q is not None and q.policy is not None
    if is_tube or spec.replicate <= 1 or spec.is_async or len(n.peers) <= 1:
        return on_addjob(n, x.one.queue, body, spec)
    job = make_job(n, x.one.queue, body, spec)
    await_copies(n, p, job)
    n.adding[job.id].delay_ms = spec.delay_ms
    record_job(n, job)
    waiting.append(job)
    return job
