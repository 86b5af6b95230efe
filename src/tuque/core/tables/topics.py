"""What a node knows of topics, their subscriptions, and settings of queues (SPEC T60, T74).

Plain data; core/topics.py and core/queue_settings.py decide.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.stats import tenant_of
from tuque.core.tables.staged import FAIR

TOPIC_MAX: Final = 255  # bytes of a topic's name (T60.2)
QUEUE_MAX: Final = 512  # of a queue that subscribes
OF_TOPIC_MAX: Final = 4_096  # subscriptions of a topic
SUBSCRIPTIONS_MAX: Final = 50_000
GONE_MAX: Final = 10_000  # removals that are kept (T60.5)
FILTERS_MAX: Final = 8
NAME_MAX: Final = 64  # bytes of a header's name (T60.3)
GLOB_MAX: Final = 128
VERSION_MAX: Final = 1 << 60

# keys (T63): the patterns of a topic are a tree of their words
ONE: Final = b"*"  # any word
ANY: Final = b"#"  # any words, or none
DOT: Final = b"."

KEY_BYTES_MAX: Final = 255
PATTERNS_MAX: Final = 64  # of a queue in a topic
WORDS_MAX: Final = 32  # of a key, or of a pattern
VISITS: Final = 4  # branches that are looked at for a unit of work

PATTERN_BYTES: Final = 400  # with its branches
SUBSCRIPTION_BYTES: Final = 560  # cost besides its texts (M1)


@final
class Subscription:
    """That a queue gets the jobs of a topic; or, with `is_gone`, that it does not any more."""

    def __init__(
        self,
        topic: bytes,
        queue: bytes,
        filters: list[bytes],
        version: i64,
        node: bytes,
        is_gone: bool,
        keys: list[bytes] | None = None,
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.filters = filters  # names and patterns in turn
        self.version = version
        self.node = node  # where this version was made
        self.is_gone = is_gone
        self.keys: list[bytes] = [] if keys is None else keys  # patterns; none: every key (T63.2)
        self.serial: i64 = 0  # orders the pages of a list
        self.jobs: i64 = 0  # that came through it here

    def bytes_used(self) -> i64:
        """Memory in bytes."""
        used: i64 = SUBSCRIPTION_BYTES + len(self.topic) + len(self.queue)
        for text in self.filters:
            used += 40 + len(text)
        for text in self.keys:
            used += PATTERN_BYTES + 2 * len(text)
        return used

    def beats(self, other: "Subscription | None") -> bool:
        """[T60] Whether this version wins over the other one (T60.4)."""
        if other is None:
            return True
        if self.version != other.version:
            return self.version > other.version
        return self.node > other.node


# ---- Keys (SPEC T63): a key goes through the tree of all patterns of a topic once


@final
class Branch:
    """Where the same words have led."""

    def __init__(self, is_any: bool) -> None:
        self.is_any = is_any  # by a `#`, which takes each further word
        self.words: dict[bytes, Branch] = {}
        self.queues: dict[bytes, None] = {}  # a pattern of theirs ends here


@final
class Tree:
    """The patterns of all queues of a topic."""

    def __init__(self) -> None:
        self.root = Branch(False)
        self.count: i64 = 0  # patterns

    def add(self, pattern: bytes, queue: bytes) -> None:
        """The queue has this pattern."""
        at = self.root
        for word in pattern.split(DOT):
            found = at.words.get(word)
            if found is None:
                found = Branch(word == ANY)
                at.words[word] = found
            at = found
        at.queues[queue] = None
        self.count += 1

    def remove(self, pattern: bytes, queue: bytes) -> None:
        """The queue has it no more; branches that lead nowhere go."""
        way: list[Branch] = [self.root]
        words = pattern.split(DOT)
        for word in words:
            way.append(way[len(way) - 1].words[word])
        del way[len(way) - 1].queues[queue]
        self.count -= 1
        for i in range(len(words) - 1, -1, -1):
            branch = way[i + 1]
            if len(branch.queues) + len(branch.words) > 0:
                return
            del way[i].words[words[i]]


@final
class Match:
    """The match of one key against the tree, word by word."""

    def __init__(self, tree: Tree, key: bytes) -> None:
        self.left = key.split(DOT) if len(key) > 0 else []
        self.left.reverse()
        self.at: dict[Branch, None] = {}
        enter(self.at, tree.root)

    def step(self) -> i64:
        """Go on by one word; returns the units of work."""
        word = self.left.pop()
        found: dict[Branch, None] = {}
        for branch in self.at:
            if branch.is_any:
                found[branch] = None
            after = branch.words.get(word)
            if after is not None:
                enter(found, after)
            after = branch.words.get(ONE)
            if after is not None:
                enter(found, after)
        visits = len(self.at) + len(found)
        self.at = found
        return 1 + visits // VISITS

    def queues(self) -> dict[bytes, None]:
        """The queues that have a pattern that the whole key fits."""
        found: dict[bytes, None] = {}
        for branch in self.at:
            found.update(branch.queues)
        return found


def enter(found: dict[Branch, None], branch: Branch) -> None:
    """The key has come here, and behind a `#` that takes no word."""
    found[branch] = None
    after = branch.words.get(ANY)
    while after is not None and after not in found:
        found[after] = None
        after = after.words.get(ANY)


def is_key(key: bytes) -> bool:
    """Whether it is short enough for a key or a pattern (T63.1)."""
    return 1 <= len(key) <= KEY_BYTES_MAX and key.count(DOT) < WORDS_MAX


# ---- All subscriptions


@final
class Topics:
    """All subscriptions of a node."""

    def __init__(self) -> None:
        self.by_topic: dict[bytes, dict[bytes, Subscription]] = {}  # then by queue
        self.gone: dict[tuple[bytes, bytes], Subscription] = {}  # by topic and queue, oldest first
        self.gone_of: dict[bytes, dict[tuple[bytes, bytes], bool]] = {}  # by tenant, oldest first
        self.by_queue: dict[bytes, dict[bytes, bool]] = {}  # its topics
        self.trees: dict[bytes, Tree] = {}  # of topics with keys (T63.3)
        self.by_tenant: dict[bytes, int] = {}  # how many subscriptions each has to its topics
        self.count: i64 = 0
        self.heard: i64 = 0  # slots that have said all that they know (T60.8)
        self.begun_ms: i64 = 0  # when this node had loaded its journal
        self.bytes: i64 = 0
        self.serial: i64 = 0
        self.adds: i64 = 0  # ADDs since the start
        self.jobs: i64 = 0
        self.unheard: i64 = 0  # ADDs that no queue got

    def find(self, topic: bytes, queue: bytes) -> Subscription | None:
        """What is known of that subscription, also that it was removed."""
        queues = self.by_topic.get(topic)
        found = None if queues is None else queues.get(queue)
        return self.gone.get((topic, queue)) if found is None else found

    def put(self, one: Subscription) -> None:
        """Keep this version in the place of the one that was known."""
        self.forget(one.topic, one.queue)
        self.bytes += one.bytes_used()
        tenant = tenant_of(one.topic)
        if one.is_gone:
            key = (one.topic, one.queue)
            self.gone[key] = one
            its = self.gone_of.get(tenant)
            if its is None:
                its = {}
                self.gone_of[tenant] = its
            its[key] = True
            return
        queues = self.by_topic.get(one.topic)
        if queues is None:
            queues = {}
            self.by_topic[one.topic] = queues
        self.serial += 1
        one.serial = self.serial
        queues[one.queue] = one
        if len(one.keys) > 0:
            tree = self.trees.get(one.topic)
            if tree is None:
                tree = Tree()
                self.trees[one.topic] = tree
            for pattern in one.keys:
                tree.add(pattern, one.queue)
        topics = self.by_queue.get(one.queue)
        if topics is None:
            topics = {}
            self.by_queue[one.queue] = topics
        topics[one.topic] = True
        self.count += 1
        self.by_tenant[tenant] = self.by_tenant.get(tenant, 0) + 1

    def forget(self, topic: bytes, queue: bytes) -> None:
        """Drop what is known of it."""
        tenant = tenant_of(topic)
        removed = self.gone.pop((topic, queue), None)
        if removed is not None:
            self.bytes -= removed.bytes_used()
            its = self.gone_of[tenant]
            del its[(topic, queue)]
            if len(its) == 0:
                del self.gone_of[tenant]
        queues = self.by_topic.get(topic)
        found = None if queues is None else queues.pop(queue, None)
        if queues is None or found is None:
            return
        self.bytes -= found.bytes_used()
        self.count -= 1
        if len(found.keys) > 0:
            tree = self.trees[topic]
            for pattern in found.keys:
                tree.remove(pattern, queue)
            if tree.count == 0:
                del self.trees[topic]
        if len(queues) == 0:
            del self.by_topic[topic]
        topics = self.by_queue[queue]
        del topics[topic]
        if len(topics) == 0:
            del self.by_queue[queue]
        left = self.by_tenant[tenant] - 1
        self.by_tenant[tenant] = left
        if left == 0:
            del self.by_tenant[tenant]

    def first_topic(self, queue: bytes) -> bytes:
        """The first by name of the topics that the queue is subscribed to; empty: none."""
        topics = self.by_queue.get(queue)
        return b"" if topics is None else min(topics)

    def oldest_gone(self) -> tuple[bytes, bytes]:
        """[T60] The removal to forget: the oldest, or one of a tenant with many (T60.5)."""
        most = b""
        count: i64 = GONE_MAX // FAIR
        for tenant, its in self.gone_of.items():
            if len(tenant) > 0 and len(its) > count:
                most = tenant
                count = len(its)
        if len(most) > 0:
            return next(iter(self.gone_of[most]))
        return next(iter(self.gone))

    def of_topic(self, topic: bytes) -> list[Subscription]:
        """The subscriptions of the topic, in the order of the queues' names."""
        queues = self.by_topic.get(topic)
        if queues is None:
            return []
        return [queues[name] for name in sorted(queues)]

    def known(self) -> list[Subscription]:
        """All of them, and the removals."""
        found: list[Subscription] = []
        for queues in self.by_topic.values():
            found.extend(queues.values())
        found.extend(self.gone.values())
        return found


