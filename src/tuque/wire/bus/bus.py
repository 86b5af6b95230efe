"""Frames of the bus: many messages, one length, one code (SPEC B2).

    length u32 | keyed code, 16 bytes | msgpack list of messages                   under a secret
    length u32 | CRC-32 u32, mixed with the connection's salt | the same         without a secret

Nothing is trusted before it is checked: the length against a bound, the code, the counts
inside against the bytes present (msgspec does), and each message against the range of its
fields. The core defines what a message means.
"""

from collections.abc import Callable
from typing import Final, final
from zlib import crc32

import msgspec
from mypy_extensions import i64

from tuque.cluster.kept import is_node_id
from tuque.core.life.cancel_update import SAID_MAX, WHAT_MAX
from tuque.core.msgs import (
    LARGE_BODY,
    AnyMessage,
    Ask,
    Belongings,
    Delivered,
    DelJob,
    Enqueue,
    Gossip,
    GotAck,
    GotJob,
    Heartbeat,
    Hold,
    HoldTold,
    JobAsk,
    JobTold,
    LifeAt,
    Moved,
    NeedJobs,
    Pause,
    Queued,
    ReplFields,
    ReplJob,
    ReplJobs,
    SetAck,
    Slots,
    TopicsTold,
    TubeClaim,
    TubeClaimed,
    TubeCopy,
    TubeGot,
    TubePulse,
    TubeStands,
    TubesTold,
    TubeVote,
    TubeVoted,
    TubeYours,
    VotersNext,
    VotersTold,
    Working,
    YourJobs,
    are_subscriptions,
)
from tuque.wire.bus.sanity import (
    NUMBER_LAST,
    in_range,
    is_instant,
    is_port,
    is_sane_tube,
    is_sane_vote,
    may_meet,
)
from tuque.wire.bus.seal import CODE_BYTES, Arriving, Coder, Seal

HEAD_BYTES: Final = 8
SEALED_HEAD_BYTES: Final = 4 + CODE_BYTES
STANDS: Final = bytes(range(4))  # of jobs in ASK (Q12.1)
FRAME_BYTES: Final = 1 << 20  # frames are split between messages above it
SLACK_BYTES: Final = 1 << 20  # a frame with one large body may exceed its limit by this
ID_BYTES: Final = 40
SET_MAX: Final = 1 << 62
NUMBER_MAX: Final = 1 << 62
SET_LAST: Final = (1 << 62) - 1  # compiled code compares with these without making an object
TIMES_MAX: Final = 1 << 40  # most starts or removals of a node
COUNT_MAX: Final = (
    1 << 30
)  # deliveries, nacks: they keep growing here in 32 bits; tubes/log/receive.py
QUEUE_MAX: Final = 536_870_912

REASON_MAX: Final = 2_048
BYTES: Final = 0
INT: Final = 1
MAYBE: Final = 2
FIELD_KINDS: Final = [BYTES, INT, INT, BYTES, BYTES, MAYBE, BYTES, BYTES, BYTES, INT]

NO_BODY: Final = b"\xc4\x00"  # as MessagePack writes it
LONG: Final = b"\xc6"  # bytes with a length of 32 bits

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[AnyMessage])
_FIELDS: Final[Callable[[ReplJob], ReplFields]] = msgspec.structs.astuple


class BusError(Exception):
    """The other end violated the protocol of the bus; the text says how."""


class SealError(BusError):
    """A frame was not made by the other end, or does not come in its turn (B2.7)."""


def encoded(messages: list[AnyMessage]) -> bytes:
    """The messages in order, as the payload of a frame."""
    return _ENCODER.encode(messages)


def frames_of(messages: list[AnyMessage], salt: i64, seal: Seal | None = None) -> bytes:
    """Encode the messages in order, as one frame unless they are large (B2.1)."""
    return frames_with(messages, encoded(messages), salt, seal)


def frames_with(
    messages: list[AnyMessage], payload: bytes, salt: i64, seal: Seal | None, total: i64 = -1
) -> bytes:
    """The same of messages that are encoded already; `total`: their checksum, -1 if not known."""
    if len(payload) > FRAME_BYTES and len(messages) > 1:
        half = len(messages) // 2
        first = frames_of(messages[:half], salt, seal)
        return first + frames_of(messages[half:], salt, seal)
    if seal is not None:
        return sealed(payload, seal)
    if total < 0:
        total = crc32(payload)
    return b"%s%s" % (head_with(len(payload), total ^ salt), payload)


