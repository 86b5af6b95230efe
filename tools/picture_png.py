"""PNG files with a palette: a screenshot of a page has few colours, and is a third as long so."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256
PIXEL = {2: 3, 6: 4}  # bytes of one, by the type of the file: RGB, RGBA


def with_few_colours(png: bytes) -> bytes:
    """The same picture with the commonest colours; others become the nearest of them.

    Takes 8-bit RGB or RGBA without interlace, as Chromium writes it. ValueError for another one.
    """
    parts = dict(chunks(png))
    wide, high, depth, kind, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    if depth != 8 or kind not in PIXEL or any(rest):
        raise ValueError("not a picture of Chromium")
    size = PIXEL[kind]
    rows = list(lines(zlib.decompress(parts[b"IDAT"]), wide * size, high, size))
    pixels = [[row[i : i + 3] for i in range(0, len(row), size)] for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    kept = [colour for colour, _ in counts.most_common(COLOURS)]
    index = {colour: nearest(colour, kept) for colour in counts}
    body = b"".join(b"\0" + bytes(map(index.__getitem__, row)) for row in pixels)
    head = struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)
    return SIGNATURE + b"".join(
        chunk(name, data)
        for name, data in (
            (b"IHDR", head),
            (b"PLTE", b"".join(kept)),
            (b"IDAT", zlib.compress(body, 9)),
            (b"IEND", b""),
        )
    )


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each part; those of IDAT as one."""
    at, data = len(SIGNATURE), b""
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, part = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        data += part if name == b"IDAT" else b""
        if name not in (b"IDAT", b"IEND"):
            yield name, part
        at += 12 + length
    yield b"IDAT", data


def chunk(name: bytes, data: bytes) -> bytes:
    """One part as it stands in the file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def lines(raw: bytes, length: int, high: int, size: int) -> Iterator[bytes]:
    """The rows without their filters (PNG 9.2)."""
    above = bytes(length)
    for y in range(high):
        at = y * (length + 1)
        above = plain(raw[at], bytearray(raw[at + 1 : at + 1 + length]), above, size)
        yield above


def plain(kind: int, row: bytearray, above: bytes, size: int) -> bytes:
    """One row without its filter."""
    for x in range(len(row)):
        left = row[x - size] if x >= size else 0
        up, corner = above[x], above[x - size] if x >= size else 0
        guess = guessed(kind, left, up, corner)
        row[x] = (row[x] + guess) & 255
    return bytes(row)


def guessed(kind: int, left: int, up: int, corner: int) -> int:
    """What the filter expects of a byte."""
    if kind == 4:  # Paeth: the one that is nearest to left + up - corner
        return min((left, up, corner), key=lambda one: abs(left + up - corner - one))
    return (0, left, up, (left + up) // 2)[kind]


def nearest(colour: bytes, kept: list[bytes]) -> int:
    """The place of the most similar colour."""
    if colour in kept:
        return kept.index(colour)
    return min(
        range(len(kept)),
        key=lambda i: sum((a - b) ** 2 for a, b in zip(colour, kept[i], strict=True)),
    )
