"""Fuzz the frames of IPROTO for long: `python fuzz/iproto.py -max_total_time=600`.

Needs atheris (`pip install atheris`), which is not among the pinned packages. The oracle: nothing
but BrokenStream and IprotoError comes out, whole and in pieces the same requests are read, and no
value lies outside of its frame.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from tuque.wire.proto.iproto import (
        FUNCTION,
        BrokenStream,
        FrameReader,
        IprotoError,
    )
    from tuque.wire.proto.msgpack import (
        ARRAY,
        MAP,
        MsgpackError,
        Value,
        skip,
    )

LIMIT_BYTES = 1 << 20
Found = tuple[int, int, list[int]]


def read(pieces: list[bytes]) -> tuple[list[Found], bytes]:
    """The requests in a stream, and what is said when it breaks."""
    reader = FrameReader(LIMIT_BYTES)
    found: list[Found] = []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (request := reader.next()) is not None:
                found.append((request.type, request.sync, list(request.body)))
                for value in request.body.values():
                    look(value)
                try:
                    request.text(FUNCTION, b"function name")
                    request.arguments(4)
                except IprotoError:
                    pass
    except BrokenStream as error:
        return found, error.text
    return found, b""


def look(value: Value) -> None:
    """Ask a value for what lies in it."""
    assert skip(value.data, value.at, value.end) == value.end
    if value.kind == ARRAY:
        for item in value.items(4):
            look(item)
    elif value.kind == MAP:
        for item in value.pairs().values():
            assert value.at < item.at and item.end <= value.end


def one(data: bytes) -> None:
    """One input, three ways: as a value, as a stream, as the same stream byte by byte."""
    try:
        assert 0 < skip(data, 0, len(data)) <= len(data)
    except MsgpackError:
        pass
    whole = read([data])
    assert read([data[at : at + 1] for at in range(len(data))]) == whole


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
