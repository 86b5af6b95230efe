"""Frames of the bus: many messages, one length, one code (SPEC B2).

    length u32 | keyed code, 16 bytes | msgpack list of messages                   under a secret
    length u32 | CRC-32 u32, begun with the connection's salt | the same         without a secret

Nothing is trusted before it is checked: the length against a bound, the code, the counts
inside against the bytes present (msgspec does), and each message against the range of its
fields. The core defines what a message means.
"""

from typing import Final, final
from zlib import crc32

import msgspec
from mypy_extensions import i64

from tuque.cluster.kept import is_node_id
from tuque.core.life.holds import SAID_MAX, WHAT_MAX
from tuque.core.msgs.bus import (
    AnyMessage,
    Ask,
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
    ReplJob,
    SetAck,
    Slots,
    TubeAt,
    TubeClaim,
    TubeClaimed,
    TubeCopy,
    TubeGot,
    TubeMessage,
    TubesTold,
    TubeYours,
    Working,
    YourJobs,
)
from tuque.wire.seal.seal import CODE_BYTES, Seal

HEAD_BYTES: Final = 8
SEALED_HEAD_BYTES: Final = 4 + CODE_BYTES
STANDS: Final = bytes(range(4))  # of jobs in ASK (Q12.1)
FRAME_BYTES: Final = 1 << 20  # frames are split between messages above it
SLACK_BYTES: Final = 1 << 20  # a frame with one large body may exceed its limit by this
ID_BYTES: Final = 40
SET_MAX: Final = 1 << 62
NUMBER_MAX: Final = 1 << 62
SET_LAST: Final = (1 << 62) - 1  # compiled code compares with these without making an object
NUMBER_LAST: Final = (1 << 62) - 1
INSTANT_MAX_NS: Final = (1 << 63) - 1  # in 2262: a clock may be far ahead, and so its stamps
TIMES_MAX: Final = 1 << 40  # most starts or removals of a node
COUNT_MAX: Final = (
    1 << 30
)  # deliveries, nacks: they keep growing here in 32 bits; tubes/replication/receive.py
QUEUE_MAX: Final = 536_870_912
TUBE_MAX: Final = 512  # bytes of a tube's name
WORD_MAX: Final = 255  # of a tube's other words
UUID_BYTES: Final = 16

REASON_MAX: Final = 2_048
BYTES: Final = 0
INT: Final = 1
MAYBE: Final = 2
FIELD_KINDS: Final = [BYTES, INT, INT, BYTES, BYTES, MAYBE, BYTES, BYTES, BYTES, INT]

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[AnyMessage])


class BusError(Exception):
    """The other end violated the protocol of the bus; the text says how."""


class SealError(BusError):
    """A frame was not made by the other end, or does not come in its turn (B2.7)."""


def frames_of(messages: list[AnyMessage], salt: i64, seal: Seal | None = None) -> bytes:
    """Encode the messages in order, as one frame unless they are large (B2.1)."""
    payload = _ENCODER.encode(messages)
    if len(payload) > FRAME_BYTES and len(messages) > 1:
        half = len(messages) // 2
        first = frames_of(messages[:half], salt, seal)
        return first + frames_of(messages[half:], salt, seal)
    if seal is not None:
        return sealed(payload, seal)
    return head_of(payload, salt) + payload


def sealed(payload: bytes, seal: Seal) -> bytes:
    """The next frame under a secret (B2.7)."""
    return b"%s%s%s" % (len(payload).to_bytes(4, "big"), seal.code(payload), payload)


def head_of(payload: bytes, salt: i64) -> bytes:
    """Length and checksum."""
    return len(payload).to_bytes(4, "big") + crc32(payload, salt).to_bytes(4, "big")


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

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        self.parts.append(data)
        self.held_bytes += len(data)

    def unseal(self, seal: Seal) -> None:
        """Expect frames under a secret from now on."""
        self.seal = seal
        self.head_bytes = SEALED_HEAD_BYTES
        self.need_bytes = SEALED_HEAD_BYTES

    def next(self) -> bytes | None:
        """The payload of the next whole frame; None if it is incomplete. Raises BusError."""
        if self.held_bytes < self.need_bytes:
            return None
        if len(self.parts) > 1:
            self.parts[0] = self.parts[0][self.at :]
            self.parts = [b"".join(self.parts)]
            self.at = 0
        data = self.parts[0]
        at = self.at
        size: i64 = int.from_bytes(data[at : at + 4], "big")
        head = self.head_bytes
        end = head + size
        if size > self.limit_bytes:
            text = f"a frame of {size} bytes, the limit is {self.limit_bytes}"
            raise BusError(text) if self.seal is None else SealError(text)
        if self.held_bytes < end:
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

    def check(self, code: bytes, payload: bytes) -> None:
        """Whether the other end made this frame, and in this place. Raises BusError."""
        seal = self.seal
        if seal is None:
            if crc32(payload, self.salt) != int.from_bytes(code, "big"):
                raise BusError("a frame has a wrong checksum")
        elif not seal.fits(code, payload):
            raise SealError("a frame has a wrong code: it was changed, repeated, left out or moved")


