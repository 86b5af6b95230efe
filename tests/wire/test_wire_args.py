"""Any words behind any command: one reply, a sound node, and never an exception."""

from __future__ import annotations

import hiredis
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import encode

from both_ways import thorough
from tuque.wire.commands.add_options import addjob_options
from tuque.wire.commands.arguments import (
    ArgError,
    getjob_options,
    scan_options,
    seconds_ms,
)
from tuque.wire.commands.rows import COMMAND_ROWS
from tuque.wire.proto.resp import strict_int
from world import World

KNOWN = b"D-c0ffee00-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"
NUMBERS = [
    b"0", b"1", b"-1", b"2", b"5", b"100", b"", b"+1", b" 1", b"1 ", b"01", b"1.5", b".5", b"1e3",
    b"2147483647", b"2147483648", b"4294967295", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"99999999999999999999", b"nan", b"inf",
]  # fmt: skip
OPTIONS = (
    b"REPLICATE DELAY RETRY TTL MAXLEN ASYNC NOHANG TIMEOUT COUNT WITHCOUNTERS FROM BUSYLOOP "
    b"MINLEN IMPORTRATE QUEUE STATE REPLY all id active queued acked wait-repl in out none "
    b"state bcast REASON ID ADDR TYPE normal SKIPME yes no LIST GETNAME SETNAME KILL SETINFO "
    b"TRACKING LIB-NAME LIB-VER NODES INFO MYID MEET FORGET LEAVING STOPPING SAVECONFIG GET SET "
    b"RESETSTAT LEN RESET LATEST HISTORY GRAPH DOCTOR FLUSHALL STRUCTSIZE CHECK ERROR HELP "
    b"DOCS AUTH maxmemory * default soft hard on off queue-idle-time slowlog-max-len memory "
    b"jobs stats "
).split()
WORDS = st.one_of(
    st.sampled_from(
        [b"q", b"q2", b"", b"\x00", b"\r\n", b"\xff\xfe", KNOWN, KNOWN[:-1], b"x" * 5000]
    ),
    st.sampled_from(NUMBERS),
    st.sampled_from(OPTIONS),
    st.binary(max_size=12),
    st.integers(0, 9).map(lambda i: b"<job %d>" % i),
)
# SHUTDOWN ends the server, QUIT the session; CLIENT PAUSE and REPLY take the answers away.
NAMES = [row.name.encode() for row in COMMAND_ROWS if row.name not in ("SHUTDOWN", "QUIT")]
JOB_CYCLE = NAMES[:11] * 3
COMMAND_ROWS = st.lists(
    st.tuples(st.sampled_from(NAMES + JOB_CYCLE), st.lists(WORDS, max_size=8)), max_size=25
)
SEEDS = [
    [b"ADDJOB", b"q", b"body", b"0"],
    [b"ADDJOB", b"q", b"body", b"0", b"DELAY", b"100"],
    [b"ADDJOB", b"q2", b"body", b"0", b"RETRY", b"0", b"REPLICATE", b"1"],
    [b"GETJOB", b"NOHANG", b"FROM", b"q", b"q2"],
]


def is_told_to_wait(words: list[bytes]) -> bool:
    """Whether the command may rightly have no answer, or changes how answers look."""
    upper = [word.upper() for word in words]
    if upper[0] == b"GETJOB":
        return b"NOHANG" not in upper
    if upper[0] == b"DEBUG":
        return not {b"SLEEP", b"RESTART", b"LOADAOF"}.isdisjoint(upper)
    return upper[:2] in ([b"CLIENT", b"PAUSE"], [b"CLIENT", b"REPLY"], [b"CLIENT", b"KILL"])


@settings(max_examples=thorough(150))
@given(commands=COMMAND_ROWS)
def test_any_words(commands: list[object]) -> None:
    """One reply for each command; every table of the node agrees with the others."""
    run_all(World(), commands)


def run_all(world: World, commands: list[tuple[bytes, list[bytes]]]) -> None:
    """Send them one by one and look at each answer."""
    wire = world.wire()
    ids: list[bytes] = []
    for words in SEEDS + [[name, *rest] for name, rest in commands]:
        words = [job_word(word, ids) for word in words]
        if is_told_to_wait(words):
            words = [b"PING"]
        answer = wire.say(encode(words))
        reader = hiredis.Reader()
        reader.feed(answer)
        assert reader.gets() is not False, (words, answer)
        if words[0].upper() != b"MONITOR" and not world.server.monitors:
            assert reader.gets() is False, (words, answer)
        if words[0] == b"ADDJOB" and answer.startswith(b"+"):
            ids.append(answer[1:41])
        world.pass_ms(700)
    world.check()


def job_word(word: bytes, ids: list[bytes]) -> bytes:
    """`<job 3>` stands for the id of a job that was added."""
    if word.startswith(b"<job ") and ids:
        return ids[int(word[5:6]) % len(ids)]
    return word


@given(st.lists(WORDS, max_size=12))
def test_options_are_read_or_refused(words: list[bytes]) -> None:
    """Only ArgError may come out, with a text of one line."""
    for read in (
        lambda: addjob_options([b"ADDJOB", b"q", b"b", b"0", *words]),
        lambda: getjob_options([b"GETJOB", *words]),
        lambda: scan_options([b"QSCAN", *words], False),
        lambda: scan_options([b"JSCAN", *words], True),
        lambda: [seconds_ms(word) for word in words],
    ):
        try:
            read()
        except ArgError as error:
            assert error.text.startswith(b"ERR ")
            assert b"\n" not in error.text


@given(st.one_of(st.integers(-(1 << 70), 1 << 70).map(lambda i: b"%d" % i), st.binary(max_size=22)))
def test_integers(word: bytes) -> None:
    """C4.2 An optional sign and decimal digits, inside 64 bits; nothing else."""
    value = strict_int(word)
    digits = word[1:] if word[:1] in (b"+", b"-") else word
    if digits.isdigit() and len(digits) <= 19 and -(1 << 63) < int(word) < 1 << 63:
        assert value == int(word)
    elif value is not None:
        assert value == int(word) == -(1 << 63)


def test_integers_at_the_edges() -> None:
    """C4.2 An integer is an optional sign and decimal digits, from -(2^63-1) to 2^63-1."""
    assert strict_int(b"9223372036854775807") == (1 << 63) - 1
    assert strict_int(b"9223372036854775808") is None
    assert strict_int(b"-9223372036854775807") == -(1 << 63) + 1
    assert strict_int(b"") is None
    assert strict_int(b"-") is None
