"""What nodes say to each other: one class per bus message (SPEC B3).

A message names nodes by the sender's slot numbers, as bit sets; `Slots` introduces each
number on a link before it is used (core/node/slots.py). Times are remaining milliseconds
(B2.3), each with one meaning (B2.6). Plain data: what a message means is with the rule
that receives it, how it travels is wire/bus.py's. msgspec makes these classes, so that
mypyc does not compile this module.
"""

from __future__ import annotations

from typing import Final

import msgspec

NO_REPLY: Final = 1  # ReplJob.mode: the sender wants no GotJob
REPAIR: Final = 2  # ReplJob.mode: a copy that was lost is made again (K5.3)
CUSTODY: Final = 4  # ReplJob.mode: the right to hand out an at-most-once job comes with it

COUNT_NACK: Final = 1  # Queued.how: the counter that grows
COUNT_DELIVERY: Final = 2
HAS_QUEUED: Final = 4  # Queued.how: the sender has the job in its queue now (Q4.3)
WAS_ASKED: Final = 8  # Queued.how: a client said ENQUEUE (Q4.5)


class Message(msgspec.Struct, array_like=True, gc=False):
    """One thing said to one peer."""


class Slots(Message, tag=1):
    """The sender's slot numbers, the node ids and incarnations they stand for (K2.2)."""

    nodes: list[tuple[int, bytes, int]]


class ReplJob(Message, tag=2):
    """Keep a copy of this job (R2)."""

    id: bytes
    queue: bytes
    body: bytes
    ctime_ns: int
    left_ms: int  # to live
    due_ms: int  # until the receiver is to queue it; 0: of REPLJOB its RETRY, of YOURJOBS now
    retry_s: int
    delay_s: int
    repl: int
    nacks: int
    deliveries: int
    holders: int
    mode: int


class GotJob(Message, tag=3):
    """These jobs are stored here (R3)."""

    ids: list[bytes]


class Enqueue(Message, tag=4):
    """Put the copy into your queue after the delay: it is yours to serve (R8)."""

    id: bytes
    delay_ms: int


class Enqueued(Message, tag=5):
    """The answer to Enqueue: done, or known to have been done (R6.2)."""

    ids: list[bytes]


class Queued(Message, tag=6):
    """The sender has put the job into its queue (Q4)."""

    id: bytes
    how: int


class WillQueue(Message, tag=7):
    """The sender is about to put these jobs into its queues (Q3)."""

    ids: list[bytes]


class Delivered(Message, tag=8):
    """The sender has handed the job out; it would come back in `left_ms` (Q9)."""

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


class GotAck(Message, tag=11):
    """The ack is known here, `known` if there was a copy (A5)."""

    id: bytes
    known: bool
    holders: int


class DelJob(Message, tag=12):
    """Forget the job and leave a tombstone (A10)."""

    id: bytes
    holders: int
    left_ms: int


class NeedJobs(Message, tag=13):
    """Jobs of the queue are wanted at the sender; count 0: no longer (F2)."""

    queue: bytes
    count: int
    is_waiting: bool  # clients wait there now; else its queue ran empty


class YourJobs(Message, tag=14):
    """Jobs to serve from now on (F3)."""

    queue: bytes
    jobs: list[ReplJob]


class GotJobs(Message, tag=15):
    """The answer to YourJobs: taken, and not taken (F2.3)."""

    ids: list[bytes]
    refused: list[bytes]


class Moved(Message, tag=16):
    """The sender gave the job to other holders to serve (F4)."""

    id: bytes
    holders: int
    left_ms: int


class Left(Message, tag=17):
    """The sender has no copy of these jobs any more (K7.2)."""

    ids: list[bytes]


class Pause(Message, tag=18):
    """PAUSE ... BCAST (P3)."""

    queue: bytes
    bits: int
    stamp_ns: int  # when; the latest counts


class Ask(Message, tag=19):
    """Do you have copies of these jobs? (K5.2)"""

    number: int  # of the question, for its answer
    ids: list[bytes]
    is_short: bool  # the sender knows of too few copies: say which nodes have them (K5.4)
    stands: bytes  # of each job: how near the sender is to hand it out (Q12)


class Lack(Message, tag=20):
    """The answer to Ask: no copies of these here, but of all others asked for (K5.2)."""

    number: int
    ids: list[bytes]


