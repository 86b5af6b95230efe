"""Frames of the bus: any cut, any flipped bit, any hostile number (SPEC B)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.core.msgs.bus import (
    AnyMessage,
    Ask,
    DelJob,
    Gossip,
    GotJob,
    Heartbeat,
    NeedJobs,
    Pause,
    Queued,
    ReplJob,
    ReplJobs,
    SetAck,
    Slots,
    StandAt,
    TubeAt,
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
    VoteAt,
    VotedAt,
    VotersNext,
    VotersTold,
    YourJobs,
)
from tuque.core.msgs.packed import COUNT_MAX
from tuque.server.bus.sending import Packer
from tuque.wire.bus.bus import (
    FRAME_BYTES,
    BusError,
    FrameReader,
    frames_of,
    frames_with,
    head_of,
    messages_of,
)

ID = b"D-0a0a0a0a-VTUo3R4lebIYJdAAEwe8bf2U-05a1"
IDS = st.lists(st.just(ID), max_size=4)
MASKS = st.integers(0, (1 << 62) - 1)
TIMES = st.integers(1, 1 << 50)
COPIES = st.builds(
    ReplJob,
    id=st.just(ID),
    queue=st.binary(max_size=20),
    body=st.binary(max_size=300),
    ctime_ns=TIMES,
    left_ms=TIMES,
    due_ms=TIMES,
    retry_s=st.integers(0, 1 << 30),
    delay_s=st.integers(0, 1 << 30),
    repl=st.integers(1, 65_535),
    nacks=st.integers(0, COUNT_MAX - 1),
    deliveries=st.integers(0, COUNT_MAX - 1),
    holders=MASKS,
    mode=st.integers(0, 159),
)
SHARED = st.builds(
    ReplJobs,
    first=COPIES,
    others=st.lists(st.tuples(st.just(ID), st.binary(max_size=300), TIMES), max_size=4),
)
NODE = b"0a" * 20
NAMES = st.binary(min_size=1, max_size=20)
FAMILY = b"f" * 8
WORDS = [b"fifo", b"", b"", b""]
IN_FAMILY = {"family": st.binary(min_size=8, max_size=8), "moves": TIMES, "from_number": TIMES}
NUMBERS = st.integers(0, 1 << 60)
TUBES = st.builds(
    TubeAt,
    name=NAMES,
    maker=st.just(NODE),
    made_ns=NUMBERS,
    home=st.just(NODE),
    epoch=NUMBERS,
    seq=NUMBERS,
    begin_seq=NUMBERS,
    sync=st.integers(1, 60),
    ttl_ms=NUMBERS,
    ttr_ms=NUMBERS,
    pri=NUMBERS,
    capacity=NUMBERS,
    next_number=NUMBERS,
    flags=st.integers(0, 7),
    words=st.lists(st.binary(max_size=9), min_size=4, max_size=4),
    **IN_FAMILY,
)
WHICH = {"name": NAMES, "maker": st.just(NODE), "made_ns": NUMBERS, "epoch": NUMBERS}
OF_TUBES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(
        TubesTold,
        is_all=st.booleans(),
        flags=st.integers(0, 1),
        port=st.just(3301),
        tubes=st.lists(TUBES, max_size=3),
    ),
    st.builds(
        TubeClaim,
        name=NAMES,
        number=NUMBERS,
        epoch=NUMBERS,
        maker=st.just(b""),
        made_ns=st.just(0),
    ),
    st.builds(TubeClaim, **WHICH, number=NUMBERS),
    st.builds(
        TubeClaimed,
        name=NAMES,
        number=NUMBERS,
        answer=st.integers(0, 2),
        copy_epoch=NUMBERS,
        seq=NUMBERS,
        is_complete=st.booleans(),
    ),
    st.builds(
        TubeCopy,
        **WHICH,
        from_seq=st.integers(0, 9),
        to_seq=st.integers(9, 99),
        now_ms=NUMBERS,
        next_number=NUMBERS,
        flags=st.integers(0, 15),
        records=st.binary(max_size=300),
        gone=st.lists(NUMBERS, max_size=3),
        sessions=st.lists(st.tuples(TIMES, st.just(b"u" * 16), st.binary(max_size=9)), max_size=2),
    ),
    st.builds(TubeGot, **WHICH, known=NUMBERS, seq=NUMBERS, flags=st.integers(0, 7)),
    st.builds(TubeYours, **WHICH, seq=NUMBERS, next_number=NUMBERS, token=NUMBERS, **IN_FAMILY),
)
ORIGIN_0 = b"o" * 16
DISK = b"d" * 8
ORIGIN = st.just(ORIGIN_0)
DISKS = st.binary(min_size=8, max_size=8)
VOTER = st.tuples(st.just(NODE), TIMES, DISKS)
# of T23, T24, T25, T26 and T27
OF_VOTES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(
        VotersTold,
        number=TIMES,
        origin=ORIGIN,
        voters=st.lists(VOTER, min_size=1, max_size=3),
        step=st.integers(0, 4),
        flags=st.just(0),
    ),
    st.builds(
        VotersNext,
        number=TIMES,
        origin=ORIGIN,
        step=st.integers(1, 5),
        attempt=NUMBERS,
        node=st.just(NODE),
        written_attempt=NUMBERS,
        written_node=st.just(NODE),
        voters=st.lists(VOTER, max_size=3),
        tube=st.binary(max_size=9),
    ),
    st.builds(
        TubePulse,
        list_number=NUMBERS,
        origin=ORIGIN,
        round=NUMBERS,
        echo=NUMBERS,
        timeout_ms=TIMES,
        disk=DISKS,
        right=NUMBERS,
        mark=NUMBERS,
        known_right=NUMBERS,
        known_mark=NUMBERS,
    ),
    st.builds(
        TubeStands,
        stands=st.lists(
            st.builds(StandAt, **WHICH, node=st.just(NODE), settled=NUMBERS, **IN_FAMILY),
            max_size=3,
        ),
    ),
    st.builds(
        TubeVote,
        list_number=NUMBERS,
        origin=ORIGIN,
        tubes=st.lists(
            st.builds(
                VoteAt,
                **WHICH,
                copy_epoch=NUMBERS,
                seq=NUMBERS,
                moves=NUMBERS,
                from_number=NUMBERS,
            ),
            max_size=3,
        ),
    ),
    st.builds(
        TubeVoted,
        list_number=NUMBERS,
        origin=ORIGIN,
        tubes=st.lists(
            st.builds(
                VotedAt,
                **WHICH,
                answer=st.integers(0, 6),
                stand_epoch=NUMBERS,
                copy_epoch=NUMBERS,
                seq=NUMBERS,
            ),
            max_size=3,
        ),
    ),
)
STANDS = st.sampled_from([b"", *(bytes([stand]) for stand in range(4))])
MESSAGES: st.SearchStrategy[AnyMessage] = st.one_of(
    COPIES,
    SHARED,
    st.builds(GotJob, ids=IDS),
    st.builds(Ask, number=NUMBERS, ids=st.just([ID]), is_short=st.booleans(), stands=STANDS),
    st.builds(
        SetAck,
        id=st.just(ID),
        holders=MASKS,
        left_ms=TIMES,
        is_untold=st.booleans(),
        is_run_untold=st.booleans(),
    ),
    st.builds(DelJob, id=st.just(ID), holders=MASKS, left_ms=TIMES, is_untold=st.booleans()),
    st.builds(Queued, id=st.just(ID), how=st.integers(0, 7)),
    st.builds(NeedJobs, queue=st.binary(max_size=9), count=TIMES, is_waiting=st.booleans()),
    st.builds(YourJobs, queue=st.binary(max_size=9), jobs=st.lists(COPIES, max_size=3)),
    OF_TUBES,
    OF_VOTES,
    st.builds(
        Heartbeat, round=TIMES, echo=TIMES, flags=TIMES, port=st.just(7711), nodes=st.just([])
    ),
)  # fmt: skip


def tube_at(**fields: object) -> TubeAt:
    """A tube that can be, but for some fields."""
    at = TubeAt(
        b"n", NODE, 1, NODE, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, [b"fifo", b"", b"", b""], FAMILY, 0, 0
    )
    return msgspec.structs.replace(at, **fields)


def copy_of(id: bytes) -> ReplJob:
    """A copy that can be."""
    return ReplJob(id, b"q", b"", 1, 1, 0, 1, 0, 1, 0, 0, 1, 0)


TURNS = st.lists(st.lists(MESSAGES, min_size=1, max_size=5), min_size=1, max_size=5)
PLACES = st.lists(st.integers(0, 1 << 16), max_size=12)


def read(data: list[bytes], salt: int = 7) -> list[AnyMessage]:
    """All messages in the pieces of a stream."""
    reader = FrameReader(1 << 26)
    reader.salt = salt
    found: list[AnyMessage] = []
    for piece in data:
        reader.feed(piece)
        while (payload := reader.next()) is not None:
            found += messages_of(payload)
    return found


@given(TURNS, PLACES)
def test_every_split_gives_the_same_messages(
    turns: list[list[AnyMessage]], places: list[int]
) -> None:
    """B2.1: a frame has a length, a checksum with a salt, and a turn's messages."""
    data = b"".join(frames_of(turn, 7) for turn in turns)
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    pieces = [data[a:b] for a, b in pairwise(at)]
    assert read(pieces) == [message for turn in turns for message in turn]


