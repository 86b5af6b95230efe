"""Messages between nodes: one class per bus message (SPEC B3).

A message names nodes by the sender's slot numbers, as bit sets; `Slots` introduces each
number on a link before it is used (core/node/peers.py). Times are remaining milliseconds
(B2.3), each with one meaning (B2.6). The rule that receives a message defines its meaning,
wire/bus/bus.py its encoding. msgspec makes these classes: mypyc does not compile this module.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tuque.core.tables.topics import (
    FILTERS_MAX,
    GLOB_MAX,
    NAME_MAX,
    QUEUE_MAX,
    TOPIC_MAX,
    VERSION_MAX,
)

ID_BYTES: Final = 40

LARGE_BODY: Final = 1 << 20  # bytes from which a copy has a frame of its own (B2.8)
NO_REPLY: Final = 1  # ReplJob.mode: the sender wants no GotJob
REPAIR: Final = 2  # ReplJob.mode: repairs a lost copy (K5.3)
CUSTODY: Final = 4  # ReplJob.mode: carries the right to deliver an at-most-once job

COUNT_NACK: Final = 1  # Queued.how: the counter to increment
COUNT_DELIVERY: Final = 2
HAS_QUEUED: Final = 4  # Queued.how: the sender has the job queued now (Q4.3)
WAS_ASKED: Final = 8  # Queued.how: a client sent ENQUEUE or RELEASE (Q4.5)


class Message(msgspec.Struct, array_like=True, gc=False):
    """A message to one peer."""


# ---- Subscriptions to topics (SPEC T60.4)


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


# ---- Jobs, nodes, tubes and votes (SPEC B3)


class Slots(Message, tag=1):
    """The sender's slot numbers, the node ids and incarnations they stand for (K2.2)."""

    nodes: list[tuple[int, bytes, int]]


class ReplJob(Message, tag=2):
    """Keep a copy of this job (R2)."""

    id: bytes
    queue: bytes
    body: bytes
    ctime_ns: int
    left_ms: int  # remaining TTL
    due_ms: int  # until the receiver queues it; 0: in REPLJOB its RETRY, in YOURJOBS now
    retry_s: int
    delay_s: int
    repl: int
    nacks: int
    deliveries: int
    holders: int
    mode: int
    life: bytes = b""  # of core/queues/merge_work.py


ReplFields = tuple[
    bytes, bytes, bytes, int, int, int, int, int, int, int, int, int, int, bytes
]  # fmt: skip
"""The fields of a ReplJob: all at once they cost compiled code as much as two of them."""


class ReplJobs(Message, tag=47):
    """Keep copies of new jobs: of one, and of others that differ from it only in these (R1.12)."""

    first: ReplJob
    others: list[tuple[bytes, bytes, int]]  # id, body, ctime_ns


class GotJob(Message, tag=3):
    """These jobs are stored here (R3)."""

    ids: list[bytes]


class Enqueue(Message, tag=4):
    """Queue your copy after the delay and serve it (R8)."""

    id: bytes
    delay_ms: int


class Enqueued(Message, tag=5):
    """Reply to Enqueue: done now or before (R6.2)."""

    ids: list[bytes]


class Queued(Message, tag=6):
    """The sender has put the job into its queue (Q4)."""

    id: bytes
    how: int


class WillQueue(Message, tag=7):
    """The sender is about to put these jobs into its queues (Q3)."""

    ids: list[bytes]


class Delivered(Message, tag=8):
    """The sender delivered the job; it would be due again in `left_ms` (Q9)."""

    id: bytes
    left_ms: int


class Working(Message, tag=9):
    """A worker at the sender asked for more time (Q9)."""

    id: bytes
    left_ms: int


class SetAck(Message, tag=10):
    """The job is acked; these nodes may have a copy (A4)."""

    id: bytes
    holders: int
    left_ms: int
    outcome: bytes = b""  # of core/queues/merge_work.py
    is_untold: bool = False  # no node has written the event of this end (E1.13)
    is_run_untold: bool = False  # nor that of the run in the outcome, which DONE named


class LifeAt(Message, tag=33):
    """The life of a job as the sender knows it (W14.2)."""

    id: bytes
    queue: bytes
    left_ms: int  # remaining TTL
    due_ms: int  # until its run is silent, or its back-off over
    life: bytes  # of core/queues/merge_work.py


class JobAsk(Message, tag=34):
    """What is known of this job? Or cancel it (W15)."""

    id: bytes
    what: int  # of core/life/lookup.py
    reason: bytes


class JobTold(Message, tag=35):
    """Reply to JobAsk (W15)."""

    id: bytes
    is_known: bool
    became: int  # of CANCEL as in core/life/cancel_update.py; else 0 or SHARED of life/lookup.py
    is_settled: bool
    fields: list[bytes | int | None] = []  # the values of RESULT


class Hold(Message, tag=36):
    """Hold the job, let it go, or change it (W16)."""

    id: bytes
    what: int  # of core/life/cancel_update.py
    serial: int  # comes back with the answer
    due_ms: int = -1  # until it is queued at the sender; -1: the change leaves that as it is
    left_ms: int = 1  # remaining TTL
    body: bytes = b""
    life: bytes = b""  # of core/queues/merge_work.py


