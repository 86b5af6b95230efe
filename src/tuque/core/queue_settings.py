"""Settings of queues, and when a queue that nobody uses goes (SPEC T74, T75).

Nodes tell each other of changes, as they do of subscriptions. The node of the last SET owns the
queue: it counts how long nobody has used it, asks the others, and deletes it.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack import ack_job
from tuque.core.model.errors import MANY_SETTINGS, SETTINGS_TUBE, TENANT_SETTINGS, Refusal
from tuque.core.msgs.bus import QueueAt, QueuesTold
from tuque.core.msgs.records import QueueSettings
from tuque.core.node.node import Node
from tuque.core.tables.staged import share_of
from tuque.core.tables.topics import (
    ENDING,
    GONE,
    LIVE,
    SETTINGS_MAX,
    Setting,
)
from tuque.core.topics import send_linked, send_to, unsubscribe

MESSAGE_MAX: Final = 500  # settings in one message
EACH_MS: Final = 1_000
GRACE_MS: Final = 3_000  # in which a node may say that it uses the queue
AUTO_MS: Final = 5_000  # without a consumer, once it had one (T75.3)
AUTO_FIRST_MS: Final = 3_600_000  # until it has its first one
KEEP_GONE_MS: Final = 3_600_000
PURGED: Final = 500  # jobs of a deleted queue that go in a look


def set_queue(
    n: Node, queue: bytes, expires_ms: i64, is_auto: bool, tenant: bytes = b""
) -> tuple[bool, Refusal | None]:
    """[T74] SET: whether it changed anything, or why it is refused (T74.2, T74.3).

    `tenant`: that of the user, if it is of one.
    """
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
        if known.expires_ms == expires_ms and known.is_auto == is_auto:
            return False, None
    enter(n, Setting(queue, next_version(n, known), LIVE, n.node_id, expires_ms, is_auto), 0)
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
        one.queue, int(one.version), int(one.state), one.owner, int(one.expires_ms), one.is_auto
    )


def as_record(one: Setting) -> QueueSettings:
    """The settings as in the journal."""
    return QueueSettings(
        int(one.version), one.owner, int(one.state), int(one.expires_ms), one.is_auto, one.queue
    )


def settings_link_up(n: Node, slot: i64) -> None:
    """[T74] A link came up: send all that is known (T74.4)."""
    known = list(n.settings.by_queue.values())
    for i in range(0, len(known), MESSAGE_MAX):
        send_to(n, slot, QueuesTold([as_message(one) for one in known[i : i + MESSAGE_MAX]]))


def on_queues(n: Node, slot: i64, m: QueuesTold) -> None:
    """[T74] ON RECV QUEUES: take what is newer, or object (T74.4, T75.2)."""
    for at in m.all:
        one = Setting(at.queue, at.version, at.state, at.node, at.expires_ms, at.is_auto)
        known = n.settings.by_queue.get(one.queue)
        if not one.beats(known):
            continue
        if one.state != LIVE and is_used(n, one.queue, known):
            enter(
                n,
                Setting(one.queue, one.version + 1, LIVE, n.node_id, one.expires_ms, one.is_auto),
                0,
            )
            continue
        enter(n, one, slot)
        if one.state == GONE and known is not None and known.state != GONE:
            n.settings.purging[one.queue] = None


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
    owner = known.owner
    enter(n, Setting(queue, known.version, GONE, owner, known.expires_ms, known.is_auto), 0)
    n.settings.purging[queue] = None


# ---- TIMER (SPEC T75)


def settings_tick(n: Node) -> None:
    """[T75] TIMER: look at all queues with settings, each second, and delete jobs."""
    table = n.settings
    if n.now_ms < table.next_ms or n.is_loading:
        return
    table.next_ms = n.now_ms + (EACH_MS if len(table.purging) == 0 else EACH_MS // 10)
    for one in list(table.by_queue.values()):
        review(n, one)
    room = PURGED
    for queue in list(table.purging):
        room -= purge(n, queue, room)
        if room <= 0:
            return
        del table.purging[queue]


def purge(n: Node, queue: bytes, most: i64) -> i64:
    """Acknowledge up to so many jobs that are queued here; returns how many."""
    q = n.queues.get(queue)
    done: i64 = 0
    while q is not None and q.policy is None and done < most and q.length > 0:
        job = q.first()
        if job is None:
            break
        ack_job(n, job, -1)
        done += 1
        q = n.queues.get(queue)
    return done


def review(n: Node, one: Setting) -> None:
    """Whether the queue is used, or goes; its first use owns it (T75.2, T75.3, T75.5)."""
    if one.state == GONE:
        if n.now_ms > one.since_ms + KEEP_GONE_MS:
            forget(n, one.queue)
        return
    was_used = one.was_used
    uses = note_use(n, one)
    if one.owner == n.node_id:
        review_own(n, one)
    elif uses and one.is_auto and not was_used:
        made = Setting(one.queue, one.version + 1, LIVE, n.node_id, one.expires_ms, one.is_auto)
        enter(n, made, 0)
    elif is_away(n, one.owner):
        if one.away_ms == 0:
            one.away_ms = n.now_ms
        if n.now_ms > one.away_ms + limit_of(one, True) and is_lowest(n):
            made = Setting(one.queue, one.version + 1, LIVE, n.node_id, one.expires_ms, one.is_auto)
            enter(n, made, 0)
    else:
        one.away_ms = 0


def review_own(n: Node, one: Setting) -> None:
    """The owner: it asks, then deletes."""
    if one.state == ENDING:
        if one.used_ms > one.since_ms:
            owner, version = n.node_id, one.version + 1
            enter(n, Setting(one.queue, version, LIVE, owner, one.expires_ms, one.is_auto), 0)
        elif n.now_ms > one.since_ms + GRACE_MS:
            delete_queue(n, one.queue, one)
    elif n.now_ms > max(one.used_ms, one.since_ms) + limit_of(one, False):
        made = Setting(one.queue, one.version, ENDING, n.node_id, one.expires_ms, one.is_auto)
        enter(n, made, 0)


def limit_of(one: Setting, is_of_owner: bool) -> i64:
    """[T75] How long the queue may be unused, or its owner away (T75.3, T75.5)."""
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
            n.settings.put(one)


def forget(n: Node, queue: bytes) -> None:
    """Nothing is known of the queue any more, in the journal too."""
    n.settings.forget(queue)
    if n.records is not None:
        n.records.put(QueueSettings(0, n.node_id, LIVE, 0, False, queue))


def flush_settings(n: Node) -> None:
    """[T74] Forget all here (T74.5)."""
    n.settings.purging = {}
    for queue in list(n.settings.by_queue):
        forget(n, queue)
