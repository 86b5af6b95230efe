"""What tubes refuse, in the words of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tuque.server.replies.words import resp_words, text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.registry import HomeDone


def said(done: HomeDone) -> bytes:
    """Why it was refused; empty when it is done."""
    return b"" if done.error is None else text_of(done.error)


@contextmanager
def refused(words: str) -> Iterator[None]:
    """A TubeError whose words over RESP hold these."""
    with pytest.raises(TubeError) as e:
        yield
    assert words.encode() in resp_words(e.value)
