"""Messages between nodes: one class per bus message (SPEC B3).

A message names nodes by the sender's slot numbers, as bit sets; `Slots` introduces each
number on a link before it is used (core/node/peers.py). Times are remaining milliseconds
(B2.3), each with one meaning (B2.6). The rule that receives a message defines its meaning,
wire/bus/bus.py its encoding.

The type of a field has its bounds, and whoever decodes a message refuses what is outside them
(B2.1). What no type can say is in the method `check` of the class; `CHECKS` has them all. msgspec
makes these classes: mypyc does not compile this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from tuque.core.model.job import LAST_NS, LEVEL_MAX
from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.tombstones import SLOTS
from tuque.core.msgs.packed import (
    COUNT_MAX,
    DISK_BYTES,
    FAMILY_BYTES,
    NODE_ID_BYTES,
    NUMBER_LAST,
    ORIGIN_BYTES,
    REASON_MAX,
)
from tuque.core.tables.topics import (
    EXPIRES_MAX_MS,
    FILTERS_MAX,
    GLOB_MAX,
    GONE,
    KEY_BYTES_MAX,
    MAXLEN_MAX,
    NAME_MAX,
    OF_ALL,
    PATTERNS_MAX,
    QUEUE_MAX,
    TOPIC_MAX,
    VERSION_MAX,
    is_key,
)

LARGE_BODY: Final = 1 << 20  # bytes from which a copy has a frame of its own (B2.8)
NO_REPLY: Final = 1  # ReplJob.mode: the sender wants no GotJob
REPAIR: Final = 2  # ReplJob.mode: repairs a lost copy (K5.3)
CUSTODY: Final = 4  # ReplJob.mode: carries the right to deliver an at-most-once job
LEVEL_UNIT: Final = 16  # ReplJob.mode: of this the level of the job, counted from LEVEL on

COUNT_NACK: Final = 1  # Queued.how: the counter to increment
COUNT_DELIVERY: Final = 2
HAS_QUEUED: Final = 4  # Queued.how: the sender has the job queued now (Q4.3)
WAS_ASKED: Final = 8  # Queued.how: a client sent ENQUEUE or RELEASE (Q4.5)


# ---- What a field may be

TIMES_MAX: Final = 1 << 40  # most starts or removals of a node
TUBE_MAX: Final = 512  # bytes of a tube's name
HEX: Final = b"0123456789abcdef"
HOST_WORD: Final = r"^[!-~]*\Z"  # one word in a line of nodes.conf
STANDS: Final = bytes(range(4))  # of jobs in ASK (Q12.1)

Number = Annotated[int, Meta(ge=0, le=NUMBER_LAST)]  # an instant in ms, a span, a count, a set
Above0 = Annotated[int, Meta(ge=1, le=NUMBER_LAST)]
Delay = Annotated[int, Meta(ge=-1, le=NUMBER_LAST)]  # -1: there is none
Instant = Annotated[int, Meta(ge=0, le=LAST_NS)]  # ns, until 2262: a clock may be far ahead
Seconds = Annotated[int, Meta(ge=0, lt=1 << 31)]
Count = Annotated[int, Meta(ge=0, lt=COUNT_MAX)]
Times = Annotated[int, Meta(ge=0, lt=TIMES_MAX)]
Port = Annotated[int, Meta(ge=0, lt=1 << 16)]  # 0: none
Small = Annotated[int, Meta(ge=1, lt=1 << 16)]
Byte = Annotated[int, Meta(ge=0, lt=1 << 8)]
Id = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
NodeId = Annotated[  # in HEX, by `check`
    bytes, Meta(min_length=NODE_ID_BYTES, max_length=NODE_ID_BYTES)
]
Origin = Annotated[bytes, Meta(min_length=ORIGIN_BYTES, max_length=ORIGIN_BYTES)]
Uuid = Annotated[bytes, Meta(min_length=16, max_length=16)]
Tube = Annotated[bytes, Meta(min_length=1, max_length=TUBE_MAX)]
Word = Annotated[bytes, Meta(max_length=255)]
Host = Annotated[str, Meta(pattern=HOST_WORD)]
Disk = Annotated[bytes, Meta(min_length=DISK_BYTES, max_length=DISK_BYTES)]
Family = Annotated[bytes, Meta(min_length=FAMILY_BYTES, max_length=FAMILY_BYTES)]
Voter = tuple[NodeId, Above0, Disk]  # with its right, and the disk to which that was given
ResultFields = tuple[
    bytes, Number, Number, bytes, bytes, bytes | None, bytes, bytes, bytes, Number
]  # fmt: skip

NO_RESULT: Final = (b"", 0, 0, b"", b"", None, b"", b"", b"", 0)


def are_hex(*ids: bytes) -> bool:
    """Whether these are of hex digits, as ids of nodes are."""
    return len(b"".join(ids).strip(HEX)) == 0


class Message(msgspec.Struct, array_like=True, gc=False):
    """A message to one peer."""


# ---- Subscriptions to topics (SPEC T60.4)


Filter = Annotated[bytes, Meta(min_length=1, max_length=GLOB_MAX)]
Pattern = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]


class SubscriptionAt(Message):
    """One version of a subscription, or its removal."""

    topic: Annotated[bytes, Meta(min_length=1, max_length=TOPIC_MAX)]
    queue: Annotated[bytes, Meta(min_length=1, max_length=QUEUE_MAX)]
    filters: Annotated[list[Filter], Meta(max_length=2 * FILTERS_MAX)]  # names and patterns in turn
    version: Annotated[int, Meta(ge=1, le=VERSION_MAX)]
    node: Id  # where this version was made
    is_gone: bool
    keys: Annotated[list[Pattern], Meta(max_length=PATTERNS_MAX)]

    def check(self) -> bool:
        """Whether each filter is a name and a pattern (T60.3), and each key there once (T63.1)."""
        filters = self.filters
        if len(set(self.keys)) < len(self.keys) or not all(is_key(one) for one in self.keys):
            return False
        return len(filters) % 2 == 0 and all(len(name) <= NAME_MAX for name in filters[::2])


class QueueAt(Message):
    """One version of the settings of a queue, or its deletion (T74.4)."""

    queue: Annotated[bytes, Meta(min_length=1, max_length=QUEUE_MAX)]
    version: Annotated[int, Meta(ge=1, le=VERSION_MAX)]
    state: Annotated[int, Meta(ge=0, le=GONE)]
    node: Id  # its owner
    expires_ms: Annotated[int, Meta(ge=0, le=EXPIRES_MAX_MS)]
    is_auto: bool
    ttl_ms: Annotated[int, Meta(ge=0, le=MAXLEN_MAX * 1000)]  # the longest of a job; 0: any
    maxlen: Annotated[int, Meta(ge=0, le=MAXLEN_MAX)]


class QueuesTold(Message, tag=61):
    """Settings of queues that the sender knows: all of them, or those that changed (T74.4)."""

    all: list[QueueAt]


class QueuePurge(Message, tag=62):
    """Remove the jobs of a queue that no worker has, and say how many went (T74.10)."""

    serial: Number
    queue: Annotated[bytes, Meta(min_length=1, max_length=QUEUE_MAX)]
    what: Annotated[int, Meta(ge=1, le=OF_ALL)]


class QueuePurged(Message, tag=63):
    """So many went (T74.10)."""

    serial: Number
    count: Number


class TopicsTold(Message, tag=60):
    """Subscriptions that the sender knows: all of them, or those that changed (T60.4)."""

    all: list[SubscriptionAt]

    def check(self) -> bool:
        """Whether each is one that a client can have made (T60.2, T60.3)."""
        return all(one.check() for one in self.all)


# ---- Jobs, nodes, tubes and votes (SPEC B3)


class Slots(Message, tag=1):
    """The sender's slot numbers, the node ids and incarnations they stand for (K2.2)."""

    nodes: list[tuple[Annotated[int, Meta(ge=0, lt=SLOTS)], Id, Number]]