class HoldTold(Message, tag=37):
    """Reply to Hold (W16.2)."""

    id: bytes
    serial: int
    said: int  # of core/life/cancel_update.py
    since_ms: int = 0  # how long a worker has it
    worker: bytes = b""
    holders: int = 0


class GotAck(Message, tag=11):
    """The ack is known here; `known`: there was a copy (A5)."""

    id: bytes
    known: bool
    holders: int


class DelJob(Message, tag=12):
    """Forget the job and leave a tombstone (A10)."""

    id: bytes
    holders: int
    left_ms: int
    is_untold: bool = False  # as that of SetAck


class NeedJobs(Message, tag=13):
    """The sender wants jobs of the queue; count 0: no longer (F2)."""

    queue: bytes
    count: int
    is_waiting: bool  # clients wait there; else its queue ran empty


class YourJobs(Message, tag=14):
    """Jobs to serve now (F3)."""

    queue: bytes
    jobs: list[ReplJob]


class GotJobs(Message, tag=15):
    """Reply to YourJobs: jobs taken, and jobs refused (F2.3)."""

    ids: list[bytes]
    refused: list[bytes]


class Moved(Message, tag=16):
    """The sender handed the job to other holders to serve (F4)."""

    id: bytes
    holders: int
    left_ms: int


class Left(Message, tag=17):
    """The sender no longer has copies of these jobs (K7.2)."""

    ids: list[bytes]


class Pause(Message, tag=18):
    """PAUSE ... BCAST (P3)."""

    queue: bytes
    bits: int
    stamp_ns: int  # instant of the command; the latest wins


class Ask(Message, tag=19):
    """Do you have copies of these jobs? (K5.2)"""

    number: int  # of the question, for its reply
    ids: list[bytes]
    is_short: bool  # the sender knows too few copies: name the nodes that have some (K5.4)
    stands: bytes  # per job: how close the sender is to delivering it (Q12)


class Lack(Message, tag=20):
    """Reply to Ask: no copies of these here, but of all others asked for (K5.2)."""

    number: int
    ids: list[bytes]


class Holders(Message, tag=23):
    """More nodes may have a copy of this job (R4.2)."""

    id: bytes
    holders: int


class Release(Message, tag=24):
    """Enough holders have these jobs: surplus copies may be dropped (R3.4)."""

    ids: list[bytes]
    holders: int


class Heartbeat(Message, tag=21):
    """The sender is alive; what it knows of other nodes (K4.1)."""

    round: int  # the sender's number of this heartbeat; 0: it only says the flags (K4.5)
    echo: int  # the newest round of the receiver that the sender has seen on this link
    flags: int  # LEAVING, LOADING and FAILING of the sender, see cluster/member.py
    port: int  # where its clients connect
    nodes: list[Gossip]


class Gossip(Message, tag=22):
    """One node as the heartbeat's sender sees it."""

    node_id: bytes
    host: str
    port: int
    bus_port: int
    flags: int
    removal: int  # > 0: forgotten, with that number (K6.1)


class Refusal(Message, tag=25):
    """Sent in place of a first heartbeat: why the link is refused (K1, K6)."""

    text: str
    twin: str = ""  # address of another live node with the id of the receiver (K1.3)
    removal: int = 0  # > 0: the receiver was forgotten, with that number (K6.4)


class TubeAt(Message, tag=26):
    """A tube as the sender, its leader or not, knows it (T17.2)."""

    name: bytes
    maker: bytes  # with made_ns: which of the tubes that ever had this name
    made_ns: int
    home: bytes
    epoch: int
    seq: int  # latest change that the sender knows
    begin_seq: int  # the last change before this leader began
    sync: int
    ttl_ms: int
    ttr_ms: int
    pri: int
    capacity: int
    next_number: int
    flags: int  # of tubes/log/catalog.py: temporary, dropped, running
    words: list[bytes]  # type, storage mode, engine, callback


class TubesTold(Message, tag=27):
    """What the sender knows of tubes: all of it, or the changes (T17.2)."""

    is_all: bool
    flags: int  # of the sender: READ_ONLY
    port: int  # its IPROTO port, 0: none
    tubes: list[TubeAt]


class TubeClaim(Message, tag=28):
    """The sender wants to create the tube, to lead it by force, or to hand it over.

    T17.5, T21, T20.1.
    """

    name: bytes
    number: int  # of the question, for its reply
    epoch: int  # of the new leader: the sender, or with `is_move` the receiver; 0: create
    maker: bytes  # which tube is meant; empty: no known one
    made_ns: int
    is_move: bool  # the sender leads and wants the receiver to


class TubeClaimed(Message, tag=29):
    """Reply to TubeClaim: free, or not; and which changes the sender has (T21.1).

    To a leader that hands the tube over: whether anybody would get a task here (T20.1).
    """

    name: bytes
    number: int
    answer: int
    copy_epoch: int
    seq: int
    is_complete: bool


