"""Records of lives and outcomes survive encoding; what is no record is refused, never misread."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_lab import decode_all

from both_ways import thorough
from tuque.core.model.attempts import ENDED_LAST, STATES, Attempt
from tuque.core.model.work import (
    ATTEMPTS_MAX,
    DONE,
    FAILED,
    HASH_MASK,
    LETTERED,
    LIVE,
    NO_TERMS,
    STARTS_MAX,
    Failure,
    Life,
    Outcome,
    Terms,
)
from tuque.core.records import jobs as rec
from tuque.core.records import read as back
from tuque.server.journal.tool import fields

ID = b"D" * 40
IDS = st.binary(min_size=40, max_size=40)
I64 = st.integers(0, 2**62 - 1)
SPANS = st.integers(0, 2**53)
WORDS = st.binary(max_size=60)
ATTEMPTS = st.integers(0, ATTEMPTS_MAX)
RUNS = st.builds(
    lambda starts, attempt, hash: starts << 39 | attempt << 23 | hash,
    st.integers(1, STARTS_MAX),
    st.integers(1, ATTEMPTS_MAX),
    st.integers(0, HASH_MASK),
) | st.just(0)
HEADERS = st.lists(st.tuples(st.binary(max_size=64), st.binary(max_size=300)), max_size=4).map(
    lambda pairs: b"".join(
        bytes([len(name)]) + name + len(value).to_bytes(2, "little") + value
        for name, value in pairs
    )
)
FAILURES = st.builds(Failure, I64, ATTEMPTS, WORDS, WORDS, WORDS, st.binary(max_size=3000))
TERMS = st.builds(
    Terms,
    ATTEMPTS,
    SPANS,
    SPANS,
    st.integers(0, 1000),
    WORDS,
    SPANS,
    SPANS,
    st.booleans(),
    st.booleans(),
)
TRIED = st.builds(
    Attempt,
    RUNS.filter(bool),
    I64,
    I64,
    st.sampled_from(STATES[: ENDED_LAST + 1]),
    WORDS,
    WORDS,
    st.binary(max_size=3000),
)
ROWS = st.lists(TRIED, max_size=3).map(
    lambda attempts: b"".join(attempt.packed() for attempt in attempts)
)

TERM_FIELDS = "attempts first_ms max_ms jitter dead keep_ms limit_ms drops keeps_body".split()
FAILURE_FIELDS = "at_ms attempt worker cause reason detail".split()
LIFE_FIELDS = [
    *"headers replays failed starts run run_state since_ms worker client unstarted".split(),
    *"is_resting is_cancelled cancel_reason progress ttl_ms expire_ms".split(),
    *"is_dead dead_ms dead_cause origin serial edit returned crashes attempts".split(),
]
OUTCOME_FIELDS = (
    "id kind until_ms ended_ms run of worker progress result reason is_brief number added_ms"
    " began_ms attempts headers body".split()
)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    life = Life(draw(TERMS), draw(HEADERS))
    for name in ("since_ms", "ttl_ms", "expire_ms", "dead_ms", "serial", "replays", "edit"):
        setattr(life, name, draw(I64))
    for name in ("worker", "cancel_reason", "progress", "dead_cause", "origin"):
        setattr(life, name, draw(WORDS))
    for name in ("is_resting", "is_cancelled", "is_dead"):
        setattr(life, name, draw(st.booleans()))
    life.failed = draw(ATTEMPTS)
    life.starts = draw(st.integers(0, STARTS_MAX))
    life.unstarted = draw(st.integers(0, 2**31 - 1))
    life.returned = draw(st.integers(0, 2**31 - 1))
    life.crashes = draw(st.integers(0, 2**31 - 1))
    life.run = draw(RUNS)
    life.run_state = draw(st.integers(0, FAILED))
    life.first = draw(st.none() | FAILURES)
    life.last = draw(st.none() | FAILURES)
    life.attempts = draw(ROWS)
    return life


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    outcome = Outcome(draw(IDS), draw(st.integers(DONE, LETTERED)), draw(I64), draw(I64))
    outcome.run = draw(RUNS)
    outcome.of = draw(ATTEMPTS)
    outcome.worker, outcome.progress, outcome.reason = draw(WORDS), draw(WORDS), draw(WORDS)
    outcome.result = draw(st.none() | st.binary(max_size=3000))
    outcome.is_brief = draw(st.booleans())
    if draw(st.booleans()):
        outcome.number, outcome.queue = draw(I64), draw(st.binary(min_size=1, max_size=50))
    if draw(st.booleans()):
        outcome.added_ms, outcome.began_ms = draw(st.integers(1, 2**62 - 1)), draw(I64)
        outcome.attempts, outcome.headers = draw(ROWS), draw(HEADERS)
        outcome.body = draw(st.none() | st.binary(max_size=3000))
        outcome.queue = outcome.queue or draw(st.binary(min_size=1, max_size=50))
    return outcome


def facts(failure: Failure | None) -> list[object] | None:
    return None if failure is None else [getattr(failure, name) for name in FAILURE_FIELDS]


@given(IDS, lives(), outcomes())
def test_lives_and_outcomes_come_back_whole(id: bytes, life: Life, outcome: Outcome) -> None:
    """W13.1 The records are life and outcome. They are binding."""
    records = rec.Records()
    records.life(id, life)
    records.outcome(outcome)
    assert records.count == records.binding_count == 2
    first, second = decode_all(records.take())
    assert (first.kind, first.id, second.kind, second.id) == (rec.LIFE, id, rec.OUTCOME, outcome.id)
    found, ended = first.life.life, second.life.outcome
    assert found is not None and ended is not None
    for name in LIFE_FIELDS:
        assert getattr(found, name) == getattr(life, name), name
    for name in TERM_FIELDS:
        assert getattr(found.terms, name) == getattr(life.terms, name), name
    assert facts(found.first) == facts(life.first)
    assert facts(found.last) == facts(life.last)
    for name in OUTCOME_FIELDS:
        assert getattr(ended, name) == getattr(outcome, name), name
    assert ended.queue == outcome.queue


def test_every_field_of_a_life_is_recorded_or_named_here() -> None:
    """A field that is new in the model must not be forgotten in the record."""
    derived = {"terms", "first", "last", "bytes", "told_ms", "heard_ms", "ended_ms", "buried_as"}
    derived |= {"fat_bytes", "packed_bytes", "tenant", "came"}
    assert names_of(Life(NO_TERMS, b"")) == {*LIFE_FIELDS, *derived}
    assert names_of(NO_TERMS) == set(TERM_FIELDS)
    derived = {"is_claim", "is_disputed", "fat_bytes", "tenant", "queue", "is_shared"}
    derived |= {"outlives", "change", "is_alone", "is_passed"}
    assert names_of(Outcome(ID, DONE, 1, 1)) == {*OUTCOME_FIELDS, *derived}
    assert names_of(Failure(1, 1, b"", b"", b"", b"")) == set(FAILURE_FIELDS)


def names_of(one: object) -> set[str]:
    """Names of the fields; a compiled object has no dict."""
    return set(getattr(type(one), "__mypyc_attrs__", None) or vars(one))


def test_what_is_large_is_not_copied_into_the_buffer() -> None:
    records = rec.Records()
    outcome = Outcome(ID, DONE, 2, 1)
    outcome.result = b"r" * (rec.LARGE_BYTES + 1)
    outcome.added_ms, outcome.body = 1, b"b" * (rec.LARGE_BYTES + 1)
    records.outcome(outcome)
    assert outcome.result in records.pieces and outcome.body in records.pieces
    (found,) = decode_all(records.take())
    ended = found.life.outcome
    assert ended is not None
    assert (ended.result, ended.body) == (outcome.result, outcome.body)


ROW = bytes.fromhex(
    "24000000 0500800080000000 1e00000000000000 1f00000000000000 01 02 0200 0200 6177 6172 6164"
)


def test_the_layout_of_what_is_kept_of_a_job() -> None:
    """In bytes: of a LIFE its row of attempts, of an OUTCOME the part that KEEP adds."""
    attempt = Attempt(1 << 39 | 1 << 23 | 5, 30, 31, b"timeout", b"aw", b"ar", b"ad")
    assert attempt.packed() == ROW
    life = Life(NO_TERMS, b"")
    life.attempts = ROW
    records = rec.Records()
    records.life(ID, life)
    written = records.take()
    assert written[46] == 8 and written.endswith(len(ROW).to_bytes(4, "little") + ROW)
    outcome = Outcome(ID, DONE, 2, 1)
    outcome.added_ms, outcome.began_ms, outcome.queue = 3, 4, b"q"
    outcome.attempts, outcome.headers, outcome.body, outcome.result = ROW, b"\x01a\0\0", b"b", b"r"
    records.outcome(outcome)
    written = records.take()
    times = (3).to_bytes(8, "little") + (4).to_bytes(8, "little")
    sizes = b"".join(size.to_bytes(4, "little") for size in (1, len(ROW), 4, 1))
    tail = times + sizes + b"q" + ROW + b"\x01a\0\0" + b"b" + b"r"
    assert written[46] == 1 | 8 | 16 and written.endswith(tail)
    at = len(written) - len(tail)
    for place, word in (
        (46, b"\x09"),  # a body that no bit announces
        (at, bytes(8)),
        (at + 7, b"\x80"),
        (at + 15, b"\x80"),
        (at + 16, b"\xff"),
        (at + 20, b"\x27"),  # a row that is cut
        (at + 24, b"\x03"),  # headers that are cut
    ):
        broken = written[:place] + word + written[place + len(word) :]
        with pytest.raises(back.BadRecord):
            decode_all(broken)


@settings(max_examples=thorough(300))
@given(lives(), outcomes(), st.data())
def test_bytes_that_are_no_record_are_refused(
    life: Life, outcome: Outcome, data: st.DataObject
) -> None:
    records = rec.Records()
    records.life(ID, life)
    records.outcome(outcome)
    payload = bytearray(records.take())
    if data.draw(st.booleans()):
        payload = payload[: data.draw(st.integers(0, len(payload)))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        for r in decode_all(bytes(payload)):
            fields(r)
            if r.kind == rec.LIFE:
                found = r.life.life
                assert found is not None and found.size() < 2 * len(payload) + 1000
                assert 0 <= found.failed <= ATTEMPTS_MAX and 0 <= found.starts <= STARTS_MAX
    except back.BadRecord:
        return


def test_what_journal_show_prints() -> None:
    life = Life(Terms(3, 1, 1, 0, b"", 0, 0), b"")
    life.run = 5 << 39 | 2 << 23 | 0xABC
    life.run_state = LIVE
    life.failed, life.starts, life.worker = 1, 5, b"web-3"
    life.last = Failure(7, 1, b"web-3", b"crashed", b"silent for 30 s", b"")
    outcome = Outcome(ID, DONE, 9, 8)
    outcome.result = b"42"
    outcome.added_ms, outcome.body = 1, b"body"
    life.attempts = outcome.attempts = ROW
    records = rec.Records()
    records.life(ID, life)
    life.is_dead, life.dead_cause, life.dead_ms, life.origin = True, b"expired", 11, b"mail"
    records.life(ID, life)
    records.outcome(outcome)
    rows = [fields(r) for r in decode_all(records.take())]
    assert (
        rows[0].items()
        >= {
            "record": "life",
            "id": ID.decode(),
            "run": "2.5.000abc",
            "run_state": "live",
            "failed": 1,
            "attempts": 3,
            "starts": 5,
            "worker": "web-3",
            "cause": "crashed",
            "reason": "silent for 30 s",
        }.items()
    )
    assert "dead" not in rows[0]
    assert rows[1].items() >= {"dead": "expired", "dead_ms": 11, "origin": "mail"}.items()
    assert rows[2].items() >= {"record": "outcome", "outcome": "done", "result_bytes": 2}.items()
    assert (rows[2]["ended_ms"], rows[2]["until_ms"], rows[2]["run"]) == (8, 9, "-")
    assert rows[0]["tried"] == rows[2]["tried"] == ["1.1.000005 timeout"]
    assert rows[2]["body_bytes"] == 4
