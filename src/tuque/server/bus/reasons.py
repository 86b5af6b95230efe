"""Why there is no link, for the log and CLUSTER NODES; names of nodes to dial (SPEC K3)."""

import errno
import os
import ssl
from typing import Final, final

from mypy_extensions import i64

from tuque.logtext import facts
from tuque.server.log.log import say_once
from tuque.server.net.resolver import Resolver

SILENT: Final = "it closed the connection without a reply: not a bus of Tuque, or too busy"
NO_BUS: Final = "nothing listens there; `cluster_bus_port` in its CLUSTER INFO is the port to meet"
NO_SECRET: Final = (
    "without a cluster-secret only nodes of this machine can be met; "
    "`tuque cluster secret` makes one, the same for all nodes, or use tls-cluster"
)
SHUT: Final = (
    "this node restricts its clients and has no cluster-secret, so it has no links to other "
    "nodes; "
    "`tuque cluster secret` makes a secret, the same for all nodes, or use tls-cluster"
)
GONE_SECRET: Final = "its secret is no longer accepted"
NEW_CERTIFICATES: Final = "the certificates have changed"
IS_CLEAR: Final = "it speaks no TLS on its bus; tls-cluster must be the same on all nodes"
UNSHOWN: Final = "it does not accept this node's certificate: "
TLS_WORDS: Final = {  # by OpenSSL's names of alerts, without what they begin with
    "CERTIFICATE_EXPIRED": UNSHOWN + "it has expired",
    "UNKNOWN_CA": UNSHOWN + "its tls-cluster-ca-cert-file has not who signed it",
    "BAD_CERTIFICATE": UNSHOWN + "it cannot be used",
    "CERTIFICATE_UNKNOWN": UNSHOWN + "it cannot be used",
    "UNSUPPORTED_CERTIFICATE": UNSHOWN + "it is not for both ends of a connection",
    "CERTIFICATE_REQUIRED": UNSHOWN + "there is none",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate",
    "PROTOCOL_VERSION": "no common version of TLS, see tls-min-version",
    "UNSUPPORTED_PROTOCOL": "no common version of TLS, see tls-min-version",
    "HANDSHAKE_FAILURE": "no common cipher of TLS, see tls-ciphers",
    "NO_SHARED_CIPHER": "no common cipher of TLS, see tls-ciphers",
}
NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH")
TOO_OFTEN: Final = "too many connections in a moment, and no member is at that address"
OLDEST: Final = "too many connections in their handshake"


def is_no_tls(error: OSError) -> bool:
    """Whether the other end has sent something else than TLS."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return any(word in reason for word in NOT_TLS)


def why_broken(error: OSError) -> str:
    """Why a connection failed, in words that say what to mend (B1.8)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    if is_no_tls(error):
        return IS_CLEAR
    reason = error.reason or ""
    for name, words in TLS_WORDS.items():
        if reason.endswith(name):
            return words
    return f"TLS failed: {reason or error.strerror or error}"


def why_unreached(number: i64) -> str:
    """Why a connect failed, and what may help (K3.3)."""
    return os.strerror(number) + (f": {NO_BUS}" if number == errno.ECONNREFUSED else "")


def why_not(has_secret: bool, address: str) -> str:
    """[B1.1] Why a node does not link with that address; empty if it does."""
    is_here = address == "::1" or address.startswith("127.")
    return "" if has_secret or is_here else NO_SECRET


def say_not_accepted(now_ms: i64, error: OSError) -> None:
    """Log, once a minute, that no connection can be accepted."""
    say_once(
        now_ms,
        "bus: accept: %(reason)s",
        facts("bus_accept_failed", reason=error.strerror),
    )


def say_not_linked(now_ms: i64, address: str, reason: str) -> None:
    """Log, once a minute, why a handshake failed."""
    say_once(
        now_ms,
        "bus: no link with %(address)s: %(reason)s",
        facts("bus_not_linked", address=address, reason=reason),
    )


def say_ended(now_ms: i64, address: str, reason: str) -> None:
    """Log, once a minute, why a link ended."""
    say_once(
        now_ms,
        "bus: the link with %(address)s ended: %(reason)s",
        facts("bus_link_ended", address=address, reason=reason),
    )


# ---- Host names of nodes to dial are resolved in a thread (SPEC K3)


@final
class Lookups:
    """Who waits for which name."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.waiting: list[tuple[str, int]] = []  # host and port to dial once resolved

    def ask(self, host: str, port: int) -> None:
        """Resolve the name; `take` has the result, once it is there."""
        self.waiting.append((host, port))
        self.resolver.ask(host)

    def take(self) -> list[tuple[str, int, str, str]]:
        """Host, port, address and error of each that is resolved; one of the last two is empty."""
        found: list[tuple[str, int, str, str]] = []
        for answer in self.resolver.take():
            waiting = self.waiting
            self.waiting = []
            for host, port in waiting:
                if host == answer.host:
                    found.append((host, port, answer.address, answer.error))
                else:
                    self.waiting.append((host, port))
        return found
