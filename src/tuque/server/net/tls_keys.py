"""The node's certificate and key: checked, read, read again when the files change (SPEC X1-X3)."""

from __future__ import annotations

import ssl
import threading
import time
from typing import Any, Final

from tuque.logtext import facts
from tuque.server.config.config import in_dir
from tuque.server.config.kinds import ConfigError
from tuque.server.config.options import Config
from tuque.server.log.log import log
from tuque.smallfile import Stamp, read_small, stamp_of

ROUNDS: Final = 10  # of a handshake in memory, which takes three
USABLE: Final = "a certificate that is valid now, and that the authority of the nodes has signed"

LOOK_S: Final = 1.0  # between two looks at the files
AGAIN_S: Final = 60.0  # between two tries of files that could not be used
DAY_S: Final = 86_400
SOON_DAYS: Final = 14  # a certificate that ends sooner is warned of
FILES: Final = ("tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-cluster-ca-cert-file")
FILE_BYTES: Final = 1 << 20
MARKS: Final = {
    "tls-cert-file": b"-BEGIN CERTIFICATE-",
    "tls-key-file": b"PRIVATE KEY-",
    "tls-ca-cert-file": b"-BEGIN ",
    "tls-cluster-ca-cert-file": b"-BEGIN ",
}
ALLOWED: Final = {
    "tls-cert-file": "a file with the node's certificate and those between it and the root, in PEM",
    "tls-key-file": "a file with the key of the certificate, in PEM and without a passphrase",
    "tls-ca-cert-file": "a file with the certificates of those who sign, in PEM",
    "tls-cluster-ca-cert-file": "a file with the certificates of those who sign for nodes, in PEM",
}
OTHER_CA: Final = (
    "another authority than tls-ca-cert-file, or a cluster-secret too: whoever it signs for is a "
    "node, and the clients' certificates are signed by that one"
)


# ---- Whether a certificate is usable: its dates, and its authority (SPEC X2.2)


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
        raise ConfigError(name, path, f"{USABLE} ({why})")


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


# ---- Certificate and key for new connections (SPEC X1, X3)


