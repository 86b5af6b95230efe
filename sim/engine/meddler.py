"""Somebody on the way between two nodes, who reads all frames and has no key (SPEC B2.7).

Asked to, he forges, repeats, moves, changes or removes the next frame that he sees whole. The node
that gets it must end the link with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuque.core.msgs.bus import AnyMessage, Pause
from tuque.wire.bus.bus import HEAD_BYTES, SEALED_HEAD_BYTES, frames_of

if TYPE_CHECKING:
    from sim.engine.network import Pipe

KINDS: Final = ["forge", "repeat", "swap", "change", "remove"]
FORGED: Final = b"forged"  # a queue that nobody pauses
HANDSHAKE_FRAMES: Final = 2  # in each direction
PATIENCE_US: Final = 1_000_000


class Meddler:
    """He stands in one direction of a connection between nodes."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.frames = 0  # whole ones seen
        self.rest = b""  # of the frame that is not whole yet
        self.passed = 0  # bytes
        self.wish = ""  # what to do with the next frame
        self.kept = b""  # held back, to come after the next one
        self.is_due = False  # change the next frame
        self.overdue_us = 0  # since when the other end has it
        self.wrong_at = 0  # where that one ends; 0: none yet

    def pass_on(self, data: bytes) -> bytes:
        """What the other end gets in the place of these bytes."""
        at_frame = not self.rest
        whole = self.cut(data)
        if self.wish and at_frame and not self.rest and self.frames - len(whole) >= 2:
            data = self.meddle(whole)
            whole = split(data)
        if self.is_due and whole and not self.wrong_at:
            self.wrong_at = self.passed + len(whole[0])
        self.passed += len(data)
        return data

    def cut(self, data: bytes) -> list[bytes]:
        """The frames that end in these bytes."""
        text = self.rest + data
        found: list[bytes] = []
        while True:
            head = HEAD_BYTES if self.frames < HANDSHAKE_FRAMES else SEALED_HEAD_BYTES
            end = head + int.from_bytes(text[:4], "big")
            if len(text) < head or len(text) < end:
                self.rest = text
                return found
            found.append(text[:end])
            text = text[end:]
            self.frames += 1

    def meddle(self, whole: list[bytes]) -> bytes:
        """Do what he was asked to do; the first frame that comes of it is the wrong one."""
        wish, first = self.wish, whole[0]
        if wish == "swap" and len(whole) < 2 and not self.kept:
            self.kept = first
            return b""
        self.wish, self.is_due = "", True
        if wish == "forge":
            said: list[AnyMessage] = [Pause(FORGED, 3, 1)]
            payload = frames_of(said, 0)[HEAD_BYTES:]
            code = first[4:SEALED_HEAD_BYTES]
            whole = [len(payload).to_bytes(4, "big") + code + payload, *whole]
        elif wish == "repeat":
            self.passed += len(first)
            self.pipe.send(first)
        elif wish == "swap":
            whole = [first, self.kept] if self.kept else [whole[1], first, *whole[2:]]
        elif wish == "change":
            whole[0] = first[:-1] + bytes([first[-1] ^ 1])
        else:
            whole = whole[1:]
        return b"".join(whole)

    def is_overdue(self) -> bool:
        """Whether the other end has the wrong frame."""
        return 0 < self.wrong_at <= self.pipe.to.got


def split(data: bytes) -> list[bytes]:
    """The sealed frames in these bytes."""
    found = []
    while data:
        end = SEALED_HEAD_BYTES + int.from_bytes(data[:4], "big")
        found.append(data[:end])
        data = data[end:]
    return found