def is_large(message: AnyMessage) -> bool:
    """Whether it has a frame of its own, without a copy of its body (B2.8)."""
    if isinstance(message, ReplJob):
        return len(message.body) >= LARGE_BODY
    return isinstance(message, TubeCopy) and len(message.records) >= LARGE_BODY


def parts_of(message: AnyMessage) -> list[bytes]:
    """The payload of a frame with this large message alone, its body or records as they are."""
    if isinstance(message, TubeCopy):
        body = message.records
        text = _ENCODER.encode([msgspec.structs.replace(message, records=b"")])
        before: list[object] = [message.name, message.maker, message.made_ns, message.epoch]
        before += [message.from_seq, message.to_seq, message.now_ms]
        before += [message.next_number, message.flags]
    else:
        assert isinstance(message, ReplJob)
        body = message.body
        text = _ENCODER.encode([msgspec.structs.replace(message, body=b"")])
        before = [message.id, message.queue]
    at = 3 + sum([len(_ENCODER.encode(field)) for field in before])
    assert text[at : at + 2] == NO_BODY  # behind two lengths and the tag
    return [text[:at] + LONG + len(body).to_bytes(4, "big"), body, text[at + 2 :]]


def sealed(payload: bytes, seal: Seal) -> bytes:
    """The next frame under a secret (B2.7)."""
    return b"%s%s%s" % (len(payload).to_bytes(4, "big"), seal.code(payload), payload)


def head_of(payload: bytes, salt: i64) -> bytes:
    """Length and checksum."""
    return head_with(len(payload), crc32(payload) ^ salt)


def head_with(size: i64, code: i64) -> bytes:
    """The same of numbers."""
    head: int = size << 32 | code
    return head.to_bytes(HEAD_BYTES, "big")


def messages_of(payload: bytes) -> list[AnyMessage]:
    """Decode a frame's messages; its checksum was right. Raises BusError."""
    try:
        messages: list[AnyMessage] = _DECODER.decode(payload)
    except Exception as error:  # B2.5: decoders have many ways to fail
        raise BusError(f"a frame is not a list of messages: {error}") from None
    for message in messages:
        if not is_sane(message):
            raise BusError(f"a {type(message).__name__} has fields out of range")  # R2.1
    return messages


def u32(data: bytes, at: i64) -> i64:
    """The number in four bytes, the highest first."""
    a: i64 = data[at]
    b: i64 = data[at + 1]
    c: i64 = data[at + 2]
    d: i64 = data[at + 3]
    return a << 24 | b << 16 | c << 8 | d


