"""`tuque server`: it starts and stops in order: lock, listen, load, serve, finish (SPEC L1)."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

import click

from tuque import __version__
from tuque.core.node.node import Node
from tuque.core.queues.procedures import memory_level
from tuque.logtext import facts
from tuque.server.admin.registry import register
from tuque.server.commands.tube_admin import load_plugins
from tuque.server.config.config import (
    announced_port,
    check_dir,
    config_flags,
    config_of_flags,
    in_dir,
)
from tuque.server.config.identity import (
    Identity,
    IdentityError,
    check_places,
    close_to_others,
    file_refusal,
    open_identity,
    readable_secrets,
)
from tuque.server.config.kinds import ConfigError
from tuque.server.config.options import Config
from tuque.server.events.events import EventLog, EventLogError
from tuque.server.log.log import LogFile, has_log, send_log_to
from tuque.server.loop.housekeeping import give_back, settle_heap
from tuque.server.loop.pump import Pump
from tuque.server.metrics.metrics_server import Desk, close_metrics, open_metrics
from tuque.server.net.listen import (
    ListenError,
    name_of,
    open_listeners,
    raise_file_limit,
)
from tuque.server.net.system import resident_bytes, steady_ms
from tuque.server.net.tls_acceptor import TlsAcceptor
from tuque.server.replies.errors import drop_turn
from tuque.server.start.bus import open_bus, prepare_bus, take_identity
from tuque.server.start.doors import (
    Notifier,
    check_files,
    open_keys,
    open_tls_acceptor,
    prepare_audit,
    prepare_iproto,
    prepare_users,
)
from tuque.server.start.journal import close_journal, load_journal, open_journal
from tuque.server.state.server import EVENTS, Server, apply_settings, log
from tuque.store.frames import JournalError
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.policy import tubes_of

STOPS = {"shutdown": "SHUTDOWN", "signal": "asked by a signal", "restart": "to start again"}


class StartError(Exception):
    """The server cannot start; the text says why and what to do."""


def run(cfg: Config) -> int:
    """Run a server until it stops; returns the exit status."""
    try:
        os.umask(0o077)
        check_dir(cfg)
        check_places(cfg)
        open_log(cfg)
        for line in readable_secrets(cfg):
            log.warning("%(text)s", facts("secret_readable", text=line))
        raise_file_limit(cfg)
        identity = open_identity(cfg)
        pump = build(cfg, identity)
        sides = open_sides(pump)
    except (ConfigError, ListenError, IdentityError, EventLogError, JournalError) as error:
        raise not_started(cfg, error) from None
    s = pump.s
    s.watch.turned_ns = time.monotonic_ns()
    notifier = Notifier(lambda: (time.monotonic_ns() - int(s.watch.turned_ns)) / 1e9)
    notifier.start()
    try:
        watch_signals(pump)
        stop_collecting()
        s.n.base_bytes = resident_bytes()  # M1.1
        warn_of_small_memory(s)
        load_journal(pump)
        if not s.stop_requested:
            ready(pump)
            notifier.ready(f"serves on port {announced_port(s.cfg)}")  # O2.3
            pump.run()
    except JournalError as broken:
        pump.close_all()
        raise not_started(cfg, broken) from None
    except Exception:
        log.critical("internal error, the node stops", extra=facts("server_failed"), exc_info=True)
        drop_turn(s)
        notifier.stopping()
        finish(pump)
        close_sides(sides)
        identity.close()
        return 1
    notifier.stopping()
    status = finish(pump)
    close_sides(sides)
    notifier.close()
    identity.close()
    if s.restart_after_ms >= 0:
        time.sleep(s.restart_after_ms / 1000)
        os.execv(sys.executable, [sys.executable, "-m", "tuque", *sys.argv[1:]])
    return status


def not_started(cfg: Config, error: Exception) -> StartError:
    """[C10] What standard error gets; a log that is a file has it as well (C10.4)."""
    if cfg.logfile and has_log():
        log.critical("the node does not start: %(reason)s", facts("start_failed", reason=error))
    return StartError(str(error))


class Sides(NamedTuple):
    """What has threads of its own beside the loop."""

    tls_acceptor: TlsAcceptor | None
    desk: Desk | None


def open_sides(pump: Pump) -> Sides:
    """Open the ports of TLS and of metrics. ConfigError, ListenError."""
    keys = open_keys(pump)
    return Sides(open_tls_acceptor(pump, keys), open_metrics(pump, keys))


def close_sides(sides: Sides) -> None:
    """Close them; their threads have ended then."""
    close_metrics(sides.desk)
    if sides.tls_acceptor is not None:
        sides.tls_acceptor.close()


def open_log(cfg: Config) -> None:
    """Send the log to `logfile`, or to standard output."""
    handler: logging.Handler = logging.StreamHandler(sys.stdout)
    if cfg.logfile:
        path = in_dir(cfg, cfg.logfile)
        try:
            why = file_refusal(path)
            if why:
                raise OSError(0, why)
            handler = LogFile(path)
            close_to_others(path)
        except OSError as error:
            allowed = f"a file this user can write ({error.strerror})"
            raise ConfigError("logfile", path, allowed) from None
    send_log_to(handler, cfg.loglevel, cfg.log_format)


def build(cfg: Config, identity: Identity) -> Pump:
    """Build the server: node, listeners, journal, event stream."""
    settle_heap()
    offset_ms = int(time.time() * 1000) - steady_ms()
    now_ms = steady_ms() + offset_ms
    node = Node(identity.node_id, os.urandom(20), now_ms)
    s = Server(cfg, node)
    take_identity(s, identity)
    s.clock_offset_ms = offset_ms
    apply_settings(s)
    register()
    load_plugins(s)
    pump = Pump(s)
    listeners = open_listeners(cfg)
    for sock in listeners:
        pump.listen(sock)
    mode = "compiled" if is_compiled() else "interpreted"
    log.info(
        "Tuque %(version)s, %(mode)s, node %(node)s",
        facts("server_starts", version=__version__, mode=mode, node=identity.node_id.decode()),
    )
    log.info(
        "listens on %(addresses)s",
        facts("clients_listening", addresses=", ".join([name_of(sock) for sock in listeners])),
    )
    prepare_users(pump)
    prepare_audit(s)
    prepare_iproto(pump)
    prepare_bus(pump)
    prepare_tubes(s)
    open_journal(pump)
    if cfg.events:
        eventlog = EventLog(
            in_dir(cfg, cfg.events_dir),
            identity.node_id.decode(),
            roll_rows=cfg.events_roll_rows,
            roll_seconds=cfg.events_roll_seconds,
            buffer_rows=cfg.events_buffer,
            keep_bytes=cfg.events_keep_bytes,
            keep_days=cfg.events_keep_days,
            address=known_as(cfg),
        )
        s.eventlog = eventlog
        node.events = eventlog.start(now_ms)
        s.alarms.set(EVENTS, now_ms)  # [E3.2] publish the start event even if no other follows
    return pump


def prepare_tubes(s: Server) -> None:
    """[T17] What other nodes learn of this one before it has loaded (T17.4, T19.5)."""
    t = tubes_of(s.n)
    t.port = s.cfg.iproto_port
    t.voter_state.is_on = s.cfg.tube_failover and s.cfg.appendonly  # T23.2
    t.voter_state.wanted = s.cfg.tube_voters  # T28.4
    t.voter_state.asks_all = s.cfg.failover_disks == "ask"  # T29.3
    set_read_only(s.n, t, s.cfg.read_only)


def watch_signals(pump: Pump) -> None:
    """Turn SIGTERM and SIGINT into a byte for the pump; a second SIGINT kills.

    The pump alone acts on the bytes: the handler may run before or after it, so it would count a
    signal twice.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    pump.s.signal_sockets = (reader, writer)
    interrupts = 0

    def on_stop(number: int, _: object) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:
            os._exit(1)

    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pump.watch_signals(reader.fileno())


