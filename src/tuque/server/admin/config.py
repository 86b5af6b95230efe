"""CONFIG: read and change options while the server runs (SPEC C7.6, C5.4)."""

from __future__ import annotations

import resource
from typing import Final

from tuque.logtext import facts
from tuque.server.access.rights import NOAUTH
from tuque.server.bus.link import BusFigures
from tuque.server.config.config import cluster_secrets, config_get, config_set
from tuque.server.config.kinds import ConfigError
from tuque.server.config.options import OPTIONS
from tuque.server.config.patterns import MOST
from tuque.server.config.rewrite import RewriteError, rewrite
from tuque.server.log.log import shape_log
from tuque.server.replies.errors import reply_help
from tuque.server.replies.tubes import end_waiting
from tuque.server.start.bus import apply_doors, take_secrets
from tuque.server.start.journal import turn_off, turn_on
from tuque.server.state.client import Client, Wired
from tuque.server.state.notices import leave_notices
from tuque.server.state.server import (
    Figures,
    Server,
    apply_settings,
    log,
)
from tuque.tubes.election.voters import set_willing
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError
from tuque.wire.proto.iproto import E_ACCESS

LONG_PATTERN: Final = b"ERR a pattern has at most %d bytes: no option has a longer name"
BAD_CONFIG: Final = b"ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"
JOURNAL_FAILED: Final = b"ERR Unable to turn on AOF. Check server logs."
UNKEPT: Final = b"ERR tube-lease-timeout: cluster-config-file cannot be written: %s"
SECRETS: Final = ("cluster-secret", "cluster-secret-also", "cluster-secret-file")
SPARE_FILES: Final = 32  # descriptors not used by clients


def cmd_config(s: Server, c: Client, args: list[bytes]) -> None:
    """CONFIG GET pattern ... | SET name value | RESETSTAT | REWRITE."""
    word = args[1].upper()
    count = len(args)
    if word not in (b"GET", b"SET", b"RESETSTAT", b"REWRITE", b"HELP"):
        raise ArgError(BAD_CONFIG)
    wants_more = word == b"GET" and count > 3
    if not wants_more and count != {b"GET": 3, b"SET": 4}.get(word, 2):
        raise ArgError(b"ERR Wrong number of arguments for CONFIG " + args[1])
    if word == b"GET":
        get(s, c, args[2:])
    elif word == b"SET":
        set_option(s, args[2], args[3])
        c.ok()
    elif word == b"RESETSTAT":
        reset_figures(s)
        c.ok()
    elif word == b"REWRITE":
        write_back(s)
        c.ok()
    else:
        reply_help(s, c, b"CONFIG")


PATTERN_WORK: Final = 100  # units to compare a pattern with the names of all options


def get(s: Server, c: Client, patterns: list[bytes]) -> None:
    """Names and values that match any pattern, without duplicates; a map in RESP3."""
    found: dict[str, object] = {}
    for pattern in patterns:
        if len(pattern) > MOST:
            raise ArgError(LONG_PATTERN % MOST)
        s.n.work += PATTERN_WORK
        if pattern == b"save":  # redis-benchmark asks for it; there are no snapshots
            found["save"] = b""
        for name, value in config_get(s.cfg, pattern.decode("utf-8", "replace")):
            found[name] = value.encode("utf-8", "surrogateescape")
    c.reply(found)


