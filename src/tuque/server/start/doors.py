"""Ports and users at startup: IPROTO, TLS, the table of users, systemd (SPEC I1, X1, N5, O2.3)."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from tuque.logtext import facts
from tuque.server.access.change import OPEN_DOOR, on_bell, opens_door
from tuque.server.bus.handshaking import Handshaking
from tuque.server.config.config import check_dir, cluster_secrets, in_dir
from tuque.server.config.identity import check_places, check_written
from tuque.server.config.kinds import ConfigError
from tuque.server.config.options import Config
from tuque.server.log.audit import Audit
from tuque.server.loop.pump import Pump
from tuque.server.net.listen import name_of, open_iproto_listeners, open_tls_listeners
from tuque.server.net.tls_acceptor import Handshakes, TlsAcceptor
from tuque.server.net.tls_keys import TlsKeys, make_contexts
from tuque.server.state.client import GUEST, User, Users
from tuque.server.state.server import Server, apply_settings, log
from tuque.server.users.passwords import Hasher
from tuque.server.users.users import Account
from tuque.server.users.users_file import UsersFileError
from tuque.server.users.users_file import read_users as read_accounts
from tuque.smallfile import read_small, stamp_of
from tuque.wire.proto.iproto import secret_of

NO_PASSWORD: Final = "nopass"
ALL: Final = "all"
ROLE: Final = "role:"
USERS_MAX: Final = 100_000
HASH_DIGITS: Final = 40
FILE_BYTES: Final = 16 << 20

BATCH: Final = 64  # connections that become clients in one turn

TELLS_S: Final = 5.0  # at least so often
SILENT_S: Final = 15.0  # a loop that has not turned for so long is not well (O2.1)
MORE_TIME: Final = "EXTEND_TIMEOUT_USEC=60000000"  # O2.4


# ---- Users of IPROTO, read once from a file (SPEC I5)
#
# Each line has a user, a password, the word `all` for one who may call everything, and roles:
#
#     admin  sesame                                     all
#     bob    #0c6f6845bb8c62b778e9147c272ac4b5bdb9ae71  role:workers role:readers
#     guest  nopass                                     all
#
# `#` and 40 hexadecimal digits are SHA-1 of the SHA-1 of the password; a line that begins with `#`
# is a comment. A user without `all` needs grants, for himself or for one of his roles.


class UsersError(ValueError):
    """The users file is invalid; the text says where and why."""


def read_users(path: str, is_guarded: bool = True) -> Users:
    """[I5.6] The users of the file. Raises UsersError."""
    users = Users()
    users.is_from_file = True
    try:
        text = read_small(path, FILE_BYTES, is_guarded).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsersError(f"{path}: {error}") from None
    seen: set[bytes] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        user = user_of(words, where)
        if user.name in seen:
            raise UsersError(f"{where}: user {words[0]} is there twice")
        if len(seen) >= USERS_MAX:
            raise UsersError(f"{where}: more than {USERS_MAX} users")
        seen.add(user.name)
        users.add(user)
    return users


def user_of(words: list[str], where: str) -> User:
    """The user on one line. Raises UsersError."""
    more = words[2:]
    if len(words) < 2 or any(word != ALL and not is_role(word) for word in more):
        told = "a line has a name, a password and perhaps `all` and words `role:NAME`"
        raise UsersError(f"{where}: {told}")
    name = words[0].encode()
    roles = [word.removeprefix(ROLE).encode() for word in more if word != ALL]
    return User(name, secret_in(words[1], name, where), ALL in more, roles)


def is_role(word: str) -> bool:
    """Whether the word is a role."""
    return word.startswith(ROLE) and len(word) > len(ROLE)


def secret_in(word: str, name: bytes, where: str) -> bytes:
    """What to store of the password in the file. Raises UsersError."""
    if word == NO_PASSWORD:
        if name != GUEST:
            raise UsersError(f"{where}: only guest can do without a password")
        return b""
    if name == GUEST:
        raise UsersError(f"{where}: guest has no password: who connects is guest already")
    if not word.startswith("#"):
        return secret_of(word.encode())
    try:
        secret = bytes.fromhex(word[1:])
    except ValueError:
        secret = b""
    if len(word) != 1 + HASH_DIGITS or len(secret) * 2 != HASH_DIGITS:
        raise UsersError(f"{where}: after # stand {HASH_DIGITS} hexadecimal digits")
    return secret


# ---- The port of IPROTO (SPEC I1)


def iproto_users_of(cfg: Config) -> Users:
    """The users of `iproto-users-file`. Raises ConfigError."""
    try:
        return read_users(in_dir(cfg, cfg.iproto_users_file), cfg.protected_mode)
    except UsersError as error:
        allowed = f"a file of users ({error})"
        raise ConfigError("iproto-users-file", cfg.iproto_users_file, allowed) from None


def prepare_iproto(pump: Pump) -> None:
    """If `iproto-port` is set, read the users and listen. Raises ConfigError, ListenError."""
    s = pump.s
    cfg = s.cfg
    if cfg.iproto_users_file:
        s.users = iproto_users_of(cfg)
    apply_settings(s)
    for sock in open_iproto_listeners(cfg):
        pump.acceptors.listen_iproto(sock)
    if not cfg.iproto_port:
        return
    log.info("IPROTO listens on port %(port)d", facts("iproto_listening", port=cfg.iproto_port))
    has_users = s.users.is_from_file or cfg.users_file != ""
    if not has_users and s.acl.newcomer is None:
        log.warning(
            "requirepass is set and there is no users file: nobody can use IPROTO",
            extra=facts("iproto_unusable"),
        )


# ---- The certificate and the ports of TLS (SPEC X1)


def uses_tls(cfg: Config, has_bus: bool) -> bool:
    """Whether any port speaks TLS."""
    if cfg.tls_cluster and has_bus:
        return True
    return cfg.tls_port > 0 or cfg.iproto_tls_port > 0 or (cfg.metrics_port > 0 and cfg.metrics_tls)


def open_keys(pump: Pump) -> TlsKeys | None:
    """[X1] Read the certificate, if a port or the bus speaks TLS (B1.8). ConfigError."""
    s = pump.s
    if not uses_tls(s.cfg, s.bus is not None):
        return None
    keys = TlsKeys(s.cfg)
    s.handshakes = Handshakes(keys.told)
    bus = s.bus
    if bus is not None and s.cfg.tls_cluster:
        bus.shaking = shaking = Handshaking(keys.bus_context, keys.count)
        pump.watch_bell(shaking.bell.fd, bus.on_shaken)
        shaking.start()
    return keys


def open_tls_acceptor(pump: Pump, keys: TlsKeys | None) -> TlsAcceptor | None:
    """[X1] Listen on the clients' ports of TLS, if there are any (X1.1). ListenError."""
    s = pump.s
    listeners = [] if keys is None else open_tls_listeners(s.cfg)
    if keys is None or s.handshakes is None or not listeners:
        return None
    tls_acceptor = TlsAcceptor(keys, s.handshakes)
    for sock, is_iproto in listeners:
        tls_acceptor.listen(sock, is_iproto)

    def on_arrivals() -> None:
        """In the loop: take those in whose handshakes are over."""
        tls_acceptor.bell.quiet()
        for _ in range(min(BATCH, len(tls_acceptor.arrived))):
            stream, address, is_iproto = tls_acceptor.arrived.popleft()
            # it has all that a connection asks of its socket
            sock = cast(socket.socket, stream)
            pump.welcome(sock, address, is_iproto, stream.user().encode(), stream.has_early)
        if tls_acceptor.arrived:
            tls_acceptor.bell.ring()

    pump.watch_bell(tls_acceptor.bell.fd, on_arrivals)
    tls_acceptor.start()
    log.info(
        "TLS on %(addresses)s",
        facts("tls_listening", addresses=", ".join([name_of(sock) for sock, _ in listeners])),
    )
    return tls_acceptor