class ReplJob(Message, tag=2):
    """Keep a copy of this job (R2)."""

    id: Id
    queue: bytes
    body: bytes
    ctime_ns: Instant
    left_ms: Above0  # remaining TTL
    due_ms: Number  # until the receiver queues it; 0: in REPLJOB its RETRY, in YOURJOBS now
    retry_s: Seconds
    delay_s: Seconds
    repl: Small
    nacks: Count
    deliveries: Count
    holders: Number
    mode: Annotated[int, Meta(ge=0, lt=(LEVEL_MAX + 1) * LEVEL_UNIT)]
    life: bytes = b""  # of core/queues/work_copies.py


ReplFields = tuple[
    bytes, bytes, bytes, int, int, int, int, int, int, int, int, int, int, bytes
]  # fmt: skip
"""The fields of a ReplJob: all at once they cost compiled code as much as two of them."""


class ReplJobs(Message, tag=47):
    """Keep copies of new jobs: of one, and of others that differ from it only in these (R1.12)."""

    first: ReplJob
    others: list[tuple[Id, bytes, Instant]]  # id, body, ctime_ns


class GotJob(Message, tag=3):
    """These jobs are stored here (R3)."""

    ids: list[Id]


class Enqueue(Message, tag=4):
    """Queue your copy after the delay and serve it (R8)."""

    id: Id
    delay_ms: Number