class TlsKeys:
    """The context for new connections; its methods may be called from any thread."""

    def __init__(self, cfg: Config) -> None:
        """Read the files. ConfigError names the option and what is wrong."""
        self.cfg = cfg
        self.fault = ""  # why the files as they are now are not in use (X2.2)
        self.loads = 1
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._next_s = time.monotonic() + LOOK_S
        self._again_s = 0.0  # the next try, while there is a fault
        self._contexts = make_contexts(cfg)
        self._warned_day = 0
        self.ends_s = when_it_ends(self._paths()[0])
        self._warn()

    def context(self) -> ssl.SSLContext:
        """[X2] The context for a new connection, from the files as they are (X2.1)."""
        with self._lock:
            self._look_again()
            return self._contexts[0]

    def bus_context(self, is_dialer: bool) -> ssl.SSLContext:
        """[B1] The context for a new link, of the end that dials or the other one (B1.8)."""
        with self._lock:
            self._look_again()
            return self._contexts[1 if is_dialer else 2]

    def count(self) -> int:
        """How often the files were taken, as they are now."""
        with self._lock:
            self._look_again()
            return self.loads

    def _look_again(self) -> None:
        """Take the files if they have changed, at most once a second."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            self._reload(is_new=True)
        elif self.fault and now_s >= self._again_s:
            self._reload(is_new=False)  # a certificate that was not valid yet may be now
        elif self._warned_day != int(time.time() // DAY_S):
            self._warn()

    def _reload(self, is_new: bool) -> None:
        """Take the files, or keep what there is and say why (X2.2)."""
        try:
            contexts = make_contexts(self.cfg)
            check_usable(FILES[0], self._paths()[0], contexts)
        except ConfigError as error:
            self._again_s = time.monotonic() + AGAIN_S
            if not is_new and self.fault == str(error):
                return
            self.fault = str(error)
            log.error(
                "the certificate in use stays: %(reason)s", facts("tls_unloadable", reason=error)
            )
            return
        self._contexts = contexts
        self.fault = ""
        self.loads += 1
        self.ends_s = when_it_ends(self._paths()[0])
        log.info("took the certificate in %(path)s", facts("tls_reloaded", path=self._paths()[0]))
        self._warn()

    def days_left(self) -> int | None:
        """Whole days until the certificate ends; below 0: it has ended; None: not known."""
        return None if self.ends_s is None else int((self.ends_s - time.time()) // DAY_S)

    def told(self) -> dict[str, object]:
        """[X2] What INFO says of the certificate (X2.4)."""
        days = self.days_left()
        return {
            "tls_certificate_days": "" if days is None else days,
            "tls_certificate_loads": self.loads,
            "tls_certificate_fault": self.fault,
        }

    def _warn(self) -> None:
        """[X2] Tell of a certificate that has ended or soon will, once a day (X2.3)."""
        self._warned_day = int(time.time() // DAY_S)
        days = self.days_left()
        if days is not None and days < 0:
            log.error(
                "the certificate in %(path)s has ended: clients and nodes refuse it",
                facts("tls_ended", path=self._paths()[0]),
            )
        elif days is not None and days < SOON_DAYS:
            log.warning(
                "the certificate in %(path)s ends in %(days)d days",
                facts("tls_ends_soon", path=self._paths()[0], days=days),
            )

    def _paths(self) -> list[str]:
        """The files, as far as they are set."""
        return [path for _, path in paths_of(self.cfg)]

    def _look(self) -> list[tuple[str, Stamp]]:
        """What tells whether a file has changed."""
        return [(path, stamp_of(path)) for path in self._paths()]


def paths_of(cfg: Config) -> list[tuple[str, str]]:
    """The options that name files, and the files."""
    values = (
        cfg.tls_cert_file,
        cfg.tls_key_file,
        cfg.tls_ca_cert_file,
        cfg.tls_cluster_ca_cert_file if cfg.tls_cluster else "",
    )
    return [(name, in_dir(cfg, one)) for name, one in zip(FILES, values, strict=True) if one]


def make_contexts(cfg: Config) -> list[ssl.SSLContext]:
    """The context for clients; with `tls-cluster` those for links dialled and accepted (B1.8).

    ConfigError says what is wrong.
    """
    contexts = [make_context(cfg, ssl.PROTOCOL_TLS_SERVER)]
    named = dict(paths_of(cfg))
    if cfg.tls_auth_clients != "no":
        ask_clients(contexts[0], cfg, named.get(FILES[2], ""))
    if cfg.tls_cluster:
        path = named.get(FILES[3], "")
        check_authority(cfg, path, named.get(FILES[2], ""))
        for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = make_context(cfg, protocol)
            context.check_hostname = False  # whoever the authority signs for is a node
            ask(context, FILES[3], path, is_must=True)
            contexts.append(context)
    return contexts


def check_authority(cfg: Config, path: str, of_clients: str) -> None:
    """[B1] Links need an authority, without a secret one that signs for no clients (B1.8)."""
    if not path:
        raise ConfigError(FILES[3], "", f"{ALLOWED[FILES[3]]}, since tls-cluster is set")
    has_secret = cfg.cluster_secret or cfg.cluster_secret_file
    if has_secret or cfg.tls_auth_clients == "no" or not of_clients:
        return
    guard = cfg.protected_mode
    texts = (read_pem(FILES[3], path, guard), read_pem(FILES[2], of_clients, guard))
    if texts[0].strip() == texts[1].strip():
        raise ConfigError(FILES[3], path, OTHER_CA)


def make_context(cfg: Config, protocol: Any) -> ssl.SSLContext:
    """[X1] A context of the node's certificate (X1.2, X1.4). ConfigError says what is wrong."""
    named = dict(paths_of(cfg))
    for name in FILES[:2]:
        if name not in named:
            raise ConfigError(name, "", ALLOWED[name])
    for name, path in named.items():
        check_readable(name, path, cfg.protected_mode)
    context = ssl.SSLContext(protocol)
    oldest = ssl.TLSVersion.TLSv1_3 if cfg.tls_min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    context.minimum_version = oldest
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        if cfg.tls_ciphers:
            context.set_ciphers(cfg.tls_ciphers)
    except ssl.SSLError:
        raise ConfigError("tls-ciphers", cfg.tls_ciphers, "a list that OpenSSL knows") from None
    cert, key = named[FILES[0]], named[FILES[1]]
    try:
        context.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as error:
        reason = error.reason or "not understood"
        where = FILES[1] if reason == "KEY_VALUES_MISMATCH" else FILES[0]
        raise ConfigError(where, named[where], f"{ALLOWED[where]} ({reason})") from None
    except PassphraseNeededError:
        raise ConfigError(FILES[1], key, ALLOWED[FILES[1]]) from None
    return context


def ask_clients(context: ssl.SSLContext, cfg: Config, path: str) -> None:
    """[X3] Ask clients for a certificate, signed by those in the file (X3.1)."""
    if not path:
        raise ConfigError(FILES[2], "", f"{ALLOWED[FILES[2]]}, since tls-auth-clients is set")
    ask(context, FILES[2], path, is_must=cfg.tls_auth_clients == "yes")


def ask(context: ssl.SSLContext, name: str, path: str, is_must: bool) -> None:
    """Ask the other end for a certificate, signed by those in the file. ConfigError."""
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        reason = error.reason or "not understood"
        raise ConfigError(name, path, f"{ALLOWED[name]} ({reason})") from None
    context.verify_mode = ssl.CERT_REQUIRED if is_must else ssl.CERT_OPTIONAL
    # a resumed session would carry an identity that was not proven again
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


class PassphraseNeededError(Exception):
    """The key is encrypted; OpenSSL would ask for its passphrase on the terminal."""


def no_passphrase() -> str:
    """Called by OpenSSL for an encrypted key."""
    raise PassphraseNeededError


def check_readable(name: str, path: str, is_guarded: bool = True) -> None:
    """ConfigError unless the file can be read and seems to hold what it should."""
    if MARKS[name] not in read_pem(name, path, is_guarded):
        raise ConfigError(name, path, f"{ALLOWED[name]} (there is none in it)")


def read_pem(name: str, path: str, is_guarded: bool = True) -> bytes:
    """What the file has. ConfigError unless it is a small file that can be read."""
    try:
        return read_small(path, FILE_BYTES, is_guarded)
    except OSError as error:
        raise ConfigError(name, path, f"{ALLOWED[name]} ({error.strerror})") from None