# ---- The table of users, the thread for passwords, the audit (SPEC N5, N9)


def prepare_audit(s: Server) -> None:
    """[N9] Open the audit, if it is wanted. Raises ConfigError."""
    if not s.cfg.audit:
        return
    path = in_dir(s.cfg, s.cfg.audit_dir)
    try:
        s.audit = Audit(path, s.n.node_id.decode(), s.cfg.audit_keep_bytes)
    except OSError as error:
        allowed = f"a directory that the server can write ({error.strerror})"
        raise ConfigError("audit-dir", s.cfg.audit_dir, allowed) from None


def accounts_of(cfg: Config) -> list[Account]:
    """The users of `users-file`. Raises ConfigError."""
    try:
        return read_accounts(in_dir(cfg, cfg.users_file), cfg.protected_mode)
    except UsersFileError as error:
        allowed = f"a file of users, which may be empty ({error})"
        raise ConfigError("users-file", cfg.users_file, allowed) from None


def check_files(cfg: Config) -> None:
    """[C1] Read the files that options name as the start does (C1.14). Raises ConfigError."""
    check_dir(cfg)
    check_places(cfg)
    check_written(cfg)
    cluster_secrets(cfg)
    if cfg.users_file:
        accounts_of(cfg)
    if cfg.iproto_users_file:
        iproto_users_of(cfg)
    if uses_tls(cfg, cfg.cluster_enabled):
        make_contexts(cfg)


