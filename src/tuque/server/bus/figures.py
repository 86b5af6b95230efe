"""Traffic counters of the bus, for INFO (SPEC S8)."""

from typing import final

from mypy_extensions import i64

from tuque.core.msgs import AnyMessage


@final
class BusFigures:
    """Counters since the start; RESETSTAT clears them."""

    def __init__(self) -> None:
        self.in_bytes: i64 = 0
        self.out_bytes: i64 = 0
        self.in_frames: i64 = 0
        self.out_frames: i64 = 0
        self.in_messages: dict[type[AnyMessage], int] = {}
        self.out_messages: dict[type[AnyMessage], int] = {}
        self.accepted: i64 = 0
        self.dialed: i64 = 0
        self.joined: i64 = 0  # handshakes completed
        self.refused: i64 = 0  # handshakes that failed: secret, version, time, identity
        self.malformed: i64 = 0  # links closed for malformed input
        self.frames_refused: i64 = 0  # frames with a wrong code: forged, repeated, moved
        self.overfull: i64 = 0  # links closed for a full send buffer

    def heard(self, messages: list[AnyMessage]) -> None:
        """Count received messages."""
        self.in_frames += 1
        count(self.in_messages, messages)

    def said(self, messages: list[AnyMessage]) -> None:
        """Count the messages of a frame given to a link."""
        self.out_frames += 1
        count(self.out_messages, messages)


def count(counts: dict[type[AnyMessage], int], messages: list[AnyMessage]) -> None:
    """Add the messages to the counts of their kinds."""
    last: type[AnyMessage] | None = None
    many: i64 = 0
    for message in messages:
        kind = type(message)
        if kind is not last:
            if last is not None:
                counts[last] = counts.get(last, 0) + int(many)
            last = kind
            many = 0
        many += 1
    if last is not None:
        counts[last] = counts.get(last, 0) + int(many)
