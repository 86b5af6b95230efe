"""Keys of a link: made of the cluster's secret and what both ends said first (SPEC B1.1).

    root        = BLAKE2b(key of the secret, greeting of the dialler, greeting of the other end)
    proofs      = BLAKE2b(root, ...), one for each end; the second one covers the first
    frame keys  = BLAKE2b(root), one for each direction

Each use has a label of its own, so that no value made for one use can serve another. A greeting has
a nonce: who repeats what another link sent has other keys.
"""

from hashlib import blake2b
from typing import Final

KEY_BYTES: Final = 64
PROOF_BYTES: Final = 32
DIALER: Final = b"tuque dialer"
ACCEPTOR: Final = b"tuque acceptor"
FROM_DIALER: Final = b"tuque frames out"
FROM_ACCEPTOR: Final = b"tuque frames in"


def root_of(secret: bytes, dialer: bytes, acceptor: bytes) -> bytes:
    """The key of all keys of a link, of the secret and both greetings."""
    key = blake2b(secret, digest_size=KEY_BYTES, person=b"tuque secret").digest()
    text = b"%d:%s%s" % (len(dialer), dialer, acceptor)
    return blake2b(text, digest_size=KEY_BYTES, key=key, person=b"tuque link").digest()


def proof_of(root: bytes, role: bytes, text: bytes) -> bytes:
    """The code by which the end in that role shows that it knows the secret, and means the text."""
    return blake2b(text, digest_size=PROOF_BYTES, key=root, person=role).digest()


def frame_key(root: bytes, direction: bytes) -> bytes:
    """The key of the frames in one direction."""
    return blake2b(digest_size=KEY_BYTES, key=root, person=direction).digest()