# ---- Settings of queues (SPEC T74), which nodes tell each other as they do subscriptions

SETTINGS_MAX: Final = 10_000
EXPIRES_MAX_MS: Final = 366 * 86_400_000
MAXLEN_MAX: Final = 2_147_483_647  # and of TTL, in s
SETTING_BYTES: Final = 420  # besides its name

LIVE: Final = 0
ENDING: Final = 1  # its owner asks whether anybody uses the queue
GONE: Final = 2


@final
class Setting:
    """The settings of a queue, or that it was deleted."""

    def __init__(
        self,
        queue: bytes,
        version: i64,
        state: i64,
        owner: bytes,
        expires_ms: i64,
        is_auto: bool,
        ttl_ms: i64 = 0,
        maxlen: i64 = 0,
    ) -> None:
        self.queue = queue
        self.version = version
        self.state = state
        self.owner = owner  # the node of the last SET
        self.expires_ms = expires_ms  # 0: never
        self.is_auto = is_auto  # it goes after its last consumer
        self.ttl_ms = ttl_ms  # the longest of a job; 0: any
        self.maxlen = maxlen  # jobs that are queued at a node; 0: any number
        # what this node alone knows
        self.since_ms: i64 = 0  # when it learned of this version
        self.used_ms: i64 = 0
        self.was_used = False
        self.delivered: i64 = 0  # jobs, at the last review
        self.away_ms: i64 = 0  # since when the owner is away; 0: it is there

    def changed(self, version: i64, state: i64, owner: bytes) -> "Setting":
        """The same settings in another version."""
        return Setting(
            self.queue,
            version,
            state,
            owner,
            self.expires_ms,
            self.is_auto,
            self.ttl_ms,
            self.maxlen,
        )

    def is_same(self, other: "Setting") -> bool:
        """Whether what SET gives is the same."""
        if self.expires_ms != other.expires_ms or self.is_auto != other.is_auto:
            return False
        return self.ttl_ms == other.ttl_ms and self.maxlen == other.maxlen

    def beats(self, other: "Setting | None") -> bool:
        """[T74] Whether this version wins over the other one (T74.4)."""
        if other is None:
            return True
        if self.version != other.version:
            return self.version > other.version
        if self.state != other.state:
            return self.state > other.state
        return self.owner > other.owner


