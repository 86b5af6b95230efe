"""Sockets to listen on, and the limit of open files."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from typing import Final

from tuque.logtext import facts
from tuque.server.config.config import bus_addresses, in_dir, listen_addresses
from tuque.server.config.options import Config
from tuque.server.log.log import log, say_once

PROBES: Final = 3  # of a silent connection
PROBE_S: Final = 15  # between two of them

RESERVED_FDS = 32  # journal, events, listeners, log
LINK_FDS = 128  # links to other nodes, where there is room
BUS_OFFSET = 10_000  # from the clients' port to the bus
PORT_MAX = 65_535
FREE_TRIES = 8
BUS_THERE = "the bus to other nodes is 10000 above the clients' port"


class ListenError(Exception):
    """An address cannot be listened on; the text names it and says what to do."""


def raise_file_limit(cfg: Config) -> None:
    """Raise the limit of open files to what maxclients needs, or lower maxclients to fit it."""
    wanted = cfg.maxclients + RESERVED_FDS + LINK_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    for limit in (max(hard, wanted) if hard != resource.RLIM_INFINITY else wanted, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, limit), max(hard, limit)))
            break
        except (ValueError, OSError):
            continue
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        fits = soft - RESERVED_FDS - (LINK_FDS if soft > 4 * LINK_FDS else 0)
        if fits < 1:
            raise ListenError(f"only {soft} open files are allowed; raise it with ulimit -n")
        log.warning(
            "maxclients lowered from %(wanted)d to %(fits)d: ulimit -n is %(limit)d",
            facts("maxclients_lowered", wanted=cfg.maxclients, fits=fits, limit=soft),
        )
        cfg.maxclients = fits


def open_listeners(cfg: Config) -> list[socket.socket]:
    """Bound, listening, non-blocking sockets for every configured address."""
    found: list[socket.socket] = []
    if cfg.port or not (cfg.unixsocket or cfg.tls_port):
        for address in listen_addresses(cfg):
            sock = open_tcp(cfg, address, cfg.port, "--port", is_first=not found)
            if sock is not None:
                found.append(sock)
                if cfg.port == 0:
                    cfg.port = sock.getsockname()[1]
                    cfg.is_any_port = True
    if cfg.unixsocket:
        found.append(open_unix(cfg))
    return found


def open_tls_listeners(cfg: Config) -> list[tuple[socket.socket, bool]]:
    """[X1] Listeners for TLS on the clients' addresses, and whether they are for IPROTO (X1.1)."""
    found: list[tuple[socket.socket, bool]] = []
    ports = ((cfg.tls_port, "--tls-port", False), (cfg.iproto_tls_port, "--iproto-tls-port", True))
    for port, option, is_iproto in ports:
        is_first = True
        for address in listen_addresses(cfg) if port else []:
            sock = open_tcp(cfg, address, port, option, is_first)
            is_first = False
            if sock is not None:
                found.append((sock, is_iproto))
    return found


def name_of(sock: socket.socket) -> str:
    """The address of a listener: `host:port`, an IPv6 address in brackets, or `unix:path`."""
    name = sock.getsockname()
    if not isinstance(name, tuple):
        return f"unix:{name if isinstance(name, str) else os.fsdecode(name)}"
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_iproto_listeners(cfg: Config) -> list[socket.socket]:
    """IPROTO listeners on the clients' addresses; none when the port is 0 (I1.2)."""
    found: list[socket.socket] = []
    if cfg.iproto_port:
        for address in listen_addresses(cfg):
            sock = open_tcp(cfg, address, cfg.iproto_port, "--iproto-port", is_first=not found)
            if sock is not None:
                found.append(sock)
    return found


def open_bus_sockets(cfg: Config, is_guarded: bool) -> list[socket.socket]:
    """[B1] Listening sockets of the bus; it accepts nobody before the jobs are loaded.

    Nodes that meet this one expect its bus at that port: if it is taken, the start fails (B1.4).
    """
    if cfg.cluster_port:
        return bind_bus(cfg, is_guarded, cfg.cluster_port)
    own = cfg.port or cfg.tls_port
    port = own + BUS_OFFSET if own and own + BUS_OFFSET <= PORT_MAX else 0
    try:
        return bind_bus(cfg, is_guarded, port)
    except ListenError as error:
        if port != 0 and not cfg.is_any_port:
            raise ListenError(f"{error}, or set cluster-enabled no; {BUS_THERE}") from None
    for _ in range(FREE_TRIES):
        try:
            return bind_bus(cfg, is_guarded, 0)
        except ListenError:
            continue  # free for one address family only
    return bind_bus(cfg, is_guarded, 0)