class Enqueued(Message, tag=5):
    """Reply to Enqueue: done now or before (R6.2)."""

    ids: list[Id]


class Queued(Message, tag=6):
    """The sender has put the job into its queue (Q4)."""

    id: Id
    how: Byte


class WillQueue(Message, tag=7):
    """The sender is about to put these jobs into its queues (Q3)."""

    ids: list[Id]


class Delivered(Message, tag=8):
    """The sender delivered the job; it would be due again in `left_ms` (Q9)."""

    id: Id
    left_ms: Number


class Working(Message, tag=9):
    """A worker at the sender asked for more time (Q9)."""

    id: Id
    left_ms: Number


class SetAck(Message, tag=10):
    """The job is acked; these nodes may have a copy (A4)."""

    id: Id
    holders: Number
    left_ms: Number
    outcome: bytes = b""  # of core/queues/work_copies.py
    is_untold: bool = False  # no node has written the event of this end (E1.13)
    is_run_untold: bool = False  # nor that of the run in the outcome, which DONE named


class EditAt(Message):
    """What UPDATEJOB has made of a job; the rest is in its life (W16.3)."""

    serial: Number  # comes back with the answer; 0: none is awaited
    delay_ms: Delay  # until it is queued at the sender; -1: the change leaves that as it is
    body: bytes


class LifeAt(Message, tag=33):
    """The life of a job as the sender knows it (W14.2)."""

    id: Id
    queue: bytes
    left_ms: Above0  # remaining TTL
    due_ms: Number  # until its run is silent, or its back-off over
    life: bytes  # of core/queues/work_copies.py
    edit: EditAt | None = None


class UpdateAt(Message):
    """An UPDATEJOB that the receiver decides about; -1 and None leave a field as it is (W16.1)."""

    delay_ms: Delay  # until the receiver queues it
    ttl_ms: Annotated[int, Meta(ge=-1, le=NUMBER_LAST)]
    attempts: Annotated[int, Meta(ge=-1, lt=1 << 16)]
    body: bytes | None
    headers: bytes | None


class AttemptAt(Message):
    """An attempt of a job as RESULT shows it (W18.6)."""

    run: Number
    began_ms: Number
    ended_ms: Number
    state: bytes
    worker: bytes
    reason: bytes
    detail: bytes