class TubeCopy(Message, tag=30):
    """Changed tasks, or a piece of a walk through all (T18.2, T18.3)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int
    from_seq: int
    to_seq: int
    now_ms: int  # the leader's clock, to which the records refer
    next_number: int
    flags: int  # of tubes/log/send.py: which part of a walk, whether it must be on the disk
    records: bytes  # of core/records/tubes.py
    gone: list[int]  # numbers of tasks that ended
    sessions: list[tuple[int, bytes, bytes]]  # of holders: number, uuid, user (T20.5)


class TubeGot(Message, tag=31):
    """The changes that the sender has (T18.2), or where it wants to continue (T18.3)."""

    name: bytes
    maker: bytes
    made_ns: int
    known: int  # newest epoch it knows
    epoch: int  # epoch that `seq` refers to
    seq: int
    flags: int


class TubeYours(Message, tag=32):
    """The receiver is now the tube's leader (T20.3)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int
    seq: int
    next_number: int
    token: int


class VotersTold(Message, tag=38):
    """[T23] The list of voters that the sender proposes, has recorded, or goes by."""

    number: int
    origin: bytes  # which list was the first one
    voters: list[tuple[bytes, int]]  # node id, right
    step: int  # of tubes/model/voter_state.py


class TubePulse(Message, tag=39):
    """[T25] The sender, a voter, is alive: what it has heard (T25.1)."""

    list_number: int
    origin: bytes
    round: int  # the sender's number of this pulse
    echo: int  # the newest round of the receiver that the sender has heard
    may_vouch: bool  # its echo and its votes count
    is_whole: bool  # it has all of every tube that is led by votes
    timeout_ms: int  # cluster-node-timeout of the sender
    is_asking: bool  # it started, and does not know yet whether its disk is an old one (T29.3)
    right: int  # of the sender
    mark: int  # of the sender under that right
    known_right: int  # the highest right of the receiver that the sender has heard of
    known_mark: int  # and the highest mark under it


class StandAt(Message, tag=40):
    """Where the sender stands about a tube (T24)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int
    node: bytes  # the node that the sender stands with
    is_up: bool  # the sender leads the tube under this epoch, or asks for votes
    settled: int  # the list under which the sender, its leader, has settled it; 0: none


class TubeStands(Message, tag=41):
    """Where the sender stands: about all tubes, or about those that changed (T24)."""

    is_all: bool
    stands: list[StandAt]


class VoteAt(Message, tag=42):
    """A tube that the sender wants to lead (T26)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int  # under which it would lead
    copy_epoch: int  # what it has of the tube
    seq: int


class TubeVote(Message, tag=43):
    """[T27] The sender asks for votes, or who would vote (T26)."""

    list_number: int
    origin: bytes
    is_survey: bool  # answer, and change nothing
    tubes: list[VoteAt]


class VotedAt(Message, tag=44):
    """The answer about one tube (T26)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int  # that was asked for
    answer: int  # of tubes/model/voter_state.py
    stand_epoch: int  # where the sender stands
    copy_epoch: int  # what it has of the tube
    seq: int


class TubeVoted(Message, tag=45):
    """Reply to TubeVote (T26)."""

    list_number: int
    origin: bytes
    is_survey: bool
    tubes: list[VotedAt]


class VotersNext(Message, tag=46):
    """[T28] One step of agreeing on the next list of voters (T28.2)."""

    number: int  # of the list to be agreed on
    origin: bytes
    step: int  # of tubes/model/voter_state.py
    attempt: int  # which attempt it is, together with `node`
    node: bytes
    written_attempt: int  # the attempt whose list the sender has written down; 0: none
    written_node: bytes
    voters: list[tuple[bytes, int]]  # that list: node id, right
    tube: bytes  # which is not settled


class Belongings(Message, tag=48):
    """[K3] Of two nodes that meet, before they are members of one cluster: what must not clash."""

    origin: bytes  # of the list of voters in force; empty: there is none
    tubes: list[TubeAt]


VoteMessage = VotersTold | VotersNext | TubePulse | TubeStands | TubeVote | TubeVoted
HomeMessage = TubesTold | TubeClaim | TubeClaimed | TubeCopy | TubeGot | TubeYours
TubeMessage = HomeMessage | VoteMessage

AnyMessage = (
    Slots | ReplJob | ReplJobs | GotJob | Enqueue | Enqueued | Queued | WillQueue | Delivered
    | Working | SetAck | GotAck | DelJob | NeedJobs | YourJobs | GotJobs | Moved | Left | Pause
    | Ask | Lack | Holders | Release | Heartbeat | Refusal | LifeAt | JobAsk | JobTold
    | Hold | HoldTold | TopicsTold | Belongings
    | TubesTold | TubeClaim | TubeClaimed | TubeCopy | TubeGot | TubeYours
    | VotersTold | VotersNext | TubePulse | TubeStands | TubeVote | TubeVoted
)  # fmt: skip
"""Every message that can be sent in a frame."""
