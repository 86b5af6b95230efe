"""Refusals of core and of tubes, in the server's texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tuque.core.model.errors import Refusal
from tuque.server.replies.errors import core_words, resp_words, text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tubes import HomeDone


def words_of(refused: Refusal | None) -> bytes:
    """The RESP error of core's refusal; empty on success."""
    return b"" if refused is None else core_words(refused)


def said(done: HomeDone) -> bytes:
    """The text of the refusal; empty on success."""
    return b"" if done.error is None else text_of(done.error)


@contextmanager
def refused(words: str) -> Iterator[None]:
    """Expect a TubeError whose RESP text contains this."""
    with pytest.raises(TubeError) as e:
        yield
    assert words.encode() in resp_words(e.value)
