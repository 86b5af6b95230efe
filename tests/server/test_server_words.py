"""The words of refusals: every code has its own, at both doors (SPEC T13, T15.5, T17.4)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tuque.core.model import errors as why
from tuque.core.model.errors import ROWS, Refusal
from tuque.errors import REPLY_ERRORS
from tuque.server.replies.errors import core_words, iproto_words, resp_words
from tuque.tubes.model.errors import TubeError

CODES = {
    name: code
    for name, code in vars(why).items()
    if name.isupper() and isinstance(code, int) and name != "PROC"
}
MADE_BY = ("Refusal", "TubeError", "error_words", "why_full")
READ_ONLY = b"Can't modify data because this instance is in read-only mode: "


def test_every_code_has_a_row() -> None:
    assert set(ROWS) == set(CODES.values()), "a code without a row, or a row without a name"
    assert len(ROWS) == len(CODES), "no two names have one code"


def test_every_first_word_has_a_class_that_clients_raise() -> None:
    words = {row.word.decode() for row in ROWS.values()} - {"ERR"}
    assert words <= set(REPLY_ERRORS), words - set(REPLY_ERRORS)


@pytest.mark.parametrize(
    ("error", "resp", "number", "iproto"),
    [
        (TubeError(why.NOT_TAKEN), b"NOTTAKEN Task was not taken", 32, b"Task was not taken"),
        (TubeError(why.NOT_FOUND, (7,)), b"NOTASK Task 7 not found", 32, b"Task 7 not found"),
        (TubeError(why.NO_TUBE), b"NOTUBE Tube not found", 32, b"Tube not found"),
        (
            TubeError(why.NO_TOUCH, (b"fifo",)), b"WRONGTUBE fifo queue does not support touch",
            32, b"fifo queue does not support touch",
        ),
        (
            TubeError(why.OTHER_TYPE, (b"Task x", b"fifo")),
            b"WRONGTUBE Tube 'Task x' exists with the type fifo",
            32, b"Tube 'Task x' exists with the type fifo",
        ),
        (
            TubeError(why.EXISTS, (b"Tube not found exists with the type ",)),
            b"ERR a tube or a queue 'Tube not found exists with the type ' already exists: "
            b"choose another name, or first drop the tube or end the jobs of the queue",
            32, b"Space 'Tube not found exists with the type ' already exists",
        ),
        (
            TubeError(why.LATE, (2,)),
            b"FEWCOPIES done here, but not yet on 2 nodes: do not repeat it",
            7, b"done here, but not yet on 2 nodes: do not repeat it",
        ),
        (
            TubeError(why.NO_QUORUM, (b"t", 1, 3)),
            b"NOQUORUM Tube 't': this node reaches 1 of 3 nodes",
            7, READ_ONLY + b"Tube 't': this node reaches 1 of 3 nodes",
        ),
        (
            TubeError(why.NODE_READ_ONLY),
            b"READONLY This node is read-only: CONFIG SET read-only no, or use another node",
            7,
            READ_ONLY + b"This node is read-only: CONFIG SET read-only no, or use another node",
        ),
        (
            TubeError(why.NO_ENGINE, (b"x",)),
            b"ERR ENGINE must be memtx or vinyl, which mean the same here, not 'x'",
            57, b"Space engine 'x' does not exist",
        ),
        (
            TubeError(why.LONG_NAME, (b"x...",)),
            b"ERR the name of a tube has 1 to 512 bytes, 'x...' is too long",
            9, b"Failed to create space 'x...': space name is too long",
        ),
        (
            TubeError(why.EMPTY_NAME),
            b"ERR the name of a tube has 1 to 512 bytes",
            70, b"Invalid identifier '' (expected printable symbols only or it is too long)",
        ),
    ],
)  # fmt: skip
def test_the_words_of_both_doors(error: TubeError, resp: bytes, number: int, iproto: bytes) -> None:
    """T15.5 Texts of T13 get the first word `NOTTAKEN`, `NOTASK`, `NOTUBE`, `WRONGTUBE` (a type
    that cannot do this, or another type) or `PAUSED` where one applies, else `ERR`.

    T13.3 RESP has tube where the module has space: `a tube or a queue '<name>' already exists:
    ...`, `the name of a tube has 1 to 512 bytes`, `ENGINE must be memtx or vinyl`.
    """
    assert resp_words(error) == resp
    told = iproto_words(error)
    assert (told.code, told.text) == (number, iproto)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (Refusal(why.NOJOB), "NOJOB Job not known in the context of this node."),
        (Refusal(why.PAUSED), "PAUSED Queue paused in input, try later"),
        (
            Refusal(why.PRI_OF_QUEUE, (b"50%s",)),
            "ERR '50%s' is no tube: a queue takes PRI 0 to 9 with ADDJOB, and no UTUBE",
        ),
        (
            Refusal(why.FEW_PUBLISHED, (4, 3)),
            "FEWCOPIES all 4 jobs are published, but 3 of them have fewer copies than asked for, "
            "since nodes are unreachable: do not publish them again",
        ),
        (
            Refusal(why.KEYS_FULL, (9, 10, 2)),
            "OOM this node keeps 9 DEDUPE keys, at most 10, and would need 2 more: raise "
            "dedupe-max-keys, give a shorter DEDUPETTL, or wait until some are over",
        ),
        (
            Refusal(why.FENCED, (1, b"g", b"me", 2)),
            "FENCED epoch 1 of group 'g' is over, 'me' has opened it with epoch 2: stop, or take "
            "it over with LEASE OPEN",
        ),
        (
            Refusal(why.AHEAD, (b"g", 3, 2)),
            "NOGROUP group 'g' has had no epoch 3 here, its last is 2: LEASE OPEN it again",
        ),
        (
            Refusal(why.NOBATCH, (b"g", 9, 4, 5)),
            "NOBATCH group 'g' has no batch 9: its last is 4, the next one must be 5",
        ),
        (
            Refusal(why.OVER, (3, b"g")),
            "NOBATCH batch 3 of group 'g' was given up, its jobs are queued: take a new one",
        ),
        (
            Refusal(why.NOPART, (3, b"g", 1, 7)),
            "NOBATCH batch 3 of group 'g' has the parts 0 to 1, there is no part 7",
        ),
    ],
)  # fmt: skip
def test_words_of_core(refused: Refusal, words: str) -> None:
    assert core_words(refused) == words.encode()


def test_refusals_have_the_arguments_of_their_words() -> None:
    """A text with other arguments would be an internal error, at the moment of the refusal."""
    package = Path(__file__).parents[2] / "src" / "tuque"
    seen = set()
    for path in package.rglob("*.py"):
        source = path.read_text("utf-8")
        is_maker = any(f"{name}(" in source for name in MADE_BY)
        for node in ast.walk(ast.parse(source)) if is_maker else ():
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in MADE_BY:
                continue
            about = node.args[1] if len(node.args) > 1 else ast.Tuple([])
            names = {one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name)}
            names |= {one.attr for one in ast.walk(node.args[0]) if isinstance(one, ast.Attribute)}
            for name in names & set(CODES):  # none: the message of the bus
                seen.add(name)
                if not isinstance(about, ast.Tuple):
                    continue
                row = ROWS[CODES[name]]
                for text in (row.text, row.resp):
                    count = text.replace(b"%%", b"").count(b"%")
                    assert count == len(about.elts), (path, node.lineno)
    # made by HomeError, by `why_full`, by the table of START in core/work/rules.py, by `may_change`
    assert set(CODES) - seen == {"MOVED", "ABOVE_ALL", "RESTING", "HAS_COPIES"}
