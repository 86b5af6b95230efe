"""Job ids: `D-<8 hex of the node id>-<24 random characters>-<4 hex TTL field>` (SPEC G6).

The TTL field counts minutes; its lowest bit tells at-least-once (1) from at-most-once
(0). The random part comes in blocks from SHAKE-128 over the node's seed and a counter,
which costs a tenth of a hash per id.
"""

from base64 import b64encode
from hashlib import shake_128
from typing import Final, final

from mypy_extensions import i64

ID_BYTES: Final = 40
_BLOCK: Final = 256  # ids per block; 18 random bytes make 24 characters


@final
class IdMaker:
    """Makes the ids of one node. `seed` must differ at every start of a process."""

    def __init__(self, node_id: bytes, seed: bytes) -> None:
        self.seed = seed
        self.counter: i64 = 0
        self.block = b""
        self.pos: i64 = 0
        self.prefix = b"D-%s-" % node_id[:8]
        self.ttl_s: i64 = -1  # the suffix made last
        self.at_most_once = False
        self.suffix = b""

    def make(self, ttl_s: i64, retry_s: i64) -> bytes:
        """[G6] PROCEDURE make an id for that time to live and retry time (both s)."""
        if self.pos == len(self.block):
            self.counter += 1
            digest = shake_128(self.seed + b"%d" % self.counter).digest(18 * _BLOCK)
            self.block = b64encode(digest)
            self.pos = 0
        if ttl_s != self.ttl_s or (retry_s == 0) != self.at_most_once:
            self.ttl_s = ttl_s
            self.at_most_once = retry_s == 0
            self.suffix = b"-%04x" % ttl_field(ttl_s, retry_s)
        start = self.pos
        self.pos = start + 24
        return self.prefix + self.block[start : start + 24] + self.suffix  # G6.1


def ttl_field(ttl_s: i64, retry_s: i64) -> i64:
    """Whole minutes, at most 65535, odd for at-least-once, even for at-most-once (G6.2)."""
    minutes = ttl_s // 60
    if minutes > 65_535:
        minutes = 65_535
    return minutes | 1 if retry_s > 0 else minutes & ~1


def is_job_id(word: bytes) -> bool:
    """Whether the word has the form of a job id: length and the four fixed characters (G6.3)."""
    return (
        len(word) == ID_BYTES
        and word[0] == 68  # D
        and word[1] == 45  # -
        and word[10] == 45
        and word[35] == 45
    )