def is_id(id: bytes) -> bool:
    """Whether it can be a job id."""
    return len(id) == ID_BYTES


def are_ids(ids: list[bytes]) -> bool:
    """Whether all can be job ids."""
    for id in ids:  # noqa: SIM110  mypyc compiles a loop well, and a generator not
        if len(id) != ID_BYTES:
            return False
    return True


def in_range(*numbers: int) -> bool:
    """Whether all are possible instants, spans or counts."""
    for number in numbers:  # noqa: SIM110  as above
        if number < 0 or number > NUMBER_LAST:
            return False
    return True


def is_instant(ns: int) -> bool:
    """Whether it can be an instant in ns since 1970."""
    return 0 <= ns <= NUMBER_LAST or NUMBER_LAST < ns < INSTANT_MAX_NS


def is_port(number: int) -> bool:
    """Whether it can be a port, or 0 for none."""
    return 0 <= number < 65_536


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
    return (
        is_sane_set(m.id, m.holders)
        and 0 < m.left_ms <= NUMBER_LAST
        and 0 <= m.due_ms <= NUMBER_LAST
        and is_instant(m.ctime_ns)
        and 0 <= m.retry_s < 1 << 31
        and 0 <= m.delay_s < 1 << 31
        and 0 < m.repl <= 65_535
        and 0 <= m.nacks < COUNT_MAX
        and 0 <= m.deliveries < COUNT_MAX
        and 0 <= m.mode < 256
    )


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
        for job in m.jobs:  # noqa: SIM110  as above
            if not is_sane_job(job):
                return False
        return True
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


def is_tube(name: bytes, maker: bytes, made_ns: int) -> bool:
    """Whether it can name a tube."""
    return 0 < len(name) <= TUBE_MAX and is_node_id(maker) and is_instant(made_ns)


def is_sane_at(m: TubeAt) -> bool:
    """Whether a tube's fields are in range."""
    if not is_tube(m.name, m.maker, m.made_ns) or not is_node_id(m.home) or len(m.words) != 4:
        return False
    for word in m.words:
        if len(word) > WORD_MAX:
            return False
    return in_range(
        m.epoch, m.seq, m.begin_seq, m.ttl_ms, m.ttr_ms, m.pri, m.capacity, m.next_number, m.flags
    ) and (0 < m.sync < 1 << 16)


def is_sane_tube(m: TubeMessage) -> bool:
    """Whether the fields of a message about tubes are in range. Its records are checked later."""
    if isinstance(m, TubesTold):
        for at in m.tubes:
            if not is_sane_at(at):
                return False
        return in_range(m.flags) and is_port(m.port)
    if isinstance(m, TubeClaim):
        if len(m.maker) > 0 and not is_node_id(m.maker):
            return False
        if not is_instant(m.made_ns):
            return False
        return 0 < len(m.name) <= TUBE_MAX and in_range(m.number, m.epoch)
    if isinstance(m, TubeClaimed):
        return 0 < len(m.name) <= TUBE_MAX and in_range(m.number, m.answer, m.copy_epoch, m.seq)
    if not is_tube(m.name, m.maker, m.made_ns) or not in_range(m.epoch):
        return False
    if isinstance(m, TubeGot):
        return in_range(m.known, m.seq, m.flags)
    if isinstance(m, TubeYours):
        return in_range(m.seq, m.next_number, m.token)
    for number, uuid, user in m.sessions:
        if number <= 0 or not in_range(number) or len(uuid) != UUID_BYTES:
            return False
        if len(user) > WORD_MAX:
            return False
    for gone in m.gone:
        if not in_range(gone):
            return False
    return in_range(m.from_seq, m.to_seq, m.now_ms, m.next_number, m.flags) and (
        m.from_seq <= m.to_seq
    )