class MoreAt(Message):
    """What else is known of a job (W18.6)."""

    queue: bytes
    added_ms: Number
    headers: bytes  # pairs, as those of a LIFE
    body: bytes | None
    attempts: list[AttemptAt]


class JobAsk(Message, tag=34):
    """What is known of this job? Or cancel it, or change it (W15, W16)."""

    id: Id
    what: Annotated[int, Meta(ge=1, le=5)]  # of core/life/lookup.py, and of cancel_update.py
    reason: Annotated[bytes, Meta(max_length=REASON_MAX)]
    serial: Number = 0  # of an UPDATEJOB: comes back with the answer
    update: UpdateAt | None = None
    more: Annotated[int, Meta(ge=0, le=3)] = 0  # of a RESULT: bits of core/life/shown.py


class JobTold(Message, tag=35):
    """Reply to JobAsk, and to LifeAt with a change (W15, W16)."""

    id: Id
    is_known: bool
    became: Annotated[
        int, Meta(ge=0, le=5)
    ]  # of CANCEL as in core/life/cancel_update.py; else 0 or SHARED of life/lookup.py
    is_settled: bool
    fields: list[bytes | int | None] = []  # the values of RESULT
    holders: Number = 0  # that the node knows (W16.7)
    serial: Number = 0  # of an UPDATEJOB; 0: it is about something else
    said: Annotated[int, Meta(ge=0, le=9)] = 0  # of it, as in core/life/cancel_update.py
    since_ms: Number = 0  # how long a worker has it
    worker: bytes = b""
    more: MoreAt | None = None  # if it was asked for

    def check(self) -> bool:
        """Whether the fields are those of RESULT, in their order (W9.1), or none."""
        try:
            msgspec.convert(self.fields or NO_RESULT, ResultFields)
        except msgspec.ValidationError:
            return False
        return True


class GotAck(Message, tag=11):
    """The ack is known here; `known`: there was a copy (A5)."""

    id: Id
    known: bool
    holders: Number


class DelJob(Message, tag=12):
    """Forget the job and leave a tombstone (A10)."""

    id: Id
    holders: Number
    left_ms: Number
    is_untold: bool = False  # as that of SetAck


class NeedJobs(Message, tag=13):
    """The sender wants jobs of the queue; count 0: no longer (F2)."""

    queue: bytes
    count: Number
    is_waiting: bool  # clients wait there; else its queue ran empty


class YourJobs(Message, tag=14):
    """Jobs to serve now (F3)."""

    queue: bytes
    jobs: list[ReplJob]


class GotJobs(Message, tag=15):
    """Reply to YourJobs: jobs taken, and jobs refused (F2.3)."""

    ids: list[Id]
    refused: list[Id]


class Moved(Message, tag=16):
    """The sender handed the job to other holders to serve (F4)."""

    id: Id
    holders: Number
    left_ms: Number


class Left(Message, tag=17):
    """The sender no longer has copies of these jobs (K7.2)."""

    ids: list[Id]


class Pause(Message, tag=18):
    """PAUSE ... BCAST (P3)."""

    queue: bytes
    bits: Annotated[int, Meta(ge=0, le=3)]
    stamp_ns: Instant  # instant of the command; the latest wins


class Ask(Message, tag=19):
    """Do you have copies of these jobs? (K5.2)"""

    number: Number  # of the question, for its reply
    ids: list[Id]
    is_short: bool  # the sender knows too few copies: name the nodes that have some (K5.4)
    stands: bytes  # per job: how close the sender is to delivering it (Q12)

    def check(self) -> bool:
        """Whether the stands are of these jobs (Q12.1)."""
        return len(self.stands) <= len(self.ids) and len(self.stands.strip(STANDS)) == 0


class Lack(Message, tag=20):
    """Reply to Ask: no copies of these here, but of all others asked for (K5.2)."""

    number: Number
    ids: list[Id]