def bind_bus(cfg: Config, is_guarded: bool, port: int) -> list[socket.socket]:
    """One socket per address, all on the same port; 0: any free one. Raises ListenError."""
    found: list[socket.socket] = []
    for address in bus_addresses(cfg, is_guarded):
        try:
            sock = open_tcp(cfg, address, port, "--cluster-port", is_first=not found)
        except ListenError:
            for one in found:
                one.close()
            raise
        if sock is not None:
            found.append(sock)
            port = sock.getsockname()[1]
    return found


def open_tcp(
    cfg: Config, address: str, port: int, option: str, is_first: bool
) -> socket.socket | None:
    """One TCP listener; None when an additional IPv6 address is unavailable."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = None
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(cfg.tcp_backlog)
    except OSError as error:
        if sock is not None:
            sock.close()
        if family == socket.AF_INET6 and not is_first and error.errno != errno.EADDRINUSE:
            return None
        if error.errno == errno.EADDRINUSE:
            hint = f"another program listens there; stop it or choose another {option}"
        elif error.errno == errno.EACCES:
            hint = f"ports below 1024 need privileges; choose another {option}"
        else:
            bind = "--cluster-bind" if option == "--cluster-port" else "--bind"
            hint = f"check {bind} and {option}"
        raise ListenError(f"can't listen on {address}:{port}: {error.strerror}; {hint}") from None
    sock.setblocking(False)
    return sock


def open_unix(cfg: Config) -> socket.socket:
    """The unix socket; removes a stale file in its place, fails if another server uses it."""
    path = in_dir(cfg, cfg.unixsocket)
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ListenError(f"can't listen on {path}: there is something that is no socket")
    except FileNotFoundError:
        pass  # or a link to nothing, where bind fails
    except OSError as error:
        raise ListenError(f"can't listen on {path}: {error.strerror}") from None
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
        raise ListenError(f"can't listen on {path}: another server answers there")
    except ConnectionRefusedError:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ListenError(f"can't listen on {path}: {error.strerror}") from None
    finally:
        probe.close()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o777 & ~cfg.unixsocketperm if cfg.unixsocketperm else 0o077)
    try:
        sock.bind(path)
        sock.listen(cfg.tcp_backlog)
    except OSError as error:
        raise ListenError(f"can't listen on {path}: {error.strerror}") from None
    finally:
        os.umask(old)
    sock.setblocking(False)
    return sock


def tune(sock: socket.socket, idle_s: int, now_ms: int) -> None:
    """[C1] Set what every TCP connection has: small writes go at once, and probes (C1.8, C1.9).

    A peer that is silent and gone is noticed by probes after `idle_s` (0: never), and a limit. As
    the client does, client/transport/sockets.py, which does not import the node.
    """
    options = [(socket.IPPROTO_TCP, "TCP_NODELAY", 1)]
    if idle_s > 0:
        idle = "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE"
        options += [
            (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
            (socket.IPPROTO_TCP, idle, idle_s),
            (socket.IPPROTO_TCP, "TCP_KEEPINTVL", PROBE_S),
            (socket.IPPROTO_TCP, "TCP_KEEPCNT", PROBES),
            (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 1000 * (idle_s + PROBES * PROBE_S)),
        ]
    for level, name, value in options:
        if not hasattr(socket, name):
            continue
        try:
            sock.setsockopt(level, getattr(socket, name), value)
        except OSError as error:
            say_once(
                now_ms,
                "connections are without %(option)s %(value)d: %(reason)s",
                facts("option_refused", option=name, value=value, reason=error),
            )


def name_peer(cfg: Config, sock: socket.socket, address: object, now_ms: int) -> str:
    """Set up an accepted connection; returns its peer's name in CLIENT LIST."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{cfg.unixsocket}"
    tune(sock, cfg.tcp_keepalive, now_ms)
    assert isinstance(address, tuple)
    return f"{address[0]}:{address[1]}"
