"""Settings of queues, and when a queue that nobody uses goes (SPEC T74, T75).

Nodes tell each other of changes, as they do of subscriptions. The node of the last SET owns the
queue: it counts how long nobody has used it, asks the others, and deletes it.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import MANY_SETTINGS, SETTINGS_TUBE, TENANT_SETTINGS, Refusal
from tuque.core.msgs.bus import QueueAt, QueuesTold
from tuque.core.msgs.records import QueueSettings
from tuque.core.node.node import Node
from tuque.core.purge import end_all, purge_tick, start
from tuque.core.tables.staged import share_of
from tuque.core.tables.topics import (
    ENDING,
    GONE,
    LIVE,
    OF_QUEUED,
    SETTINGS_MAX,
    Setting,
)
from tuque.core.topics import send_linked, send_to, unsubscribe

MESSAGE_MAX: Final = 500  # settings in one message
EACH_MS: Final = 1_000
GRACE_MS: Final = 3_000  # in which a node may say that it uses the queue
AUTO_MS: Final = 5_000  # without a consumer, once it had one (T75.3)
AUTO_START_MS: Final = 60_000  # after a start of its owner
AUTO_FIRST_MS: Final = 3_600_000  # until it has its first one
KEEP_GONE_MS: Final = 3_600_000


def set_queue(n: Node, wanted: Setting, tenant: bytes = b"") -> tuple[bool, Refusal | None]:
    """[T74] SET: whether it changed anything, or why it is refused (T74.2, T74.3).

    `tenant`: that of the user, if it is of one.
    """
    queue = wanted.queue
    q = n.queues.get(queue)
    if q is not None and q.policy is not None:
        return False, Refusal(SETTINGS_TUBE, (queue,))
    table = n.settings
    known = table.by_queue.get(queue)
    if known is None or known.state == GONE:
        count = len(table.by_queue) - len(table.gone)
        if count >= SETTINGS_MAX:
            return False, Refusal(MANY_SETTINGS, (SETTINGS_MAX,))
        its = table.by_tenant.get(tenant, 0)
        if len(tenant) > 0 and its >= share_of(SETTINGS_MAX, count, its):
            return False, Refusal(TENANT_SETTINGS, (tenant, its))  # N11.8
    if known is not None and known.state == LIVE and known.owner == n.node_id:
        known.used_ms = n.now_ms
        if known.is_same(wanted):
            return False, None
    enter(n, wanted.changed(next_version(n, known), LIVE, n.node_id), 0)
    return True, None


def next_version(n: Node, known: Setting | None) -> i64:
    """The version of a change that is made here."""
    now_ms = max(i64(1), n.now_ms)
    return now_ms if known is None else max(now_ms, known.version + 1)


def enter(n: Node, one: Setting, source: i64) -> None:
    """Keep a version that is new here, and pass it on to all but its source (T74.4)."""
    known = n.settings.by_queue.get(one.queue)
    if known is not None and known.state != GONE:
        note_use(n, known)
        one.used_ms = known.used_ms
        # What is more than one version later is a SET: its owner knows of no use (T75.3).
        one.was_used = known.was_used and (source == 0 or one.version <= known.version + 1)
    one.since_ms = n.now_ms
    one.delivered = n.use_of(one.queue)[0]
    n.settings.put(one)
    if n.records is not None:
        n.records.put(as_record(one))
    while len(n.settings.gone) > SETTINGS_MAX:
        forget(n, next(iter(n.settings.gone)))
    send_linked(n, source, QueuesTold([as_message(one)]))


def as_message(one: Setting) -> QueueAt:
    """The settings as in a message."""
    return QueueAt(
        one.queue,
        int(one.version),
        int(one.state),
        one.owner,
        int(one.expires_ms),
        one.is_auto,
        int(one.ttl_ms),
        int(one.maxlen),
    )


def as_record(one: Setting) -> QueueSettings:
    """The settings as in the journal."""
    return QueueSettings(
        int(one.version),
        one.owner,
        int(one.state),
        int(one.expires_ms),
        one.is_auto,
        one.was_used,
        int(one.ttl_ms),
        int(one.maxlen),
        one.queue,
    )


def setting_in(row: QueueSettings) -> Setting:
    """The settings in the row."""
    one = Setting(
        row.queue,
        row.version,
        row.state,
        row.node,
        row.expires_ms,
        row.is_auto,
        row.ttl_ms,
        row.maxlen,
    )
    one.was_used = row.was_used
    return one


def settings_link_up(n: Node, slot: i64) -> None:
    """[T74] A link came up: send all that is known (T74.4)."""
    known = list(n.settings.by_queue.values())
    for i in range(0, len(known), MESSAGE_MAX):
        send_to(n, slot, QueuesTold([as_message(one) for one in known[i : i + MESSAGE_MAX]]))


def on_queues(n: Node, slot: i64, m: QueuesTold) -> None:
    """[T74] ON RECV QUEUES: take what is newer, or object (T74.4, T75.2)."""
    for at in m.all:
        one = Setting(
            at.queue,
            at.version,
            at.state,
            at.node,
            at.expires_ms,
            at.is_auto,
            at.ttl_ms,
            at.maxlen,
        )
        known = n.settings.by_queue.get(one.queue)
        if not one.beats(known):
            continue
        if one.state != LIVE and is_used(n, one.queue, known):
            enter(n, one.changed(one.version + 1, LIVE, n.node_id), 0)
            continue
        enter(n, one, slot)
        if one.state == GONE and known is not None and known.state != GONE:
            start(n, one.queue, OF_QUEUED)


def is_used(n: Node, queue: bytes, known: Setting | None) -> bool:
    """[T75] Whether somebody consumes the queue here (T75.1)."""
    q = n.queues.get(queue)
    if q is not None and len(q.waiters) > 0:
        return True
    delivered, at_work = n.use_of(queue)
    return known is not None and (at_work > 0 or delivered != known.delivered)


def note_use(n: Node, one: Setting) -> bool:
    """[T75] Whether the queue is used here; if so, it was used now."""
    if not is_used(n, one.queue, one):
        return False
    one.used_ms = n.now_ms
    one.was_used = True
    one.delivered = n.use_of(one.queue)[0]
    return True


def delete_queue(n: Node, queue: bytes, known: Setting) -> None:
    """[T75] The queue goes, with its subscriptions; at all nodes that had its settings (T75.4)."""
    for topic in list(n.topics.by_queue.get(queue, ())):
        unsubscribe(n, topic, queue)
    enter(n, known.changed(known.version, GONE, known.owner), 0)
    start(n, queue, OF_QUEUED)


# ---- TIMER (SPEC T75)


def settings_tick(n: Node) -> None:
    """[T75] TIMER: look at all queues with settings, each second, and delete jobs."""
    table = n.settings
    if n.now_ms < table.next_ms or n.is_loading:
        return
    if n.now_ms >= table.review_ms:
        table.review_ms = n.now_ms + EACH_MS
        for one in list(table.by_queue.values()):
            review(n, one)
    has_more = len(table.purging) > 0 and purge_tick(n)
    table.next_ms = n.now_ms if has_more else table.review_ms


def review(n: Node, one: Setting) -> None:
    """Whether the queue is used, or goes; its first use owns it (T75.2, T75.3, T75.5)."""
    if one.state == GONE:
        if n.now_ms > one.since_ms + KEEP_GONE_MS:
            forget(n, one.queue)
        return
    was_used = one.was_used
    uses = note_use(n, one)
    is_first = uses and one.is_auto and not was_used
    if one.owner == n.node_id:
        if is_first and n.records is not None:
            n.records.put(as_record(one))  # T74.5
        review_own(n, one)
    elif is_first:
        enter(n, one.changed(one.version + 1, LIVE, n.node_id), 0)
    elif is_away(n, one.owner):
        if one.away_ms == 0:
            one.away_ms = n.now_ms
        limit_ms = limit_of(one, True)
        if 0 < limit_ms < n.now_ms - one.away_ms and is_lowest(n):
            enter(n, one.changed(one.version + 1, LIVE, n.node_id), 0)
    else:
        one.away_ms = 0


def review_own(n: Node, one: Setting) -> None:
    """The owner: it asks, then deletes."""
    limit_ms = limit_of(one, False)
    if one.state == ENDING:
        if one.used_ms > one.since_ms:
            enter(n, one.changed(one.version + 1, LIVE, n.node_id), 0)
        elif n.now_ms > one.since_ms + GRACE_MS:
            delete_queue(n, one.queue, one)
    elif 0 < limit_ms < n.now_ms - max(one.used_ms, one.since_ms):
        enter(n, one.changed(one.version, ENDING, n.node_id), 0)


def limit_of(one: Setting, is_of_owner: bool) -> i64:
    """[T75] How long the queue may be unused, or its owner away; 0: for ever (T75.3, T75.5)."""
    limit_ms = one.expires_ms
    if one.is_auto:
        auto_ms = AUTO_MS if one.was_used and not is_of_owner else AUTO_FIRST_MS
        limit_ms = auto_ms if limit_ms == 0 else min(limit_ms, auto_ms)
    return limit_ms


def is_away(n: Node, node_id: bytes) -> bool:
    """Whether that node is not reachable."""
    slot: i64 = n.slot_of.get(node_id, 0)
    return slot == 0 or n.reachable >> slot & 1 == 0


def is_lowest(n: Node) -> bool:
    """Whether no node that is reachable has a lower id."""
    for peer in n.peers:
        if peer.slot != 0 and n.reachable >> peer.slot & 1 and peer.node_id < n.node_id:
            return False
    return True


# ---- The journal (SPEC T74.5)


def restore_settings(n: Node, loaded: dict[bytes, Setting]) -> None:
    """[T74] The journal is loaded; a link may have told newer versions already (T74.5)."""
    for queue, one in loaded.items():
        if one.beats(n.settings.by_queue.get(queue)):
            one.since_ms = n.now_ms
            if one.was_used:
                one.used_ms = n.now_ms + AUTO_START_MS - AUTO_MS  # its consumers come again
            n.settings.put(one)


def forget(n: Node, queue: bytes) -> None:
    """Nothing is known of the queue any more, in the journal too."""
    n.settings.forget(queue)
    if n.records is not None:
        n.records.put(as_record(Setting(queue, 0, LIVE, n.node_id, 0, False)))


def flush_settings(n: Node) -> None:
    """[T74] Forget all here (T74.5)."""
    end_all(n)
    for queue in list(n.settings.by_queue):
        forget(n, queue)
