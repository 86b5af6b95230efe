"""Where a command names a queue: the table of rights against what reads the command (SPEC N2.1)."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tuque.wire.commands.add_options import addjob_options
from tuque.wire.commands.arguments import ArgError, history_args, scan_options
from tuque.wire.commands.commands import BY_ROW

SEEDS: Final = 3_000
# words that are names of options, where a value may stand too
TRAPS: Final = ["DEAD", "dead", "QUEUE", "RATE", "HEADERS", "1", "2", "BACKOFF", "ASYNC", "ALL"]


def some(chance: random.Random) -> str:
    """A name of anything, often one that looks like an option."""
    return chance.choice([*TRAPS, "k", "payments", "orders"])


def addjob_words(chance: random.Random) -> list[str]:
    """Options of ADDJOB in any order; most are correct."""
    name = some(chance)
    pairs = [word for i in range(2) for word in (f"h{i}", some(chance))]
    choices = [
        ["DEAD", some(chance)],
        ["DEAD", some(chance)],
        ["RATE", name, "10/s"],
        ["RATE", name, "10/s", "5"],
        ["LIMIT", name, "3"],
        ["UNIQUE", name],
        ["UNIQUE", name, "UNTIL", "start", "ON", "keep"],
        ["GROUP", name, "WEIGHT", "2"],
        ["BACKOFF", "1", "2", "0.5"],
        ["HEADERS", "2", *pairs],
        ["HEADERS", "0"],
        ["ASYNC"],
        ["WITHNEW"],
        ["DELAY", "1.5"],
        ["TTL", "100"],
        ["ATTEMPTS", "3"],
        ["DEDUPE", name],
        ["UTUBE", name],
        ["PRI", "1"],
    ]
    words = [word for one in chance.sample(choices, 6) for word in one]
    if chance.random() < 0.2:
        del words[chance.randrange(len(words))]
    return words


def scan_words(chance: random.Random) -> list[str]:
    """Options of JSCAN."""
    choices = [["QUEUE", some(chance)], ["STATE", "active"], ["STATE", "queued"], ["7"]]
    choices += [["BUSYLOOP"], ["COUNT", "5"], ["REPLY", "all"], ["QUEUE", some(chance)]]
    return [word for one in chance.sample(choices, 5) for word in one]


def history_words(chance: random.Random) -> list[str]:
    """Options of HISTORY."""
    choices = [["QUEUE", some(chance)], ["FROM", "1"], ["COUNT", "2"], ["QUEUE", some(chance)]]
    words = [word for one in chance.sample(choices, 3) for word in one]
    return words + chance.choice([[], ["added"], ["QUEUE", "x"]])


def replay_words(chance: random.Random) -> list[str]:
    """Options of DEAD REPLAY; what reads them needs a server, so they are all correct."""
    choices = [["QUEUE", some(chance)], ["RATE", "10"], ["CURSOR", "0"], ["COUNT", "5"]]
    choices += [["ALL"], ["TASK", some(chance)], ["REASON", some(chance)], ["SINCE", "1"]]
    return [word for one in chance.sample(choices, 6) for word in one]


@pytest.mark.parametrize("row", ["ADDJOB", "JSCAN", "HISTORY", "DEAD REPLAY"])
def test_the_queue_of_an_option_is_found(row: str) -> None:
    """N2.3: an option that names a queue has a place, wherever it stands among the others; and
    nothing else is taken for it, or a tenant's prefix would come into another word (N10.2)."""
    unit = BY_ROW[row]
    read = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        head = {"ADDJOB": "ADDJOB q body 0", "JSCAN": "JSCAN", "HISTORY": "HISTORY 5s"}
        made = {"ADDJOB": addjob_words, "JSCAN": scan_words, "HISTORY": history_words}
        words = [word.encode() for word in head.get(row, "DEAD REPLAY q").split(" ")]
        words += [word.encode() for word in made.get(row, replay_words)(chance)]
        named: bytes | None = None
        try:
            if row == "ADDJOB":
                terms = addjob_options(words).terms
                named = None if terms is None else terms.dead or None
            elif row == "JSCAN":
                named = scan_options(words, True).queue
            elif row == "HISTORY":
                named = history_args(words).queue
            else:
                named = replay_queue(words)
        except ArgError:
            continue
        read += 1
        found = [words[at] for at in unit.option_places(words)]
        assert found[-1:] == ([] if named is None else [named]), words
        marked = list(words)
        for at in unit.option_places(words):
            assert words[at - 1].upper() == unit.option, words
            marked[at] = b"t/" + marked[at]
        if row == "ADDJOB" and named is not None:
            terms = addjob_options(marked).terms
            assert terms is not None and terms.dead == b"t/" + named, words
    assert read > SEEDS // 4


def replay_queue(words: list[bytes]) -> bytes | None:
    """The value of QUEUE: each option but ALL has one value."""
    at = 3
    found = None
    while at < len(words):
        if words[at] == b"QUEUE":
            found = words[at + 1]
        at += 1 if words[at] == b"ALL" else 2
    return found