class Holders(Message, tag=23):
    """More nodes may have a copy of this job (R4.2)."""

    id: Id
    holders: Number


class Release(Message, tag=24):
    """Enough holders have these jobs: surplus copies may be dropped (R3.4)."""

    ids: list[Id]
    holders: Number


class Heartbeat(Message, tag=21):
    """The sender is alive; what it knows of other nodes (K4.1)."""

    round: Number  # the sender's number of this heartbeat; 0: it only says the flags (K4.5)
    echo: Number  # the newest round of the receiver that the sender has seen on this link
    flags: Number  # LEAVING, LOADING and FAILING of the sender, see cluster/member.py
    port: Port  # where its clients connect
    nodes: list[Gossip]
    timeout: Times = 0  # `cluster-node-timeout` of the sender, ms; 0: not told

    def check(self) -> bool:
        """Whether each is a possible node: it goes into nodes.conf."""
        return all(are_hex(told.node_id) for told in self.nodes)


class Gossip(Message, tag=22):
    """One node as the heartbeat's sender sees it."""

    node_id: NodeId
    host: Host
    port: Port
    bus_port: Port
    flags: Number
    removal: Times  # > 0: forgotten, with that number (K6.1)


class Refusal(Message, tag=25):
    """Sent in place of a first heartbeat: why the link is refused (K1, K6)."""

    text: str
    twin: str = ""  # address of another live node with the id of the receiver (K1.3)
    removal: Number = 0  # > 0: the receiver was forgotten, with that number (K6.4)


class TubeAt(Message, tag=26):
    """A tube as the sender, its leader or not, knows it (T17.2)."""

    name: Tube
    maker: NodeId  # with made_ns: which of the tubes that ever had this name
    made_ns: Instant
    home: NodeId
    epoch: Number
    seq: Number  # latest change that the sender knows
    begin_seq: Number  # the last change before this leader began
    sync: Small
    ttl_ms: Number
    ttr_ms: Number
    pri: Number
    capacity: Number
    next_number: Number
    flags: Number  # of tubes/log/catalog.py: temporary, dropped, running
    words: Annotated[
        list[Word], Meta(min_length=4, max_length=4)
    ]  # type, storage mode, engine, callback
    family: Family  # of the lists whose voters choose its leader; all 0: none (T23.7)
    moves: Number  # how often it has moved to another family
    from_number: Number  # of that family's list, until it has been led there; 0: it has

    def check(self) -> bool:
        """Whether its ids are of nodes."""
        return are_hex(self.maker, self.home)


class TubesTold(Message, tag=27):
    """What the sender knows of tubes: all of it, or the changes (T17.2)."""

    is_all: bool
    flags: Number  # of the sender: READ_ONLY
    port: Port  # its IPROTO port, 0: none
    tubes: list[TubeAt]

    def check(self) -> bool:
        """Whether the ids are of nodes."""
        return all(at.check() for at in self.tubes)


class TubeClaim(Message, tag=28):
    """The sender wants to create the tube, to lead it by force, or to hand it over.

    T17.5, T21, T20.1.
    """

    name: Tube
    number: Number  # of the question, for its reply
    epoch: Number  # of the new leader: the sender, or with `is_move` the receiver; 0: create
    maker: Annotated[
        bytes, Meta(max_length=NODE_ID_BYTES)
    ]  # which tube is meant; empty: no known one
    made_ns: Instant
    is_move: bool  # the sender leads and wants the receiver to

    def check(self) -> bool:
        """Whether the maker is a node, or not known."""
        return len(self.maker) in (0, NODE_ID_BYTES) and are_hex(self.maker)


class TubeClaimed(Message, tag=29):
    """Reply to TubeClaim: free, or not; and which changes the sender has (T21.1).

    To a leader that hands the tube over: whether anybody would get a task here (T20.1).
    """

    name: Tube
    number: Number
    answer: Number
    copy_epoch: Number
    seq: Number
    is_complete: bool