@final
class FrameReader:
    """Cuts a stream of bytes into the payloads of frames."""

    def __init__(self, limit_bytes: i64) -> None:
        self.limit_bytes = limit_bytes
        self.salt: i64 = 0
        self.seal: Seal | None = None  # checks the frames from now on
        self.head_bytes: i64 = HEAD_BYTES
        self.parts: list[bytes] = []  # received, not returned yet
        self.at: i64 = 0  # read position in the first part
        self.held_bytes: i64 = 0
        self.need_bytes: i64 = HEAD_BYTES  # held bytes from which decoding is worth trying
        self.large: Arriving | None = None  # the next frame, if it is large and has come in part

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        if self.large is not None:
            at = self.large.add(data, 0)
            if at == len(data):
                return
            data = data[at:]
        self.parts.append(data)
        self.held_bytes += len(data)

    def unseal(self, seal: Seal) -> None:
        """Expect frames under a secret from now on."""
        self.seal = seal
        self.head_bytes = SEALED_HEAD_BYTES
        self.need_bytes = SEALED_HEAD_BYTES

    def next(self) -> bytes | None:
        """The payload of the next whole frame; None if it is incomplete. Raises BusError."""
        if self.large is not None:
            return self.next_large(self.large)
        if self.held_bytes < self.need_bytes:
            return None
        if len(self.parts) > 1:
            self.parts[0] = self.parts[0][self.at :]
            self.parts = [b"".join(self.parts)]
            self.at = 0
        data = self.parts[0]
        at = self.at
        size = u32(data, at)
        head = self.head_bytes
        end = head + size
        if size > self.limit_bytes:
            text = f"a frame of {size} bytes, the limit is {self.limit_bytes}"
            raise BusError(text) if self.seal is None else SealError(text)
        if self.held_bytes < end:
            if size >= FRAME_BYTES:
                self.begin_large(data, at, size)
            else:
                self.need_bytes = end
            return None
        payload = data[at + head : at + end]
        self.check(data[at + 4 : at + head], payload)
        self.held_bytes -= end
        if self.held_bytes == 0:
            self.parts = []
            self.at = 0
        else:
            self.at = at + end
        self.need_bytes = head
        return payload

    def begin_large(self, data: bytes, at: i64, size: i64) -> None:
        """[B2] The next frame is large: gather it, and go on with its code as it comes (B2.8)."""
        body = at + self.head_bytes
        self.large = Arriving(size, data[at + 4 : body], Coder(self.seal, self.salt))
        self.large.add(data, body)
        self.parts = []
        self.at = 0
        self.held_bytes = 0
        self.need_bytes = self.head_bytes

    def next_large(self, large: Arriving) -> bytes | None:
        """The payload of a large frame, once it is whole. Raises BusError."""
        if large.left > 0:
            return None
        self.large = None
        if not large.fits():
            raise self.wrong_code()
        return large.payload()

    def check(self, code: bytes, payload: bytes) -> None:
        """Whether the other end made this frame, and in this place. Raises BusError."""
        seal = self.seal
        if seal is None:
            if crc32(payload) ^ self.salt != u32(code, 0):
                raise self.wrong_code()
        elif not seal.fits(code, payload):
            raise self.wrong_code()

    def wrong_code(self) -> BusError:
        """The error of a frame that the other end did not make, or not in this place."""
        if self.seal is None:
            return BusError("a frame has a wrong checksum")
        return SealError("a frame has a wrong code: it was changed, repeated, left out or moved")


def is_id(id: bytes) -> bool:
    """Whether it can be a job id."""
    return len(id) == ID_BYTES


def are_ids(ids: list[bytes]) -> bool:
    """Whether all can be job ids."""
    for id in ids:  # noqa: SIM110  mypyc compiles a loop well, and a generator not
        if len(id) != ID_BYTES:
            return False
    return True


def is_host(host: str) -> bool:
    """Whether it can be one word in a line of nodes.conf."""
    return host.isascii() and host.isprintable() and " " not in host


def is_sane_gossip(m: Gossip) -> bool:
    """Whether it is a possible node: its fields go into nodes.conf."""
    return (
        is_node_id(m.node_id)
        and is_host(m.host)
        and is_port(m.port)
        and is_port(m.bus_port)
        and in_range(m.flags)
        and 0 <= m.removal < TIMES_MAX
    )


def is_sane_job(m: ReplJob) -> bool:
    """Whether the fields of a copy are in range."""
    f = _FIELDS(m)  # in the order of ReplJob; as names that are not used they would be boxed
    left_ms, due_ms, retry_s, delay_s, repl = f[4], f[5], f[6], f[7], f[8]
    nacks, deliveries, mode = f[9], f[10], f[12]
    return (
        is_sane_set(f[0], f[11])
        and 0 < left_ms <= NUMBER_LAST
        and 0 <= due_ms <= NUMBER_LAST
        and is_instant(f[3])
        and 0 <= retry_s < 1 << 31
        and 0 <= delay_s < 1 << 31
        and 0 < repl <= 65_535
        and 0 <= nacks < COUNT_MAX
        and 0 <= deliveries < COUNT_MAX
        and 0 <= mode < 256
    )


def are_sane_jobs(m: ReplJobs) -> bool:
    """Whether the fields of several copies are in range."""
    for id, _, ctime_ns in m.others:
        if len(id) != ID_BYTES or not is_instant(ctime_ns):
            return False
    return is_sane_job(m.first)


def are_sane(jobs: list[ReplJob]) -> bool:
    """The same of messages for one job each."""
    for job in jobs:  # noqa: SIM110  as above
        if not is_sane_job(job):
            return False
    return True


def is_sane_hold(m: Hold) -> bool:
    """Whether the numbers of a change are in range."""
    return (
        is_id(m.id)
        and 0 < m.what <= WHAT_MAX
        and in_range(m.serial)
        and -1 <= m.due_ms < NUMBER_MAX
        and 0 < m.left_ms < NUMBER_MAX
    )