def set_option(s: Server, name_word: bytes, value_word: bytes) -> None:
    """[C7] Change one option and what depends on it, or change nothing (C7.9)."""
    name = name_word.decode("utf-8", "replace").lower().replace("_", "-")
    value = value_word.decode("utf-8", "surrogateescape")
    if name == "maxclients":
        check_files(value)
    before, lease_ms = s.cfg.appendonly, s.cfg.tube_lease_timeout
    try:
        config_set(s.cfg, name, value)
    except ConfigError as error:
        raise ArgError(error.reply.encode("utf-8", "surrogateescape")) from None
    apply_settings(s)
    if s.cfg.tube_lease_timeout > lease_ms:
        keep_lease(s, lease_ms)
    if name in SECRETS:
        take_secrets(s, cluster_secrets(s.cfg))
    if name == "requirepass":
        apply_doors(s)
        for client in s.clients.values():
            lock_out(s, client)
        for wired in s.wired.values():
            shut_out(s, wired)
    elif name == "read-only":
        be_read_only(s)
    elif name == "tube-failover":
        be_willing(s)
    elif name == "tube-voters":
        tubes_of(s.n).voter_state.wanted = s.cfg.tube_voters
    elif name == "failover-disks":
        tubes_of(s.n).voter_state.asks_all = s.cfg.failover_disks == "ask"
    elif name == "appendfsync" and s.committer is not None:
        s.committer.set_policy(s.cfg.appendfsync)
    elif name == "disk-free-min" and s.committer is not None:
        s.committer.thread.room.free_min = s.cfg.disk_free_min
    elif name == "appendonly" and s.cfg.appendonly != before:
        switch_journal(s, before)
        be_willing(s)
    elif name in ("loglevel", "log-format"):
        shape_log(s.cfg.loglevel, s.cfg.log_format)
    log.info("CONFIG SET %(option)s", facts("option_set", option=name))


def be_read_only(s: Server) -> None:
    """[T19] Hand over the leadership of its tubes, or lead them again (T19.5)."""
    set_read_only(s.n, tubes_of(s.n), s.cfg.read_only)


def keep_lease(s: Server, before_ms: int) -> None:
    """[T25] nodes.conf has the longer timeout of leases before others hear of it (T25.7)."""
    try:
        s.identity.save(s.members)
    except OSError as failed:
        s.cfg.tube_lease_timeout = before_ms
        apply_settings(s)
        raise ArgError(UNKEPT % (failed.strerror or str(failed)).encode()) from None


def be_willing(s: Server) -> None:
    """[T23] Whether this node may join the voters; it needs a journal (T23.2)."""
    set_willing(tubes_of(s.n), s.cfg.tube_failover and s.cfg.appendonly)


def lock_out(s: Server, c: Client) -> None:
    """[C5.4] Reset the session: it must authenticate, waits for nothing and monitors nothing."""
    if c.user is not None and c.user is not s.acl.default:
        return
    c.user = s.acl.newcomer
    if c.user is not None:
        return
    c.stranger_ms = s.n.now_ms
    if c.is_monitor:
        c.is_monitor = False
        s.monitors.remove(c)
    leave_notices(s, c, list(c.watched))
    if c.is_blocked and c.long_command is None:
        s.unblock(c)
        c.error(NOAUTH)
        s.touch(c)
        s.resumed.append(c)


def shut_out(s: Server, w: Wired) -> None:
    """[I5] A guest without rights neither waits nor holds tasks (I5.9)."""
    if w.user is not s.users.guest or w.user.may_all() or s.users.is_from_file:
        return
    s.trust(w, w.user)
    end_waiting(s, w, E_ACCESS, NOAUTH)
    s.leave_tubes(w.number)


def check_files(word: str) -> None:
    """Refuse more clients than there are file descriptors; raise the soft limit if necessary."""
    try:
        needed = int(OPTIONS["maxclients"].kind.parse(word)) + SPARE_FILES
    except ValueError:
        return  # the option reports it
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ArgError(
            b"ERR The operating system is not able to handle the specified number of clients, "
            b"try with maxclients %d" % max(0, hard - SPARE_FILES)
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def switch_journal(s: Server, before: bool) -> None:
    """Turn the journal on or off; on failure `appendonly` says whether one runs."""
    reason = turn_off(s) if before else turn_on(s)
    if reason:
        s.cfg.appendonly = s.committer is not None
        log.error(
            "CONFIG SET appendonly: %(reason)s", facts("journal_switch_failed", reason=reason)
        )
        raise ArgError(JOURNAL_FAILED)


def reset_figures(s: Server) -> None:
    """CONFIG RESETSTAT: zero the counters of INFO, but not the jobs and their ledger."""
    s.figures = Figures()
    s.last_house_commands = 0
    if s.bus is not None:
        s.bus.figures = BusFigures()
    for command in s.table.values():
        command.calls = 0
        command.usec_ns = 0


def write_back(s: Server) -> None:
    """[C7] CONFIG REWRITE (C7.8)."""
    try:
        rewrite(s.cfg)
    except RewriteError as error:
        raise ArgError(error.reply.encode("utf-8", "surrogateescape")) from None
