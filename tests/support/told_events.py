"""The columns of a chunk of events as values; the server writes raw bytes."""

from __future__ import annotations

from struct import iter_unpack

from tuque.core.records.events import (
    COLUMN_NAMES,
    ID_BYTES,
    WITHOUT_JOB,
    Chunk,
)

LONGS = {
    "ts_ms": "ts",
    "consumer": "consumer",
    "delay_ms": "delay",
    "ttl_ms": "ttl",
    "retry_ms": "retry",
    "enqueued_ms": "enqueued",
    "first_ms": "first",
    "last_ms": "last",
}
INTS = ("delivery", "size", "deliveries", "nacks", "timeouts")


class Told:
    """A decoded chunk; attributes are columns in LONGS or INTS."""

    def __init__(self, chunk: Chunk) -> None:
        self.first_seq, self.rows, self.wait_seq = chunk.first_seq, chunk.rows, chunk.wait_seq
        self.raw = dict(zip(COLUMN_NAMES, chunk.columns(), strict=True))
        self.kinds = list(self.raw["kinds"])
        self.queues = parts(self.raw["queue_lens"], self.raw["queues"])
        self.reason = parts(self.raw["reason_lens"], self.raw["reasons"])

    @property
    def job_ids(self) -> list[bytes]:
        """One per event, empty for events about the node or a tube."""
        ids = self.raw["ids"]
        cut = iter([ids[i : i + ID_BYTES] for i in range(0, len(ids), ID_BYTES)])
        return [b"" if kind in WITHOUT_JOB else next(cut) for kind in self.kinds]

    def __getattr__(self, name: str) -> list[int]:
        if name in LONGS:
            return numbers("<q", self.raw[LONGS[name]])
        if name in INTS:
            return numbers("<i", self.raw[name])
        raise AttributeError(name)


def numbers(form: str, raw: bytes) -> list[int]:
    """The column as numbers."""
    return [value for (value,) in iter_unpack(form, raw)]


def parts(lengths: bytes, raw: bytes) -> list[bytes]:
    """The column as byte strings."""
    found, at = [], 0
    for length in numbers("<i", lengths):
        found.append(raw[at : at + length])
        at += length
    return found