class TubeCopy(Message, tag=30):
    """Changed tasks, or a piece of a walk through all (T18.2, T18.3)."""

    name: Tube
    maker: NodeId
    made_ns: Instant
    epoch: Number
    from_seq: Number
    to_seq: Number
    now_ms: Number  # the leader's clock, to which the records refer
    next_number: Number
    flags: Number  # of tubes/log/send.py: which part of a walk, whether it must be on the disk
    records: bytes  # of core/records/tubes.py
    gone: list[Number]  # numbers of tasks that ended
    sessions: list[tuple[Above0, Uuid, Word]]  # of holders: number, uuid, user (T20.5)

    def check(self) -> bool:
        """Whether the maker is a node, and the changes are in their order."""
        return self.from_seq <= self.to_seq and are_hex(self.maker)


class TubeGot(Message, tag=31):
    """The changes that the sender has (T18.2), or where it wants to continue (T18.3)."""

    name: Tube
    maker: NodeId
    made_ns: Instant
    known: Number  # newest epoch it knows
    epoch: Number  # epoch that `seq` refers to
    seq: Number
    flags: Number

    def check(self) -> bool:
        """Whether its ids are of nodes."""
        return are_hex(self.maker)


class TubeYours(Message, tag=32):
    """The receiver is now the tube's leader (T20.3)."""

    name: Tube
    maker: NodeId
    made_ns: Instant
    epoch: Number
    seq: Number
    next_number: Number
    token: Number
    family: Family  # as in TubeAt
    moves: Number
    from_number: Number

    def check(self) -> bool:
        """Whether its ids are of nodes."""
        return are_hex(self.maker)


class VotersTold(Message, tag=38):
    """[T23] The list of voters that the sender proposes, has recorded, or goes by."""

    number: Above0
    origin: Origin  # which list was the first one
    voters: Annotated[list[Voter], Meta(min_length=1, max_length=SLOTS)]
    step: Number  # of tubes/model/voter_state.py
    flags: Byte  # of it, too: whether it is solo

    def check(self) -> bool:
        """Whether the ids are of nodes, and a solo list has one."""
        if self.flags > 0 and len(self.voters) > 1:
            return False
        return are_hex(*[node_id for node_id, _, _ in self.voters])


class TubePulse(Message, tag=39):
    """[T25] The sender, a voter, is alive: what it has heard (T25.1)."""

    list_number: Number
    origin: Origin
    round: Number  # the sender's number of this pulse
    echo: Number  # the newest round of the receiver that the sender has heard
    may_vouch: bool  # its echo and its votes count
    is_whole: bool  # it has all of every tube that is led by votes
    timeout_ms: Above0  # cluster-node-timeout of the sender
    is_asking: bool  # it started, and does not know yet whether its disk is an old one (T29.3)
    disk: Disk  # of the sender
    right: Number  # of that disk
    mark: Number  # of the sender under that right
    known_right: Number  # the highest right of the receiver that the sender has heard of
    known_mark: Number  # and the highest mark under it


class StandAt(Message, tag=40):
    """Where the sender stands about a tube (T24)."""

    name: Tube
    maker: NodeId
    made_ns: Instant
    epoch: Number
    node: NodeId  # the node that the sender stands with
    is_up: bool  # the sender leads the tube under this epoch, or asks for votes
    settled: Number  # the list under which the sender, its leader, has settled it; 0: none
    family: Family  # as in TubeAt, and as on the sender's disk
    moves: Number
    from_number: Number

    def check(self) -> bool:
        """Whether its ids are of nodes."""
        return are_hex(self.maker, self.node)


class TubeStands(Message, tag=41):
    """Where the sender stands: about all tubes, or about those that changed (T24)."""

    is_all: bool
    stands: list[StandAt]

    def check(self) -> bool:
        """Whether the ids are of nodes."""
        return all(at.check() for at in self.stands)