def is_sane_answer(m: HoldTold) -> bool:
    """Whether a holder's answer is in range."""
    return (
        is_id(m.id)
        and 0 <= m.said <= SAID_MAX
        and in_range(m.serial, m.since_ms)
        and 0 <= m.holders < SET_MAX
    )


def is_sane_set(id: bytes, holders: int) -> bool:
    """Whether these can be a job and its holders."""
    return len(id) == ID_BYTES and 0 <= holders <= SET_LAST


def is_sane(m: AnyMessage) -> bool:
    """Whether the fields of a message are in range; the core relies on it (B2.1)."""
    if type(m) is ReplJob:  # isinstance would ask the metaclass of each class
        return is_sane_job(m)
    if type(m) is ReplJobs:
        return are_sane_jobs(m)
    if type(m) is SetAck or type(m) is DelJob or type(m) is Moved:
        return is_sane_set(m.id, m.holders) and 0 <= m.left_ms <= NUMBER_LAST
    if type(m) is GotAck:
        return is_sane_set(m.id, m.holders)
    if type(m) is GotJob:
        return are_ids(m.ids)
    if type(m) is Delivered or type(m) is Working:
        return is_id(m.id) and in_range(m.left_ms)
    if type(m) is LifeAt:
        return is_id(m.id) and 0 < m.left_ms < NUMBER_MAX and in_range(m.due_ms)
    if type(m) is JobAsk:
        return is_id(m.id) and 0 < m.what <= 2 and len(m.reason) <= REASON_MAX
    if type(m) is JobTold:
        return is_id(m.id) and 0 <= m.became < 4 and are_fields(m.fields)
    if type(m) is Hold:
        return is_sane_hold(m)
    if type(m) is HoldTold:
        return is_sane_answer(m)
    if type(m) is Queued:
        return is_id(m.id) and 0 <= m.how < 256
    if type(m) is Enqueue:
        return is_id(m.id) and in_range(m.delay_ms)
    if type(m) is YourJobs:
        return are_sane(m.jobs)
    if type(m) is NeedJobs:
        return in_range(m.count)
    if type(m) is Pause:
        return 0 <= m.bits < 4 and is_instant(m.stamp_ns)
    if type(m) is Slots:
        for number, node_id, life in m.nodes:
            if number < 0 or number >= 62 or len(node_id) != ID_BYTES or not in_range(life):
                return False
        return True
    if type(m) is Heartbeat:
        for told in m.nodes:
            if not is_sane_gossip(told):
                return False
        return in_range(m.round, m.echo, m.flags) and is_port(m.port)
    if isinstance(m, TubeCopy | TubeGot | TubesTold | TubeYours | TubeClaim | TubeClaimed):
        return is_sane_tube(m)
    if isinstance(m, VotersTold | VotersNext | TubePulse | TubeStands | TubeVote | TubeVoted):
        return is_sane_vote(m)
    return is_sane_other(m)


def are_fields(fields: list[bytes | int | None]) -> bool:
    """Whether these can be the values of RESULT, in their order (W9.1); or none."""
    if len(fields) == 0:
        return True
    if len(fields) != len(FIELD_KINDS):
        return False
    for i in range(len(fields)):
        value = fields[i]
        kind = FIELD_KINDS[i]
        if isinstance(value, int):
            if kind != INT or not in_range(value):
                return False
        elif value is None:
            if kind != MAYBE:
                return False
        elif kind == INT:
            return False
    return True


def is_sane_other(m: AnyMessage) -> bool:
    """The same for messages about many jobs, and for rare ones."""
    if isinstance(m, Belongings):
        return may_meet(m)
    if isinstance(m, TopicsTold):
        return are_subscriptions(m)
    ids: object = getattr(m, "ids", None)
    if isinstance(ids, list) and not are_ids(ids):
        return False
    refused: object = getattr(m, "refused", None)
    if isinstance(refused, list) and not are_ids(refused):
        return False
    id: object = getattr(m, "id", None)
    if isinstance(id, bytes) and len(id) != ID_BYTES:
        return False
    if isinstance(m, Ask) and (len(m.stands) > len(m.ids) or len(m.stands.strip(STANDS)) > 0):
        return False
    number: object = getattr(m, "number", 0)
    holders: object = getattr(m, "holders", 0)
    return (
        isinstance(number, int)
        and 0 <= number < NUMBER_MAX
        and isinstance(holders, int)
        and 0 <= holders < SET_MAX
    )
