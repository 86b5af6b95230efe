"""What clients requested and what they got: the truth that the checkers use.

Times are true microseconds. A delivery counts when its reply goes to the transport, read or
not. A missing reply is neither success nor failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sim.engine.world import World

OPEN: Final = "open"  # no reply (yet): may have happened
OK: Final = "ok"
REFUSED: Final = "refused"
OLD_DISK: Final = "an old disk came back"  # an excuse: its jobs may be finished, or elsewhere


class Delivery:
    """A job delivered to a client."""

    __slots__ = ("at_us", "from_life", "made_us", "node", "told", "was_read")

    def __init__(self, at_us: int, made_us: int, node: str) -> None:
        self.at_us = at_us
        self.made_us = made_us  # earlier if it, and messages about it, waited for the disk (C8.3)
        self.node = node
        self.from_life: object = None  # the process that delivered it
        self.told: list[str] = []  # other holders that were linked to it
        self.was_read = False


class Ask:
    """A command about a job: ACKJOB, NACK, ..."""

    __slots__ = ("asked_us", "done_us", "node", "reply", "verb")

    def __init__(self, verb: str, asked_us: int, node: str) -> None:
        self.verb = verb
        self.asked_us = asked_us
        self.done_us = 0  # 0: no reply
        self.node = node
        self.reply: object = None


class Add:
    """One ADDJOB and the fate of its job."""

    def __init__(self, token: bytes, queue: bytes, body: bytes, node: str, asked_us: int) -> None:
        self.token = token
        self.queue = queue
        self.body = body
        self.node = node
        self.asked_us = asked_us
        self.done_us = 0
        self.outcome = OPEN
        self.error = ""
        self.id = b""
        self.repl = 1
        self.retry_s = 0
        self.ttl_s = 0
        self.delay_s = 0
        self.is_async = False
        self.is_external = False  # its node kept no copy, and asked others to take it
        self.record: object = None  # the node's record, while it has one
        self.timeout_ms = 0
        self.deliveries: list[Delivery] = []
        self.asks: list[Ask] = []
        # seen by the checkers
        self.losses = 0  # copies lost with a node's memory since there were enough copies
        self.losses_ever = 0
        self.lost_by: set[str] = set()  # nodes whose memory was lost with a copy that no disk had
        self.excuse = ""  # why it may be lost
        self.ack_excuse = ""  # why its ack may be lost
        self.is_lost = False  # the connection broke before the reply
        # leases and exactly-once writes
        self.is_once = False  # its body may become only one job, however often it is sent
        self.once_excuse = ""  # why it may have become two
        self.is_staged = False  # nobody asked to publish it yet
        self.was_leased = False
        self.leased_us = 0  # since when its last reader has it in a batch
        self.marks: set[bytes] = set()  # deliveries in batches that were counted

    def acked_us(self, verbs: tuple[str, ...] = ("ACKJOB", "COMMIT")) -> int:
        """When an ack first succeeded; 0: never."""
        for ask in self.asks:
            if ask.done_us and ask.verb in verbs and isinstance(ask.reply, int):
                return ask.done_us
        return 0

    def asked_for(self, *verbs: str) -> bool:
        """Whether somebody sent such a command, whatever the reply."""
        return any(ask.verb in verbs for ask in self.asks)

    def expiry_us(self) -> int:
        """The latest instant of its TTL."""
        return (self.done_us or self.asked_us) + self.ttl_s * 1_000_000


class Finding:
    """A broken promise."""

    def __init__(self, rule: str, text: str, at_us: int) -> None:
        self.rule = rule
        self.text = text
        self.at_us = at_us

    def __str__(self) -> str:
        return f"{self.rule} at {self.at_us / 1e6:.3f} s: {self.text}"


class Enough(Exception):
    """The finding that was looked for is there: the seed may end."""


def end_seed() -> None:
    """The event that ends a seed early."""
    raise Enough


class History:
    """All requests and replies of one seed, and the findings."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.adds: dict[bytes, Add] = {}  # by token
        self.by_id: dict[bytes, Add] = {}
        self.findings: list[Finding] = []
        self.until = ""  # a finding of this rule ends the seed; "any": each does
        self.counts: dict[str, int] = {}
        self.most: dict[str, int] = {}  # maxima by name
        self.clock_slack_us = 0  # for clocks with drift
        self.are_times_off = False  # a machine was off; its clock was set before or meanwhile
        self.travel_slack_us = 0  # for slow messages
        self.made_us = 0  # when the reply was made that a node sends now
        self.on_again: Callable[[Add, Delivery], None] | None = None  # a job is delivered again
        self.on_handed_out: Callable[[Add, Delivery], None] | None = None

    def count(self, what: str, by: int = 1) -> None:
        """Count something for the score-card."""
        self.counts[what] = self.counts.get(what, 0) + by

    def note_most(self, what: str, much: int) -> None:
        """Keep the maximum of a figure."""
        self.most[what] = max(much, self.most.get(what, much))

    def find(self, rule: str, text: str) -> None:
        """Record a broken promise."""
        if len(self.findings) < 50:
            self.findings.append(Finding(rule, text, self.world.now_us))
            self.world.note(f"FOUND {rule} {text}")
        if self.until in ("any", rule):
            self.world.at(self.world.now_us, end_seed)

    def new_add(self, queue: bytes, size: int, node: str) -> Add:
        """A job is about to be added; its body identifies it."""
        token = b"<%d>" % len(self.adds)
        body = token + b"." * max(0, size - len(token))
        add = Add(token, queue, body, node, self.world.now_us)
        self.adds[token] = add
        self.count("adds")
        return add

    def on_added(self, add: Add, reply: object) -> None:
        """An ADDJOB got its reply."""
        add.done_us = self.world.now_us
        if isinstance(reply, bytes):
            add.outcome = OK
            self.count("adds ok")
            self.meet(add, reply)
        else:
            add.outcome = REFUSED
            add.error = str(reply)
            self.count("adds refused")

    def meet(self, add: Add, id: bytes) -> None:
        """The id of a job becomes known; ids are unique."""
        if add.id == b"":
            other = self.by_id.get(id)
            if other is not None and other is not add:
                self.find("damage", f"id {id!r} names two jobs")
            add.id = id
            self.by_id[id] = add
        elif add.id != id and add.is_once:
            if not add.once_excuse:
                self.find("once", f"{add.token!r} is there twice: {add.id!r} and {id!r}")
            add.excuse = "written again"
            self.by_id[id] = add
        elif add.id != id:
            self.find("damage", f"job {add.token!r} has two ids: {add.id!r} and {id!r}")

    def on_delivery(self, node: str, queue: bytes, id: bytes, body: bytes) -> Delivery | None:
        """A job went to a transport: judge it at once."""
        now_us = self.world.now_us
        self.count("deliveries")
        token = body[: body.find(b">") + 1]
        add = self.adds.get(token)
        if add is None:
            self.find("damage", f"delivered what nobody added: {id!r} {body[:40]!r}")
            return None
        if add.body != body or add.queue != queue:
            self.find("damage", f"job {token!r} was damaged: {queue!r} {body[:40]!r}")
        if add.is_staged:
            self.find("staged-seen", f"{token!r} was delivered before it was published")
        self.meet(add, id)
        delivery = Delivery(now_us, self.made_us, node)
        if self.on_handed_out is not None:
            self.on_handed_out(add, delivery)
        add.deliveries.append(delivery)
        self.judge_times(add, now_us)
        return delivery

    def judge_own_end(self, add: Add, delivery: Delivery) -> None:
        """Delivered by the node that added it and still has the same record.

        That record has not travelled: its TTL is exact, whatever the lines do.
        """
        self.count("own ends checked")
        late_us = delivery.made_us - add.expiry_us()
        slack_us = 100_000 + add.ttl_s * 2000 + self.clock_slack_us
        if add.done_us and late_us > slack_us and not self.are_times_off:
            self.find("after-ttl", f"{add.token!r} delivered {late_us / 1e6:.3f} s after its TTL")

    def on_row(self, node: str, queue: bytes, id: bytes, body: bytes, mark: bytes) -> None:
        """A job was read in a batch: a delivery the first time; `mark` identifies it."""
        add = self.by_id.get(id)
        if add is None or mark not in add.marks or add.body != body:
            if self.on_delivery(node, queue, id, body) is not None:
                self.by_id[id].marks.add(mark)
                self.by_id[id].was_leased = True

    def judge_times(self, add: Add, now_us: int) -> None:
        """At most once, not after the TTL, not before the delay."""
        count = len(add.deliveries)
        if add.retry_s == 0:
            self.count("amo deliveries")
            if count > 1 and not add.excuse:
                self.find("twice", f"{add.token!r} handed out {count} times")
        elif count > 1:
            self.count("redeliveries")
            if self.on_again is not None:
                self.on_again(add, add.deliveries[-1])
        if self.are_times_off:
            return
        late_us = now_us - add.expiry_us()
        slack_us = 100_000 + add.ttl_s * 2000 + self.clock_slack_us + self.travel_slack_us
        if add.done_us and late_us > slack_us:
            self.find("after-ttl", f"{add.token!r} delivered {late_us / 1e6:.3f} s after its TTL")
        if count == 1 and add.delay_s and not add.asked_for("ENQUEUE"):
            early_us = add.asked_us + add.delay_s * 1_000_000 - now_us
            self.count("delays checked")
            if early_us > 5_000 + add.delay_s * 1000 + self.clock_slack_us:
                self.find(
                    "before-delay", f"{add.token!r} came {early_us / 1e6:.3f} s before its delay"
                )
