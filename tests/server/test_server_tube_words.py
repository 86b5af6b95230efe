"""Any words after TUBE: an answer, no internal error, and tables that agree (SPEC T13, T15)."""

from __future__ import annotations

import hiredis
from hypothesis import given, settings
from hypothesis import strategies as st

from both_ways import thorough
from tuque.wire.commands.tube_table import WORDS as PROCEDURES
from world import World

TYPES = [b"fifo", b"fifottl", b"limfifottl", b"utube", b"utubettl", b"nix"]
TUBES = [b"a", b"b", b"c", b"\xff"]
SECONDS = [b"0", b"0.001", b"1", b"2.5", b"99999999999999", b"-1", b"x", b""]
NUMBERS = [b"0", b"1", b"2", b"3", b"7", b"4503599627370496", b"-1", b"1.5", b"x", b""]
WORDS = [
    b"PRI",
    b"TTL",
    b"TTR",
    b"DELAY",
    b"UTUBE",
    b"TIMEOUT",
    b"FORM",
    b"TOKEN",
    b"COUNT",
    b"AFTER",
    b"TEMPORARY",
    b"IFNOTEXISTS",
    b"IMPLICIT",
    b"CAPACITY",
    b"CALL",
    b"PREFIX",
    b"INREPLICASET",
]
VALUES = [*SECONDS, *NUMBERS, b"text", b"msgpack", b"yes", b"guest", b"READY", b"BURIED", b"\xc0"]

option = st.tuples(st.sampled_from(WORDS), st.sampled_from(VALUES))
options = st.lists(option, max_size=3).map(lambda found: [word for pair in found for word in pair])
likely = st.one_of(
    st.tuples(st.just(b"CREATE"), st.sampled_from(TUBES), st.sampled_from(TYPES)),
    st.tuples(st.just(b"PUT"), st.sampled_from(TUBES), st.sampled_from(VALUES)),
    st.tuples(st.just(b"TAKE"), st.sampled_from(TUBES), st.just(b"TIMEOUT"), st.just(b"0")),
    st.tuples(
        st.sampled_from([b"ACK", b"RELEASE", b"BURY", b"DELETE", b"PEEK", b"KICK"]),
        st.sampled_from(TUBES),
        st.sampled_from(NUMBERS),
    ),
)
wild = st.tuples(
    st.sampled_from(sorted(PROCEDURES)), st.sampled_from(TUBES), st.sampled_from(VALUES)
)
waits = st.sampled_from([0, 1, 999, 1000, 3_000])
steps = st.lists(st.tuples(st.one_of(likely, likely, wild), options, waits), max_size=40)


@settings(max_examples=thorough(150))
@given(steps=steps, resp3=st.booleans())
def test_any_words(steps: list[tuple[tuple[bytes, ...], list[bytes], int]], resp3: bool) -> None:
    world = World()
    try:
        if resp3:
            world("HELLO 3")
        wire = world.run
        for words, more, wait_ms in steps:
            wire = world.wire() if wire.c.is_blocked else wire
            reply = world("TUBE", *words, *more, by=wire)
            assert not reply.startswith(b"-ERR internal"), (words, more)
            if not wire.c.is_blocked:
                reader = hiredis.Reader()
                reader.feed(reply)
                assert reader.gets() is not False, (words, more, reply)
                assert reader.gets() is False, (words, more, reply)
            world.pass_ms(wait_ms)
    finally:
        world.check()
