"""The table of users at startup: its file and the thread for passwords (SPEC N5)."""

from __future__ import annotations

from functools import partial

from tuque.logtext import facts
from tuque.server.config.config import in_dir
from tuque.server.config.faults import ConfigError
from tuque.server.log.audit import Audit
from tuque.server.loop.pump import Pump
from tuque.server.rights.change import OPEN_DOOR, on_bell, opens_door
from tuque.server.state.state import Server, log
from tuque.server.users.file import UsersFileError, read_users, stamp_of
from tuque.server.users.hasher import Hasher


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
    try:
        s.acl.replace(read_users(path))
    except UsersFileError as error:
        allowed = f"a file of users, which may be empty ({error})"
        raise ConfigError("users-file", s.cfg.users_file, allowed) from None
    s.settle_guest()
    if opens_door(s, s.acl.default):
        raise ConfigError("users-file", s.cfg.users_file, OPEN_DOOR)
    log.info(
        "users-file %(path)s: %(count)d users",
        facts("users_loaded", path=path, count=len(s.acl.by_name)),
    )
    if s.acl.newcomer is not None and len(s.acl.by_name) > 1:
        log.warning(
            "users-file %(path)s leaves `default` open: who does not log in is that user",
            facts("users_default_open", path=path),
        )