def stop_collecting() -> None:
    """Turn the cyclic collector off: jobs form no cycles, and it would visit each of them."""
    gc.collect()
    gc.freeze()
    gc.disable()


def ready(pump: Pump) -> None:
    """Log that the server accepts connections."""
    s = pump.s
    s.is_loading = False
    give_back(s)  # memory that the load needed
    if s.cfg.pidfile and s.cfg.daemonize:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(s.cfg.pidfile, flags, 0o644), "w") as file:
            file.write(f"{os.getpid()}\n")
    open_bus(pump)
    log.info(
        "The server is now ready to accept connections on port %(port)d",
        facts("server_ready", port=announced_port(s.cfg)),
    )


def is_compiled() -> bool:
    """Whether the deciding modules are compiled."""
    import tuque.core.model.job

    return not (tuque.core.model.job.__file__ or "").endswith(".py")


def warn_of_small_memory(s: Server) -> None:
    """[M1] Log that the process alone leaves no memory for jobs (M1.4)."""
    if memory_level(s.n) > 0:
        log.warning(
            "the process alone uses %(used)d of the %(limit)d bytes of maxmemory: "
            "no job will be taken, raise maxmemory",
            facts(
                "memory_too_small", used=int(s.n.used_bytes()), limit=int(s.n.limits.memory_bytes)
            ),
        )
    elif is_kept_too_much(s.n):
        log.warning(
            "results-max-bytes %(results)d, dead-max-bytes %(letters)d and the process, %(used)d "
            "bytes are more than 75 %% of maxmemory %(limit)d: results will be dropped, "
            "and dead letters can keep new jobs out; lower them or raise maxmemory",
            facts(
                "memory_kept_too_much",
                results=int(s.n.limits.results_bytes),
                letters=int(s.n.limits.dead_bytes),
                used=int(s.n.used_bytes()),
                limit=int(s.n.limits.memory_bytes),
            ),
        )