def prepare_users(pump: Pump) -> None:
    """[N5] Read the users file, if one is named (N5.1). Raises ConfigError."""
    s = pump.s
    s.acl.hasher = Hasher()
    pump.watch_bell(s.acl.hasher.bell.fd, partial(on_bell, s))
    if not s.cfg.users_file:
        return
    path = in_dir(s.cfg, s.cfg.users_file)
    s.acl.path = path
    s.acl.stamp = stamp_of(path)
    s.acl.replace(accounts_of(s.cfg))
    s.settle_guest()
    if opens_door(s, s.acl.default):
        raise ConfigError("users-file", s.cfg.users_file, OPEN_DOOR)
    log.info(
        "users-file %(path)s: %(count)d users",
        facts("users_loaded", path=path, count=len(s.acl.by_name)),
    )
    if s.acl.newcomer is not None and len(s.acl.by_name) > 1:
        log.warning(
            "users-file %(path)s leaves `default` open: clients without a log-in are that user",
            facts("users_default_open", path=path),
        )


# ---- Notifications to systemd about the state of the server (SPEC O2.3, O2.4)
#
# Knows one datagram socket, named by NOTIFY_SOCKET; without that it does nothing.


class Notifier:
    """A thread that says each few seconds that the loop turns, until `close`.

    `turned_s` tells how long ago the loop turned last; the thread is silent when that is too long.
    """

    def __init__(self, turned_s: Callable[[], float]) -> None:
        self.turned_s = turned_s
        self.is_starting = True
        self.is_stopping = False
        self._ended = threading.Event()
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if somebody wants to know."""
        if self._address:
            self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()

    def ready(self, status: str) -> None:
        """The server serves."""
        self.is_starting = False
        self.say("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """The server ends: what follows may take its time without turns."""
        self.is_stopping = True
        self.say("STOPPING=1", "STATUS=stopping")

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def say(self, *lines: str) -> None:
        """Send one notification; a receiver that is gone is no failure of ours."""
        if not self._address:
            return
        name = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
        ):
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), name)

    def _run(self) -> None:
        every_s = min(TELLS_S, watchdog_s() / 3 or TELLS_S)
        while not self._ended.is_set():
            if self.is_stopping or self.turned_s() <= SILENT_S:
                self.say("WATCHDOG=1", *([MORE_TIME] if self.is_starting else []))
            self._ended.wait(every_s)


def watchdog_s() -> float:
    """After how long a silence the server is killed; 0: never, or another process is meant."""
    pid, span = os.environ.get("WATCHDOG_PID", ""), os.environ.get("WATCHDOG_USEC", "")
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(span) / 1e6 if span.isdecimal() else 0.0
