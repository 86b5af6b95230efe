"""Run tokens as clients see them: every way to find one says the same."""

import random

import pytest

from tuque.core.model.work import (
    ATTEMPTS_MAX,
    HASH_MASK,
    STARTS_MAX,
    Life,
    Terms,
    run_from,
    run_of,
    run_text,
)
from tuque.server.state import workers
from tuque.server.state.workers import Tokens

BAD = (
    b"",
    b"1",
    b"1.1",
    b"1.1.",
    b".1.000001",
    b"1..000001",
    b"1.1.00001",
    b"1.1.0000001",
    b"0.1.000001",
    b"1.0.000001",
    b"65536.1.000001",
    b"1.16777216.000001",
    b"1.1.800000",
    b"1.1.00000g",
    b"1.1.00000G",
    b"a.1.000001",
    b"1.1.000001.1",
    b"-1.1.000001",
    b"--",
    b"000000001.1.000001",
    b" 1.1.000001",
    b"1.1.000001 ",
)


def some_run(rng: random.Random) -> int:
    """A run like those of jobs that fail now and then."""
    attempt = rng.choice((1, 1, 2, 9, ATTEMPTS_MAX))
    starts = rng.choice((1, 1, 2, 10, STARTS_MAX))
    return run_of(attempt, starts, rng.choice((0, 1, 0xABCDEF, HASH_MASK)))


@pytest.mark.parametrize("word", BAD)
def test_what_is_no_token(word: bytes) -> None:
    """Neither the parser nor the table takes it."""
    known = Tokens()
    known.token(run_of(1, 1, 1))
    assert run_from(word) == known.run_in(word) == -1


def test_tokens_come_back_from_their_text() -> None:
    """Text and number of a token belong together, in a table that forgets as well."""
    rng = random.Random(4)
    known = Tokens()
    assert known.run_in(b"-") == 0
    for _ in range(2_000):
        run = some_run(rng)
        text = run_text(run)
        assert run_from(text) == run
        if rng.random() < 0.5:
            assert known.token(run).text == text
        else:
            assert known.run_in(text) == run
        assert len(known.by_run) == len(known.by_text) <= workers.TOKENS_MAX


def test_the_table_forgets() -> None:
    """It never has more tokens than its bound."""
    known = Tokens()
    for starts in range(1, 2 * workers.TOKENS_MAX + 100):
        known.token(run_of(1, starts, 7))
    assert len(known.by_run) == len(known.by_text) == 99
    assert known.run_in(b"1.1.000007") == run_of(1, 1, 7)


def test_a_reply_is_of_its_job() -> None:
    """[W2.6] Jobs that share a token and differ in the rest get replies of their own."""
    rng = random.Random(5)
    known = Tokens()
    terms = [Terms(of, 1_000, 300_000, 500, b"", 0, limit) for of in (0, 3) for limit in (0, 9)]
    for _ in range(2_000):
        life = Life(rng.choice(terms), b"")
        life.run = some_run(rng)
        life.starts = rng.choice((1, 2))
        retry_s = rng.choice((0, 60, 300))
        text = run_text(life.run)
        assert known.start_reply(life, retry_s, rng.random() < 0.5) == (
            b"*6\r\n$%d\r\n%s\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n"
            % (
                len(text),
                text,
                life.run >> 23 & 0xFFFF,
                life.terms.attempts,
                life.starts,
                retry_s * 1_000,
                life.terms.limit_ms,
            )
        )
