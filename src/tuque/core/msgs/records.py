"""Records that are seldom written: each field in its place, with its bounds (SPEC J2).

`core/msgs/layout.py` makes the bytes of a row from its fields, in their order, and compares what
it reads with their types; what no type can say is in the method `check`. The tag is the kind of the
record, of core/records/jobs.py. Those that are written for each job are in packed.py. msgspec makes
these classes: mypyc does not compile this module.
"""

from __future__ import annotations

from typing import Annotated, Final, get_args

import msgspec
from msgspec import Meta

from tuque.core.model.tombstones import SLOTS
from tuque.core.model.work import ATTEMPTS_MAX, are_headers
from tuque.core.msgs.layout import REST, Table
from tuque.core.msgs.packed import (
    DISK_BYTES,
    FAMILY_BYTES,
    JITTER_MAX,
    NODE_ID_BYTES,
    ORIGIN_BYTES,
    SPAN_MAX_MS,
)
from tuque.core.tables.leases import NAME_MAX
from tuque.core.tables.topics import (
    EXPIRES_MAX_MS,
    FILTERS_MAX,
    GONE,
    MAXLEN_MAX,
    PATTERNS_MAX,
    QUEUE_MAX,
    VERSION_MAX,
    Subscription,
    is_key,
)

I64_LAST: Final = (1 << 63) - 1

NOT_IN_FORCE: Final = 1  # steps of a list: its node knows none
IN_FORCE: Final = 2

I64 = Annotated[int, Meta(ge=0, le=I64_LAST, extra={"form": "q"})]
ABOVE_0 = Annotated[int, Meta(ge=1, le=I64_LAST, extra={"form": "q"})]
FROM_MINUS_1 = Annotated[int, Meta(ge=-1, le=I64_LAST, extra={"form": "q"})]
ANY = Annotated[int, Meta(ge=-I64_LAST - 1, le=I64_LAST, extra={"form": "q"})]
BYTE = Annotated[int, Meta(ge=0, lt=256, extra={"form": "B"})]
NODE_ID = Annotated[bytes, Meta(min_length=NODE_ID_BYTES, max_length=NODE_ID_BYTES)]
UUID = Annotated[bytes, Meta(min_length=16, max_length=16)]
ORIGIN = Annotated[bytes, Meta(min_length=ORIGIN_BYTES, max_length=ORIGIN_BYTES)]
NAME = Annotated[bytes, Meta(min_length=1, extra={"form": REST})]
BYTE_WORD = Annotated[bytes, Meta(max_length=255, extra={"form": "B"})]
BYTE_NAME = Annotated[bytes, Meta(min_length=1, max_length=255, extra={"form": "B"})]
WORD = Annotated[bytes, Meta(max_length=32_767, extra={"form": "h"})]
TUBE_NAME = Annotated[bytes, Meta(min_length=1, max_length=32_767, extra={"form": "h"})]
LONG_WORD = Annotated[bytes, Meta(extra={"form": "i"})]
SPAN = Annotated[int, Meta(ge=0, le=SPAN_MAX_MS, extra={"form": "q"})]
DISK = Annotated[bytes, Meta(min_length=DISK_BYTES, max_length=DISK_BYTES)]
FAMILY = Annotated[bytes, Meta(min_length=FAMILY_BYTES, max_length=FAMILY_BYTES)]
VOTER = tuple[NODE_ID, ABOVE_0, DISK]  # with its right, and the disk to which that was given
MARK = tuple[NODE_ID, ABOVE_0, I64]  # with its right, and its mark under it


class Row(msgspec.Struct, array_like=True):
    """A record without its length and kind."""

    def check(self) -> bool:
        """Whether its fields fit together."""
        return True


# ---- Queues, nodes and the journal itself (SPEC J2)


class PauseRow(Row, tag=6):
    """The queue's pause, 0: it is not paused; since which command, in ns, 0: unknown."""

    bits: BYTE
    stamp_ns: I64
    queue: Annotated[bytes, Meta(extra={"form": REST})]


class EndRow(Row, tag=7):
    """The last record of a snapshot of so many jobs and records."""

    jobs: ANY
    records: ANY


class GapRow(Row, tag=8):
    """Here `journal repair` removed so much."""

    records: ANY
    bytes: ANY


class PeerRow(Row, tag=10):
    """Which node, in which incarnation, a slot in a set means from here on."""

    slot: BYTE
    node_id: NODE_ID
    incarnation: ANY


# ---- Tubes, sessions and rights (SPEC T14)


class TubeRow(Row, tag=22):
    """A tube but for its tasks; a temporary one has a next number above those in use."""

    number: I64
    next_number: I64
    ttl_ms: I64
    ttr_ms: I64
    pri: ANY
    capacity: ANY
    is_temporary: bool
    name: TUBE_NAME
    kind: WORD
    storage: WORD
    engine: WORD
    callback: WORD