class VoteAt(Message, tag=42):
    """A tube that the sender wants to lead (T26)."""

    name: Tube
    maker: NodeId
    made_ns: Instant
    epoch: Number  # under which it would lead
    copy_epoch: Number  # what it has of the tube
    seq: Number
    moves: Number  # as in TubeAt; the family is that of the list
    from_number: Number


class TubeVote(Message, tag=43):
    """[T27] The sender asks for votes, or who would vote (T26)."""

    list_number: Number
    origin: Origin
    is_survey: bool  # answer, and change nothing
    tubes: list[VoteAt]

    def check(self) -> bool:
        """Whether the ids are of nodes."""
        return are_hex(*[at.maker for at in self.tubes])


class VotedAt(Message, tag=44):
    """The answer about one tube (T26)."""

    name: Tube
    maker: NodeId
    made_ns: Instant
    epoch: Number  # that was asked for
    answer: Annotated[int, Meta(ge=0, le=15)]  # of tubes/model/voter_state.py
    stand_epoch: Number  # where the sender stands
    copy_epoch: Number  # what it has of the tube
    seq: Number


class TubeVoted(Message, tag=45):
    """Reply to TubeVote (T26)."""

    list_number: Number
    origin: Origin
    is_survey: bool
    tubes: list[VotedAt]

    def check(self) -> bool:
        """Whether the ids are of nodes."""
        return are_hex(*[at.maker for at in self.tubes])


class VotersNext(Message, tag=46):
    """[T28] One step of agreeing on the next list of voters (T28.2)."""

    number: Above0  # of the list to be agreed on
    origin: Origin
    step: Number  # of tubes/model/voter_state.py
    attempt: Number  # which attempt it is, together with `node`
    node: NodeId
    written_attempt: Number  # the attempt whose list the sender has written down; 0: none
    written_node: NodeId
    voters: Annotated[list[Voter], Meta(max_length=SLOTS)]  # that list
    tube: Annotated[bytes, Meta(max_length=TUBE_MAX)]  # which is not settled

    def check(self) -> bool:
        """Whether the ids are of nodes."""
        return are_hex(self.node, self.written_node, *[node_id for node_id, _, _ in self.voters])


class Belongings(Message, tag=48):
    """[K3] Of two nodes that meet, before they are members of one cluster: what must not clash."""

    origin: Annotated[
        bytes, Meta(max_length=ORIGIN_BYTES)
    ]  # of the list of voters in force; empty: there is none
    tubes: list[TubeAt]

    def check(self) -> bool:
        """Whether these can be the tubes of a node, and its list or none (K3.4)."""
        return len(self.origin) in (0, ORIGIN_BYTES) and all(at.check() for at in self.tubes)


VoteMessage = VotersTold | VotersNext | TubePulse | TubeStands | TubeVote | TubeVoted
HomeMessage = TubesTold | TubeClaim | TubeClaimed | TubeCopy | TubeGot | TubeYours
TubeMessage = HomeMessage | VoteMessage

AnyMessage = (
    Slots | ReplJob | ReplJobs | GotJob | Enqueue | Enqueued | Queued | WillQueue | Delivered
    | Working | SetAck | GotAck | DelJob | NeedJobs | YourJobs | GotJobs | Moved | Left | Pause
    | Ask | Lack | Holders | Release | Heartbeat | Refusal | LifeAt | JobAsk | JobTold
    | TopicsTold | QueuesTold | QueuePurge | QueuePurged | Belongings
    | TubesTold | TubeClaim | TubeClaimed | TubeCopy | TubeGot | TubeYours
    | VotersTold | VotersNext | TubePulse | TubeStands | TubeVote | TubeVoted
)  # fmt: skip
"""Every message that can be sent in a frame."""

CHECKS: Final[dict[type, Callable[[Any], bool]]] = {
    kind: kind.check for kind in get_args(AnyMessage) if "check" in vars(kind)
}
"""What no type can say, by kind of message: whether it can be."""
