"""The words of refusals: every code has its own, at both doors (SPEC T13, T15.5, T17.4)."""

from __future__ import annotations

import pytest

from tuque.server.replies.words import FIRST, NUMBERS, TEXTS, iproto_words, resp_words
from tuque.tubes.model import errors as why
from tuque.tubes.model.errors import TubeError

CODES = {code: name for name, code in vars(why).items() if isinstance(code, int)}
READ_ONLY = b"Can't modify data because this instance is in read-only mode: "


def test_every_code_has_words() -> None:
    assert set(TEXTS) == set(CODES) and set(FIRST) | set(NUMBERS) <= set(CODES)
    names = [name for name in vars(why) if name.isupper()]
    assert len(names) == len(CODES), "no two names have one code"


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
            b"ERR Space 'Tube not found exists with the type ' already exists",
            32, b"Space 'Tube not found exists with the type ' already exists",
        ),
        (
            TubeError(why.LATE, (2,)), b"NOREPL done here, but not yet on 2 nodes",
            7, b"done here, but not yet on 2 nodes",
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
            TubeError(why.NO_ENGINE, (b"x",)), b"ERR Space engine 'x' does not exist",
            57, b"Space engine 'x' does not exist",
        ),
    ],
)  # fmt: skip
def test_the_words_of_both_doors(error: TubeError, resp: bytes, number: int, iproto: bytes) -> None:
    """T15.5 Texts of T13 get the first word `NOTTAKEN`, `NOTASK`, `NOTUBE`, `WRONGTUBE` (a type
    that cannot do this, or another type) or `PAUSED` where one applies, else `ERR`."""
    assert resp_words(error) == resp
    told = iproto_words(error)
    assert (told.code, told.text) == (number, iproto)