class TubeDrop(Row, tag=23):
    """The tube is no longer here; its tasks have records of their own."""

    name: NAME


class TubeImplicit(Row, tag=38):
    """An enqueue made the tube of the record before: it goes when it is idle (T2.9)."""

    name: NAME


class SessionRow(Row, tag=26):
    """A session that survives a restart, or its end."""

    number: ABOVE_0
    until_ms: I64
    is_over: bool
    uuid: UUID
    user: Annotated[bytes, Meta(extra={"form": REST})]


class TubeCfg(Row, tag=27):
    """The configuration of the tubes; tokens up to `token_reserved` may be in use (T5.1)."""

    ttr_ms: I64
    in_replicaset: bool
    token_reserved: I64 = 0  # which older records have not


class GrantRow(Row, tag=28):
    """The rights of the holder to the tube under that prefix; 0: none any more."""

    bits: Annotated[int, Meta(ge=0, le=3, extra={"form": "B"})]  # call, truncate
    tube: TUBE_NAME
    prefix: WORD
    holder: NAME


# ---- Replicas and votes (SPEC T22)


class TubeHolder(Row, tag=30):
    """A session that holds tasks of a replica, by the number that the leader gave it."""

    number: ABOVE_0
    uuid: UUID
    user: LONG_WORD
    name: NAME


class VotersRow(Row, tag=33):
    """The list of voters that this node uses, the right of its disk (0: none), and that disk."""

    number: ABOVE_0
    right: I64
    disk: DISK
    step: Annotated[int, Meta(ge=NOT_IN_FORCE, le=IN_FORCE, extra={"form": "B"})]
    origin: ORIGIN
    voters: Annotated[list[VOTER], Meta(min_length=1, max_length=SLOTS, extra={"form": "i"})]


class SoloRow(Row, tag=39):
    """A list of one that its node made at its start; then as VotersRow (T23.1).

    `has_lost`: it is the one of this node, which uses another list since (T23.7).
    """

    number: ABOVE_0
    right: I64
    disk: DISK
    has_journal: bool
    has_lost: bool
    origin: ORIGIN
    voter: NODE_ID
    voter_right: ABOVE_0
    voter_disk: DISK


class TubeFamily(Row, tag=40):
    """Voters of which lists choose the leader of the tube (T23.7)."""

    family: FAMILY
    moves: I64
    from_number: I64
    made_ns: I64
    maker: NODE_ID
    name: NAME


class TubeStand(Row, tag=34):
    """A vote: the node that this one stands with, and the newest copy that was whole here.

    Whole epoch 0: none.
    """

    epoch: I64
    whole_epoch: I64
    whole_seq: I64
    made_ns: I64
    maker: NODE_ID
    node: NODE_ID
    name: NAME


class VotersNextRow(Row, tag=35):
    """The last attempt at the next list that this node has heard, and what it has written down."""

    number: ABOVE_0
    attempt: I64
    written_attempt: I64
    origin: ORIGIN
    node: NODE_ID
    written_node: NODE_ID
    voters: Annotated[list[VOTER], Meta(max_length=SLOTS, extra={"form": "i"})]


class VoteMarks(Row, tag=37):
    """How far this node has come as a voter under its right, and how far others said that they
    have (T29.1, T29.2).
    """

    right: I64
    mark: I64
    marks: Annotated[list[MARK], Meta(max_length=SLOTS, extra={"form": "i"})]


# ---- Groups of leases (SPEC Y9)


class LeaseGroup(Row, tag=14):
    """All of a group except its batches; with `floor_seq` -1 it is forgotten."""

    epoch: ABOVE_0
    last_seq: I64
    acked_seq: I64
    floor_seq: FROM_MINUS_1
    ttl_ms: I64
    used_ms: ANY
    names: Annotated[list[LONG_WORD], Meta(min_length=3, extra={"form": "i"})]  # own, owner, queues

    def check(self) -> bool:
        """Whether it has a name, and no batch above its newest one."""
        is_named = 1 <= len(self.names[0]) <= NAME_MAX
        return is_named and self.last_seq >= max(self.floor_seq, self.acked_seq)


class LeaseDrop(Row, tag=16):
    """The batch no longer exists."""

    epoch: ABOVE_0
    seq: ABOVE_0
    name: Annotated[bytes, Meta(min_length=1, max_length=NAME_MAX, extra={"form": REST})]


# ---- Staged writes and subscriptions (SPEC Z6, T60.6)


class StageDrop(Row, tag=18):
    """The attempt is dropped; without a name of it, all of the transaction."""

    txn: BYTE_NAME
    attempt: Annotated[bytes, Meta(max_length=255, extra={"form": REST})]