class Holders(Message, tag=23):
    """More nodes may have a copy of this job (R4.2)."""

    id: bytes
    holders: int


class Release(Message, tag=24):
    """Enough of the holders have these jobs: copies nobody needs may go (R3.4)."""

    ids: list[bytes]
    holders: int


class Heartbeat(Message, tag=21):
    """The sender is there; what it knows of the others (K4.1)."""

    round: int  # the sender's number of this heartbeat
    echo: int  # the newest round of the receiver that the sender has seen on this link
    flags: int  # LEAVING and LOADING of the sender, see cluster/members.py
    port: int  # where its clients connect
    nodes: list[Gossip]


class Gossip(Message, tag=22):
    """One node as the sender of a heartbeat sees it."""

    node_id: bytes
    host: str
    port: int
    bus_port: int
    flags: int
    removal: int  # > 0: forgotten under that number (K6.1)


class Refusal(Message, tag=25):
    """Instead of a first heartbeat: the link must not be, and why (K1, K6)."""

    text: str


class TubeAt(Message, tag=26):
    """A tube as its home, or one that heard of it, knows it (T17.2)."""

    name: bytes
    maker: bytes  # with made_ns: which of all tubes that had this name
    made_ns: int
    home: bytes
    epoch: int
    seq: int  # of its latest change that the sender knows of
    begin_seq: int  # of the change that this home began after
    sync: int
    ttl_ms: int
    ttr_ms: int
    pri: int
    capacity: int
    next_number: int
    flags: int  # of tubes/replication/catalog.py: temporary, dropped, running
    words: list[bytes]  # type, storage mode, engine, callback


class TubesTold(Message, tag=27):
    """What the sender knows of tubes: all of it, or what is new (T17.2)."""

    is_all: bool
    flags: int  # of the sender: READ_ONLY
    port: int  # where its IPROTO clients connect, 0: nowhere
    tubes: list[TubeAt]


class TubeClaim(Message, tag=28):
    """The sender wants to make a tube of that name, to be its home by force, or to give it away.

    T17.5, T21, T20.1.
    """

    name: bytes
    number: int  # of the question, for its answer
    epoch: int  # 0: to make it; else that the sender, or with `is_move` the receiver, is home under
    maker: bytes  # which tube that is about; empty: none that is known
    made_ns: int
    is_move: bool  # the sender is the home, and the receiver shall be


class TubeClaimed(Message, tag=29):
    """The answer: free, or not; and which changes the sender has (T21.1).

    To a home that wants to give the tube away, whether anybody would get a task here (T20.1).
    """

    name: bytes
    number: int
    answer: int
    copy_epoch: int
    seq: int
    is_complete: bool


class TubeCopy(Message, tag=30):
    """What tasks that changed are like now, or a piece of a walk through all (T18.2, T18.3)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int
    from_seq: int
    to_seq: int
    now_ms: int  # the home's clock, on which the records stand
    next_number: int
    flags: int  # of tubes/replication/send.py: which part of a walk, whether it must be on the disk
    records: bytes  # of core/outbox/tube_records.py
    gone: list[int]  # numbers of tasks that are over
    sessions: list[tuple[int, bytes, bytes]]  # of holders: number, uuid, user (T20.5)


class TubeGot(Message, tag=31):
    """The changes that the sender has (T18.2), or from where it wants to be told (T18.3)."""

    name: bytes
    maker: bytes
    made_ns: int
    known: int  # newest epoch that it knows of
    epoch: int  # in which it counts
    seq: int
    flags: int


class TubeYours(Message, tag=32):
    """The receiver is the home of the tube from now on (T20.3)."""

    name: bytes
    maker: bytes
    made_ns: int
    epoch: int
    seq: int
    next_number: int
    token: int


TubeMessage = TubesTold | TubeClaim | TubeClaimed | TubeCopy | TubeGot | TubeYours

AnyMessage = (
    Slots | ReplJob | GotJob | Enqueue | Enqueued | Queued | WillQueue | Delivered | Working
    | SetAck | GotAck | DelJob | NeedJobs | YourJobs | GotJobs | Moved | Left | Pause | Ask | Lack
    | Holders | Release | Heartbeat | Refusal
    | TubesTold | TubeClaim | TubeClaimed | TubeCopy | TubeGot | TubeYours
)  # fmt: skip
"""Every message that may stand in a frame by itself."""