OF_QUEUED: Final = 1  # which jobs a PURGE removes (T74.7)
OF_DELAYED: Final = 2
OF_BACK_OFF: Final = 4
OF_ALL: Final = 7


@final
class Purge:
    """Jobs of a queue that go, some in a turn (T74.7)."""

    def __init__(self, queue: bytes, what: i64) -> None:
        self.queue = queue
        self.what = what
        self.serial: i64 = 0  # of the node that asks; 0: nobody waits for its end
        self.asker: i64 = 0  # the slot of that node; 0: this one
        self.is_here = False  # the other nodes are not asked
        self.left: i64 = 0  # queued ones that were there when it began
        self.place: i64 = 0  # so many jobs of the node are not looked at
        self.done: i64 = 0
        self.has_asked = False
        self.waiting: i64 = 0  # nodes that have not answered
        self.is_short = False  # one is not reachable
        self.is_over = False


@final
class SettingsTable:
    """The settings of all queues that have some, and those that were deleted."""

    def __init__(self) -> None:
        self.by_queue: dict[bytes, Setting] = {}
        self.gone: dict[bytes, None] = {}  # deleted ones, the oldest first
        self.by_tenant: dict[bytes, int] = {}  # how many each has, without these
        self.purging: list[Purge] = []
        self.purges: i64 = 0  # that clients asked for here
        self.review_ms: i64 = 0  # when all are reviewed next
        self.next_ms: i64 = 0  # when there is work next
        self.bytes: i64 = 0

    def is_busy(self) -> bool:
        """Whether there is anything to review, or to remove."""
        return len(self.by_queue) + len(self.purging) > 0

    def known(self, queue: bytes) -> Setting | None:
        """The settings of the queue, unless it was deleted."""
        one = self.by_queue.get(queue)
        return None if one is None or one.state == GONE else one

    def put(self, one: Setting) -> None:
        """Keep this version."""
        self.forget(one.queue)
        self.bytes += SETTING_BYTES + len(one.queue)
        self.by_queue[one.queue] = one
        if one.state == GONE:
            self.gone[one.queue] = None
        else:
            for purge in self.purging:
                if purge.queue == one.queue and purge.serial == 0:
                    purge.left = 0  # it is not deleted any more
            self.count_in(one.queue, 1)

    def forget(self, queue: bytes) -> None:
        """Drop what is known of the queue."""
        known = self.by_queue.pop(queue, None)
        if known is None:
            return
        self.bytes -= SETTING_BYTES + len(queue)
        if known.state == GONE:
            del self.gone[queue]
        else:
            self.count_in(queue, -1)

    def count_in(self, queue: bytes, by: int) -> None:
        """The tenant of the queue has one more, or one less."""
        tenant = tenant_of(queue)
        count = self.by_tenant.get(tenant, 0) + by
        if count == 0:
            del self.by_tenant[tenant]
        else:
            self.by_tenant[tenant] = count
