"""What a turn adds to the event stream, and when it is flushed (SPEC E3)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.queues.procedures import FAR
from tuque.server.state.state import Server

EVENTS_MS: Final = 20  # an event waits at most this long in memory (E3.2)


def tell_events(s: Server, seq: i64, binding_seq: i64, events_ms: i64) -> i64:
    """[E3.1] Pass events on once their turn's records are as durable as replies require.

    `events_ms`: when a flush was due; returns when it is due now, 0: never.
    """
    events = s.n.events
    assert events is not None and s.eventlog is not None
    durable: i64 = FAR
    if s.committer is not None and (seq >= 0 or len(s.journal_error) > 0):
        durable = s.committer.durable_seq
        events.hold(binding_seq)
    else:
        events.hold(0)
    if events_ms == 0 and events.open.rows > 0:
        events_ms = s.n.now_ms + EVENTS_MS
    is_due = 0 < events_ms <= s.n.now_ms
    if is_due:
        events.cut()
    if is_due or events.is_ready(durable):
        s.eventlog.flush(events, durable)
        return s.n.now_ms + EVENTS_MS if events.pending_rows() > 0 else 0
    return events_ms