def is_kept_too_much(n: Node) -> bool:
    """[M1] Whether results and dead letters may take more than what jobs may (M1.5)."""
    kept = n.limits.results_bytes + n.limits.dead_bytes
    return n.limits.memory_bytes > 0 and (n.used_bytes() + kept) * 4 > n.limits.memory_bytes * 3


def finish(pump: Pump) -> int:
    """Stop in order: journal to disk, events sealed, no false reply to a client."""
    s = pump.s
    log.info(
        "stopping: %(reason)s",
        facts("server_stopping", reason=STOPS.get(s.stop_requested, "it cannot continue")),
    )
    status = 0
    if s.committer is not None:
        problem = close_journal(pump)
        if problem:
            log.error(
                "the journal could not be finished: %(reason)s",
                facts("journal_unfinished", reason=problem),
            )
            status = 1
    if s.eventlog is not None and s.n.events is not None:
        try:
            s.eventlog.close(s.n.events, s.n.now_ms)
        except EventLogError as broken:
            log.error(
                "the events could not be finished: %(reason)s",
                facts("events_unfinished", reason=broken),
            )
            status = 1
    try:
        if s.members.is_changed:
            s.identity.save(s.members)
    except OSError as error:
        log.error(
            "cluster-config-file %(path)s: %(reason)s",
            facts("identity_unwritten", path=s.identity.path, reason=error.strerror),
        )
        status = 1
    pump.close_all()
    if s.acl.hasher is not None:
        s.acl.hasher.close()
    if s.audit is not None:
        s.audit.close()
    log.info("stopped", extra=facts("server_stopped"))
    return status


def known_as(cfg: Config) -> str:
    """The host:port that names the node in reports."""
    host = cfg.cluster_announce_ip or next(iter(cfg.bind), "127.0.0.1")
    host = socket.gethostname() if host in ("0.0.0.0", "::", "*") else host
    return f"{host}:{announced_port(cfg)}"


# ---- `tuque server`: options in, a running node, an exit status out


@click.command()
@config_flags
def server(**flags: Any) -> None:
    """Run a node. CONFIG_FILE is TOML, or a disque.conf; `-` reads it from standard input."""
    cfg = config_of_flags(flags, check_files)
    try:
        sys.exit(run(cfg))
    except StartError as error:
        click.echo(f"tuque server: {error}", err=True)
        sys.exit(1)
