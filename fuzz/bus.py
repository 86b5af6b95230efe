"""Fuzz the frames and the handshake of the bus for long: `python fuzz/bus.py -max_total_time=600`.

Needs atheris (`pip install atheris`), which is not among the pinned packages. The oracle: nothing
but BusError comes out, and before the proof nobody is believed.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from tuque.wire.bus import BusError, FrameReader, head_of, messages_of
    from tuque.wire.handshake import Card, Conn


def one(data: bytes) -> None:
    """One input, three ways: as a payload, as a stream of frames, as a stranger on a link."""
    try:
        messages_of(data)
    except BusError:
        pass
    reader = FrameReader(1 << 20)
    try:
        reader.feed(head_of(data, 0) + data)
        while reader.next() is not None:
            pass
    except BusError:
        pass
    conn = Conn(False, Card(b"b" * 40, 1, b"m" * 8, True, 1, 2, ""), b"secret", b"n" * 32)
    try:
        conn.feed(data)
        conn.feed(head_of(data[:1000], 0) + data[:1000])
    except BusError:
        pass
    assert conn.peer is None


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
