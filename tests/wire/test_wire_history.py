"""The words of HISTORY (SPEC O3)."""

from __future__ import annotations

import pytest

from tuque.wire.commands.arguments import FIELDS, OF_QUEUE, ArgError, history_args


def test_options_come_before_the_fields() -> None:
    """O3.2 Options come before the fields."""
    words = b"HISTORY 1M queue mail count 3 from 7 READY added".split()
    asked = history_args(words)
    assert (asked.step_ms, asked.queue, asked.count, asked.from_ms) == (60_000, b"mail", 3, 7)
    assert [FIELDS[field] for field in asked.fields] == [b"ready", b"added"]


def test_without_a_field_all_come() -> None:
    """O3.2 No field: all, in the order of O3.3."""
    assert history_args([b"HISTORY", b"5s"]).fields == list(range(len(FIELDS)))
    of_queue = history_args([b"HISTORY", b"5s", b"QUEUE", b"q"])
    assert of_queue.fields == list(range(OF_QUEUE)), "without those that are the node's only"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (b"2s", b"ERR syntax error at '2s'"),
        (b"QUEUES all", b"ERR syntax error at 'all'"),
        (b"5s QUEUE", b"ERR syntax error at 'QUEUE'"),
        (b"5s added acked ADDED", b"ERR syntax error at 'ADDED'"),
        (b"5s TIMES waits", b"ERR syntax error at 'waits'"),
        (b"5s QUEUE q TIMES wait", b"ERR syntax error at 'QUEUE'"),
        (b"5s COUNT -1", b"ERR FROM and COUNT must be numbers from 0 up, not '-1'"),
        (b"5s FROM soon", b"ERR FROM and COUNT must be numbers from 0 up, not 'soon'"),
        (b"5s added nothing", b"ERR no field 'nothing': see HISTORY in docs/commands.md"),
        (b"5s added COUNT 2", b"ERR no field 'COUNT': see HISTORY in docs/commands.md"),
        (b"5s QUEUE q memory", b"ERR no field 'memory': see HISTORY in docs/commands.md"),
    ],
)
def test_errors(words: bytes, text: bytes) -> None:
    """O3.6 Errors: another first word, an option without its value, QUEUE or fields with TIMES,
    a field named twice
    """
    with pytest.raises(ArgError) as refused:
        history_args([b"HISTORY", *words.split()])
    assert refused.value.text == text
