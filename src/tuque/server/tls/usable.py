"""Whether a certificate can do its work: its dates, and who signed it (SPEC X2.2)."""

from __future__ import annotations

import ssl
import time
from typing import Any, Final

from tuque.server.config.faults import ConfigError

ROUNDS: Final = 10  # of a handshake in memory, which takes three
ALLOWED: Final = "a certificate that is valid now, and that the authority of the nodes has signed"


def check_usable(name: str, path: str, contexts: list[ssl.SSLContext]) -> None:
    """[X2] ConfigError of that option unless the certificate in the file works (X2.2).

    `contexts`: of clients, or also of links dialled and of links accepted, which must trust
    each other.
    """
    now_s = time.time()
    begins_s, ends_s = when_it_begins(path), when_it_ends(path)
    why = ""
    if ends_s is not None and ends_s <= now_s:
        why = "it has ended"
    elif begins_s is not None and begins_s > now_s:
        why = "it is not valid yet"
    elif len(contexts) > 1:
        why = why_not_trusted(contexts[1], contexts[2])
    if why:
        raise ConfigError(name, path, f"{ALLOWED} ({why})")


def why_not_trusted(dialer: ssl.SSLContext, accepter: ssl.SSLContext) -> str:
    """Why a node with these two would not link with itself; empty: it would."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        dialer.wrap_bio(back, there, server_side=False),
        accepter.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(ROUNDS):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    return error.verify_message
                return error.reason or "not understood"
            ends.remove(end)
        if not ends:
            return ""
    return "no end of the handshake"


def when_it_ends(path: str) -> float | None:
    """When the first certificate in the file ends, in seconds since 1970; None: not known."""
    return date_of(path, "notAfter")


def when_it_begins(path: str) -> float | None:
    """When it begins to be valid; None: not known."""
    return date_of(path, "notBefore")


def date_of(path: str, field: str) -> float | None:
    """One of the dates of the first certificate in the file, in seconds since 1970.

    Python shows its own certificate to nobody; this function of its tests does, in all versions.
    """
    read: Any = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if read is None:
        return None
    try:
        return float(ssl.cert_time_to_seconds(read(path)[field]))
    except (OSError, KeyError, ValueError):
        return None
