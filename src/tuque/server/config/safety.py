"""Access that other users of the machine have to a server's files (SPEC C1.5, C1.6).

Knows the file system only; config.py decides how long a password must be.
"""

from __future__ import annotations

import os
import stat

from tuque.server.config.config import in_dir
from tuque.server.config.faults import ConfigError
from tuque.server.config.options import Config

OTHERS_WRITE = stat.S_IWOTH
OTHERS_READ = stat.S_IROTH


def check_places(cfg: Config) -> None:
    """[C1] Refuse world-writable directories (C1.5).

    Anyone who can write there can replace the journal or the node id. In a sticky directory, like
    /tmp, nobody can replace the files of others.
    """
    if not cfg.protected_mode:
        return
    for name in ("dir", "appenddirname", "events_dir", "audit_dir"):
        path = cfg.dir if name == "dir" else in_dir(cfg, getattr(cfg, name))
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue  # it will be created with safe permissions
        if mode & OTHERS_WRITE and not mode & stat.S_ISVTX:
            allowed = (
                "a directory that not everybody on this machine can write: "
                f"`chmod o-w {path}`, or set protected-mode no"
            )
            raise ConfigError(name.replace("_", "-"), path, allowed)


def readable_secrets(cfg: Config) -> list[str]:
    """[C1] A warning for each file with secrets that others can read (C1.6)."""
    has_secret = cfg.requirepass or cfg.cluster_secret
    files = [
        (cfg.config_file if has_secret else "", "the configuration file"),
        (cfg.cluster_secret_file, "cluster-secret-file"),
        (cfg.iproto_users_file, "iproto-users-file"),
        (cfg.users_file, "users-file"),
    ]
    told = []
    for name, what in files:
        path = in_dir(cfg, name) if name else ""
        if path and may_others_read(path):
            told.append(
                f"{what} {path} has passwords, and everybody on this machine can read it: "
                f"`chmod o= {path}`"
            )
    return told


def may_others_read(path: str) -> bool:
    """Whether the file exists and others can read it."""
    try:
        return os.stat(path).st_mode & OTHERS_READ != 0
    except OSError:
        return False


def close_to_others(path: str) -> None:
    """[C1] Remove others' permissions on the file; the group keeps its own (C1.6)."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o007:
        os.chmod(path, mode & ~0o007)