@given(TURNS)
def test_what_is_packed_once_is_what_each_peer_gets(turns: list[list[AnyMessage]]) -> None:
    """B2.1: the same messages for two peers are encoded once, others never taken for them."""
    packer = Packer()
    for turn in turns:
        for messages in (turn, list(turn), turn[1:], turn[:-1], turn[::-1], turn):
            payload = packer.pack(messages)
            for salt, total in ((7, -1), (7, packer.checksum()), (1 << 31, packer.checksum())):
                framed = frames_with(messages, payload, salt, None, total)
                assert framed == frames_of(messages, salt)
    payload = packer.pack(turns[0])
    assert packer.pack(list(turns[0])) is payload


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.integers(0, 1 << 31))
def test_a_frame_of_another_connection_is_refused(messages: list[AnyMessage], salt: int) -> None:
    """B2.7 Without a secret the code is a CRC-32 combined by XOR with a salt of the connection: it
    finds damage, not intent."""
    with pytest.raises(BusError, match="checksum"):
        read([frames_of(messages, salt)], salt + 1)


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.integers(0, 1 << 30))
def test_a_flipped_bit_is_seen(messages: list[AnyMessage], place: int) -> None:
    """B2.2 A frame that does not decode closes the link and is counted."""
    data = bytearray(frames_of(messages, 7))
    place %= len(data) * 8
    data[place // 8] ^= 1 << place % 8
    try:
        assert read([bytes(data)]) == []  # its length grew: it never ends
    except BusError:
        pass


def test_large_turns_are_cut_between_messages() -> None:
    """B2.1: its length is bounded; one message alone may be larger."""
    copy = ReplJob(ID, b"q", b"x" * 400_000, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0)
    big = ReplJob(ID, b"q", b"x" * (3 << 20), 1, 1, 0, 1, 0, 1, 0, 0, 1, 0)
    data = frames_of([copy, copy, copy, big, copy], 7)
    sizes = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        sizes.append(size)
        at += 8 + size
    assert len([size for size in sizes if size > FRAME_BYTES]) == 1
    assert read([data]) == [copy, copy, copy, big, copy]


@pytest.mark.parametrize(
    "payload",
    [
        b"\xdd\xff\xff\xff\xff",  # a list of four billion
        b"\xdd\x00\xff\xff\xff" * 1000,
        b"\x91\x92\x03\xdd\xff\xff\xff\xff",  # GOTJOB with as many ids
        b"\x91\x92\x03\x91\xc6\xff\xff\xff\xff",  # an id of 4 GB
        b"\x91\x93\x06\xc4\x01x\x00",  # QUEUED with a short id
        b"\x91" * 5000,
        b"",
        b"\xc1",
    ],
)
def test_counts_are_checked_against_the_bytes(payload: bytes) -> None:
    """B2.1 Counts are checked against the bytes left before anything is allocated, and every field
    against its range before a rule sees it."""
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(BusError):
        read([head_of(payload, 7) + payload])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "message",
    [
        GotJob([b"short"]),
        SetAck(ID, -1, 5),
        SetAck(ID, 1 << 62, 5),
        SetAck(ID, 1, 1 << 63),
        DelJob(ID, 1, -5),
        Queued(ID, 999),
        Slots([(62, b"a" * 40, 0)]),
        Slots([(1, b"a" * 39, 0)]),
        ReplJob(ID, b"q", b"", 1, 0, 0, 1, 0, 1, 0, 0, 1, 0),
        ReplJob(ID, b"q", b"", 1, 1, 0, 1 << 31, 0, 1, 0, 0, 1, 0),
        ReplJob(ID, b"q", b"", 1, 1, 0, 1, 0, 1, 0, 0, 1, 160),
        YourJobs(b"q", [ReplJob(b"x", b"q", b"", 1, 1, 0, 1, 0, 1, 0, 0, 1, 0)]),
        NeedJobs(b"q", -1, True),
        Ask(1, [ID], False, b"\x01\x02"),
        Ask(1, [ID, ID], False, b"\x01\x04"),
        Heartbeat(1, 2, 3, 70_000, []),
        Heartbeat(1, 2, 3, 7711, [Gossip(b"\xff" * 40, "h", 1, 2, 0, 0)]),
        Heartbeat(1, 2, 3, 7711, [Gossip(b"a" * 40, "h:1 noflags\nvars", 1, 2, 0, 0)]),
        Heartbeat(1, 2, 3, 7711, [Gossip(b"a" * 40, "h", 1 << 63, 2, 0, 0)]),
        Heartbeat(1, 2, 3, 7711, [Gossip(b"a" * 40, "h", 1, 70_000, 0, 0)]),
        Heartbeat(1, 2, 3, 7711, [Gossip(b"a" * 40, "h", 1, 2, 0, 1 << 63)]),
        TubesTold(True, 0, 70_000, []),
        TubesTold(True, 0, 1, [tube_at(sync=0)]),
        TubesTold(True, 0, 1, [tube_at(name=b"")]),
        TubesTold(True, 0, 1, [tube_at(home=b"h" * 40)]),
        TubesTold(True, 0, 1, [tube_at(words=[b"fifo"])]),
        TubesTold(True, 0, 1, [tube_at(epoch=-1)]),
        TubeClaim(b"n" * 513, 1, 0, b"", 0, False),
        TubeClaim(b"n", 1, 1, b"h" * 40, 1, False),
        TubeClaim(b"n", 1, 1, NODE, -1, False),
        TubeClaimed(b"n", -1, 0, 0, 0, True),
        TubeGot(b"n", NODE, 1, 1 << 62, 1, 1, 0),
        TubeYours(b"n", b"", 1, 1, 1, 1, 1, FAMILY, 0, 0),
        TubeCopy(b"n", NODE, 1, 1, 2, 1, 1, 1, 0, b"", [], []),
        TubeCopy(b"n", NODE, 1, 1, 1, 1, 1, 1, 0, b"", [-1], []),
        TubeCopy(b"n", NODE, 1, 1, 1, 1, 1, 1, 0, b"", [], [(1, b"short", b"")]),
        TubeCopy(b"n", NODE, 1, 1, 1, 1, 1, 1, 0, b"", [], [(0, b"u" * 16, b"")]),
        VotersTold(0, ORIGIN_0, [(NODE, 1, DISK)], 1, 0),
        VotersTold(1, ORIGIN_0, [(NODE, 1, DISK)] * 2, 1, 1),
        VotersTold(1, ORIGIN_0, [(NODE, 1, DISK)], 1, 256),
        VotersTold(1, b"short", [(NODE, 1, DISK)], 1, 0),
        VotersTold(1, ORIGIN_0, [], 1, 0),
        VotersTold(1, ORIGIN_0, [(NODE, 0, DISK)], 1, 0),
        VotersTold(1, ORIGIN_0, [(b"h" * 40, 1, DISK)], 1, 0),
        VotersTold(1, ORIGIN_0, [(NODE, 1, DISK)] * 63, 1, 0),
        VotersTold(1, ORIGIN_0, [(NODE, 1, b"short")], 1, 0),
        VotersNext(0, ORIGIN_0, 1, 1, NODE, 0, NODE, [], b""),
        VotersNext(1, b"", 1, 1, NODE, 0, NODE, [], b""),
        ReplJobs(ReplJob(ID, b"q", b"", 1, 0, 1, 0, 1, 0, 0, 0, 1, 0), []),
        ReplJobs(copy_of(ID), [(ID, b"", 1), (ID[1:], b"", 1)]),
        ReplJobs(copy_of(ID), [(ID, b"", 1), (ID, b"", -1)]),
        VotersNext(1, ORIGIN_0, 1, 1, b"h" * 40, 0, NODE, [], b""),
        VotersNext(1, ORIGIN_0, 1, 1, NODE, -1, NODE, [], b""),
        VotersNext(1, ORIGIN_0, 1, 1, NODE, 0, NODE, [(NODE, 0, DISK)], b""),
        VotersNext(1, ORIGIN_0, 1, 1, NODE, 0, NODE, [(NODE, 1, DISK)] * 63, b""),
        VotersNext(1, ORIGIN_0, 1, 1, NODE, 0, NODE, [], b"n" * 513),
        TubePulse(1, ORIGIN_0, 1, 1, True, True, 0, False, DISK, 1, 1, 1, 1),
        TubePulse(1, b"", 1, 1, True, True, 1, False, DISK, 1, 1, 1, 1),
        TubePulse(1, ORIGIN_0, 1, 1, True, True, 1, False, DISK, 1, 1, 1, -1),
        TubePulse(1, ORIGIN_0, 1, 1, True, True, 1, False, DISK, -1, 1, 1, 1),
        TubePulse(1, ORIGIN_0, 1, 1, True, True, 1, False, b"", 1, 1, 1, 1),
        TubeStands(True, [StandAt(b"", NODE, 1, 1, NODE, True, 0, FAMILY, 0, 0)]),
        TubeStands(True, [StandAt(b"n", NODE, 1, 1, b"h" * 40, True, 0, FAMILY, 0, 0)]),
        TubeStands(True, [StandAt(b"n", NODE, 1, 1, NODE, True, -1, FAMILY, 0, 0)]),
        TubeVote(1, ORIGIN_0, True, [VoteAt(b"n", NODE, 1, -1, 1, 1, 0, 0)]),
        TubeVote(1, b"", True, []),
        TubeVoted(1, ORIGIN_0, True, [VotedAt(b"n", NODE, 1, 1, 16, 1, 1, 1)]),
        TubeVoted(1, ORIGIN_0, True, [VotedAt(b"n", NODE, 1, 1, 1, 1, 1, 1 << 62)]),
    ],
)
def test_fields_out_of_range_are_refused(message: AnyMessage) -> None:
    """B2.2: what could not have been said by a node closes the link."""
    with pytest.raises(BusError):
        read([frames_of([message], 7)])


def test_a_clock_that_is_a_century_ahead_does_not_end_the_link() -> None:
    """R2.1 "within its bounds": an instant may be any that 64 bits of ns can say."""
    ns = 5_098_534_933_341_000_000  # in 2131
    said: list[AnyMessage] = [
        ReplJob(ID, b"q", b"", ns, 1, 0, 1, 0, 1, 0, 0, 1, 0),
        Pause(b"q", 1, ns),
        TubesTold(True, 0, 1, [tube_at(made_ns=ns)]),
        TubeGot(b"n", NODE, ns, 1, 1, 1, 0),
    ]
    assert read([frames_of(said, 7)]) == said
    with pytest.raises(BusError, match="out of range"):
        read([frames_of([Pause(b"q", 1, (1 << 63) - 1)], 7)])


def test_frames_have_a_limit() -> None:
    """B2.1: a declared length beyond the limit is refused before its bytes come."""
    reader = FrameReader(1000)
    reader.feed((1001).to_bytes(4, "big") + bytes(4))
    with pytest.raises(BusError):
        reader.next()
