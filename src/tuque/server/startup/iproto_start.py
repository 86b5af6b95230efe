"""IPROTO at startup: its users and its port, before any client is served (SPEC I1)."""

from __future__ import annotations

from tuque.logtext import facts
from tuque.server.config.config import in_dir
from tuque.server.config.faults import ConfigError
from tuque.server.loop.pump import Pump
from tuque.server.sockets.listen import open_iproto_listeners
from tuque.server.startup.iproto_users import UsersError, read_users
from tuque.server.state.state import apply_settings, log


def prepare_iproto(pump: Pump) -> None:
    """If `iproto-port` is set, read the users and listen. Raises ConfigError, ListenError."""
    s = pump.s
    cfg = s.cfg
    try:
        if cfg.iproto_users_file:
            s.users = read_users(in_dir(cfg, cfg.iproto_users_file))
    except UsersError as error:
        allowed = f"a file of users ({error})"
        raise ConfigError("iproto-users-file", cfg.iproto_users_file, allowed) from None
    apply_settings(s)
    for sock in open_iproto_listeners(cfg):
        pump.doors.listen_iproto(sock)
    if not cfg.iproto_port:
        return
    log.info("IPROTO listens on port %(port)d", facts("iproto_listening", port=cfg.iproto_port))
    has_users = s.users.is_from_file or cfg.users_file != ""
    if not has_users and not s.users.guest.is_admin:
        log.warning(
            "requirepass is set and there is no users file: nobody can use IPROTO",
            extra=facts("iproto_unusable"),
        )