class StagedWork(Row, tag=43):
    """The id and the work of the job in the STAGED before (Z6.1); without `terms` it has headers
    at most.
    """

    position: Annotated[int, Meta(ge=0, lt=1 << 31, extra={"form": "i"})]
    attempts: Annotated[int, Meta(ge=0, le=ATTEMPTS_MAX, extra={"form": "i"})]
    jitter: Annotated[int, Meta(ge=0, le=JITTER_MAX, extra={"form": "i"})]
    first_ms: SPAN
    max_ms: SPAN
    keep_ms: SPAN
    limit_ms: SPAN
    has_terms: bool
    drops: bool
    keeps_body: bool
    txn: BYTE_NAME
    attempt: BYTE_NAME
    id: Annotated[bytes, Meta(max_length=NODE_ID_BYTES, extra={"form": "B"})]
    dead: LONG_WORD
    headers: WORD

    def check(self) -> bool:
        """Whether it is an id, and the headers are pairs."""
        return len(self.id) in (0, NODE_ID_BYTES) and are_headers(self.headers)


class Published(Row, tag=19):
    """The version is published. It stands for all its jobs, which are made from the staged ones.

    An id of zeros: its key was there, and no job was made.
    """

    version: I64
    now_ms: I64
    ctime_ns: I64  # of the first job
    default_repl: Annotated[int, Meta(ge=1, lt=1 << 31, extra={"form": "i"})]
    attempts: Annotated[list[BYTE_NAME], Meta(extra={"form": "i"})]
    ids: Annotated[list[NODE_ID], Meta(extra={"form": "i"})]
    app: BYTE_NAME
    txn: BYTE_NAME


class AppRow(Row, tag=21):
    """The last version of the app; -1: forgotten."""

    version: FROM_MINUS_1
    used_ms: ANY
    app: Annotated[bytes, Meta(min_length=1, max_length=255, extra={"form": REST})]


class TopicRow(Row, tag=36):
    """A subscription, or that it was removed; version 0: nothing is known of it."""

    version: Annotated[int, Meta(ge=0, le=VERSION_MAX, extra={"form": "q"})]
    node: NODE_ID
    is_gone: Annotated[int, Meta(ge=0, le=1, extra={"form": "B"})]
    topic: BYTE_NAME
    queue: Annotated[bytes, Meta(min_length=1, max_length=QUEUE_MAX, extra={"form": "i"})]
    filters: Annotated[
        list[tuple[BYTE_WORD, BYTE_WORD]], Meta(max_length=FILTERS_MAX, extra={"form": "B"})
    ]


class TopicKeys(Row, tag=41):
    """The patterns of the subscription in the record before (T63.4)."""

    topic: BYTE_NAME
    queue: Annotated[bytes, Meta(min_length=1, max_length=QUEUE_MAX, extra={"form": "i"})]
    keys: Annotated[
        list[BYTE_NAME], Meta(min_length=1, max_length=PATTERNS_MAX, extra={"form": "B"})
    ]

    def check(self) -> bool:
        """Whether each is a pattern, and there once (T63.1)."""
        return len(set(self.keys)) == len(self.keys) and all(is_key(one) for one in self.keys)


class QueueSettings(Row, tag=42):
    """The settings of a queue, or that it was deleted; version 0: nothing is known of it (T74)."""

    version: Annotated[int, Meta(ge=0, le=VERSION_MAX, extra={"form": "q"})]
    node: NODE_ID
    state: Annotated[int, Meta(ge=0, le=GONE, extra={"form": "B"})]
    expires_ms: Annotated[int, Meta(ge=0, le=EXPIRES_MAX_MS, extra={"form": "q"})]
    is_auto: bool
    was_used: bool  # since the last SET (T75.3)
    ttl_ms: Annotated[int, Meta(ge=0, le=MAXLEN_MAX * 1000, extra={"form": "q"})]
    maxlen: Annotated[int, Meta(ge=0, le=MAXLEN_MAX, extra={"form": "i"})]
    queue: Annotated[bytes, Meta(min_length=1, max_length=QUEUE_MAX, extra={"form": REST})]


def topic_row(one: Subscription) -> TopicRow:
    """All of a subscription."""
    words = one.filters
    filters = list(zip(words[::2], words[1::2], strict=True))
    gone = 1 if one.is_gone else 0
    return TopicRow(int(one.version), one.node, gone, one.topic, one.queue, filters)


def subscription_in(row: TopicRow) -> Subscription:
    """The subscription in the row."""
    filters = [word for pair in row.filters for word in pair]
    gone = row.is_gone == 1
    return Subscription(row.topic, row.queue, filters, row.version, row.node, gone)


AnyRow = (
    PauseRow | EndRow | GapRow | PeerRow | TubeRow | TubeDrop | TubeImplicit | SessionRow | TubeCfg
    | GrantRow | TubeHolder | VotersRow | SoloRow | TubeFamily | TubeStand | VotersNextRow
    | VoteMarks | LeaseGroup | LeaseDrop | StageDrop | Published | AppRow | TopicRow | TopicKeys
    | QueueSettings | StagedWork
)  # fmt: skip

TABLE: Final = Table(get_args(AnyRow))
KINDS: Final = frozenset(TABLE.kinds)
