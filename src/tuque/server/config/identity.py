"""The identity of this node in nodes.conf, and access to the server's files (SPEC C1.5, C1.6).

Decides when the file is safe: written to a new file, synced, renamed into place. Its contents are
up to cluster/nodes_conf.py, the other nodes to cluster/members.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from secrets import token_bytes, token_hex
from typing import Final

from tuque.cluster.members import Members
from tuque.cluster.nodes_conf import BadNodes, NodesConf, parse_nodes_conf
from tuque.logtext import facts
from tuque.server.config.config import announced_port, in_dir
from tuque.server.config.kinds import ConfigError
from tuque.server.config.options import Config
from tuque.server.log.log import log
from tuque.smallfile import closing, is_open_file

NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class IdentityError(Exception):
    """The file cannot be used; the text names it and says what to do."""


class Identity:
    """The node's id, incarnation and LEAVING flag, and the file that keeps them (if any)."""

    def __init__(self, kept: NodesConf, cfg: Config, path: str = "", fd: int = -1) -> None:
        self.kept = kept  # as read from the file
        self.cfg = cfg  # its port is 0 until the server listens
        self.path = path
        self.fd = fd
        self.is_new = False
        self.node_id = kept.node_id  # 40 lower-case hex characters
        self.is_leaving = kept.is_leaving
        self.life = int(kept.life) + 1  # incarnation: counts the starts (K1.1)
        self.mark = token_bytes(8)  # tells apart two nodes with one id (K1.3)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def renew(self, is_new_id: bool) -> None:
        """Begin a new incarnation, with the same or a new id; the caller saves it."""
        self.life += 1
        self.mark = token_bytes(8)
        if is_new_id:
            self.node_id = token_hex(20).encode()
            self.is_leaving = False

    def line(self, fails: bool = False, refuses: str = "", own_host: str = "") -> str:
        """The node's own line in CLUSTER NODES; without an address unless one is announced.

        `refuses` is the word for why it does no work (C3.11). `own_host` is where who asks finds
        the node (C5.1).
        """
        flags = "myself,leaving" if self.is_leaving else "myself"
        flags += ",journal-fails" if fails else ""
        flags += f",{refuses}" if refuses else ""
        host = own_host or self.cfg.cluster_announce_ip
        host = f"[{host}]" if ":" in host else host
        port = announced_port(self.cfg)
        return f"{self.node_id.decode()} {host}:{port} {flags} 0 0 connected\n"

    def text(self, members: Members | None) -> bytes:
        """The new contents of the file."""
        if members is None:
            return f"{self.line()}vars life {self.life} number 0\n".encode()
        return members.kept_text(self.line()).encode()

    def save(self, members: Members | None = None) -> None:
        """Replace the contents of the file durably. Raises OSError and keeps the old contents."""
        if self._thread is not None:
            self._thread.join()  # it writes older contents
        if self.path:
            self._write(self.text(members))

    def save_first(self, members: Members, reserve: str) -> None:
        """Save at the start; a full disk gets the room of the file `reserve` (J6.10). OSError."""
        try:
            self.save(members)
        except OSError as failed:
            if failed.errno != errno.ENOSPC or not os.path.exists(reserve):
                raise
            os.unlink(reserve)
            self.save(members)

    def save_soon(self, members: Members) -> bool:
        """Save in a thread; False if the previous save is still running."""
        if not self.path:
            return True
        if self._thread is not None and self._thread.is_alive():
            return False
        text = self.text(members)
        self._thread = threading.Thread(target=self._write_and_tell, args=(text,), daemon=True)
        self._thread.start()
        return True

    def _write_and_tell(self, text: bytes) -> None:
        try:
            self._write(text)
        except OSError as error:
            log.warning(
                "cluster-config-file %(path)s: %(reason)s",
                facts("identity_unwritten", path=self.path, reason=error.strerror),
            )

    def _write(self, text: bytes) -> None:
        aside = self.path + ".new"
        with self._lock:
            fd = os.open(aside, NEW_FILE | os.O_TRUNC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                while text:  # a write may take a part of it
                    text = text[os.write(fd, text) :]
                os.fsync(fd)
                os.replace(aside, self.path)
            except OSError:
                os.close(fd)
                raise
            os.close(self.fd)
            self.fd = fd
            sync_directory(self.path)

    def close(self) -> None:
        """Close the file, which releases the lock."""
        if self._thread is not None:
            self._thread.join()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def new_nodes_conf() -> NodesConf:
    """The identity of a node at its first start."""
    kept = NodesConf()
    kept.node_id = token_hex(20).encode()
    return kept


def open_identity(cfg: Config) -> Identity:
    """Lock and read the file; create it with a new id if missing or empty.

    Raises IdentityError when another server holds it, or when it is invalid.
    """
    path = in_dir(cfg, cfg.cluster_config_file)
    fd = -1
    try:
        fd = locked(path)
        text = os.pread(fd, 1 << 20, 0)
        is_new = not text.strip()
        identity = Identity(new_nodes_conf() if is_new else parse_nodes_conf(text), cfg, path, fd)
        identity.is_new = is_new
        if is_new:
            identity.save()
    except BadNodes as error:
        os.close(fd)
        raise IdentityError(f"cluster-config-file {path}: {error}") from None
    except OSError as failed:
        if fd >= 0:
            os.close(fd)
        raise IdentityError(f"cluster-config-file {path}: {failed.strerror}") from None
    return identity


def locked(path: str) -> int:
    """Open the file and lock it exclusively. Raises IdentityError when it is taken."""
    while True:
        fd = os.open(path, NEW_FILE, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise IdentityError(
                f"cluster-config-file {path} is in use by another server; "
                "stop it, or give this one another dir or cluster-config-file"
            ) from None
        if is_in_place(path, fd):
            return fd
        os.close(fd)  # its owner replaced it between our open and lock


def is_in_place(path: str, fd: int) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def sync_directory(path: str) -> None:
    """Make the new name of the file durable."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- Access of other users of the machine to the server's files (SPEC C1.5, C1.6)
#
# Knows the file system only; config.py decides how long a password must be.


OTHERS_WRITE = stat.S_IWOTH
OTHERS_READ = stat.S_IROTH


def check_places(cfg: Config) -> None:
    """[C1] Refuse directories and files that everybody can write (C1.5, C1.11).

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
                f"{closing(path)}, or set protected-mode no"
            )
            raise ConfigError(name.replace("_", "-"), path, allowed)
    for name, path in files_of(cfg):
        if is_open_file(path):
            allowed = (
                "a file that not everybody on this machine can write: "
                f"{closing(path)}, or set protected-mode no"
            )
            raise ConfigError(name, path, allowed)


def check_written(cfg: Config) -> None:
    """[C1] Refuse a log and directories that the start could not write (C1.14); makes none."""
    if cfg.logfile:
        path = in_dir(cfg, cfg.logfile)
        why = file_refusal(path)
        if why:
            raise ConfigError("logfile", path, f"a file this user can write ({why})")
    wanted = {"appenddirname": cfg.appendonly, "events_dir": cfg.events, "audit_dir": cfg.audit}
    for name, is_wanted in wanted.items():
        path = in_dir(cfg, getattr(cfg, name))
        why = directory_refusal(path) if is_wanted else ""
        if why:
            allowed = f"a directory that the server can write ({why})"
            raise ConfigError(name.replace("_", "-"), path, allowed)


def file_refusal(path: str) -> str:
    """Why the file cannot be opened to write; "": it can, or can be made."""
    if not os.path.exists(path):
        above = os.path.dirname(path)
        return directory_refusal(above) if os.path.exists(above) else os.strerror(errno.ENOENT)
    if os.path.isdir(path):
        return os.strerror(errno.EISDIR)
    if stat.S_ISFIFO(os.stat(path).st_mode):
        return "it is a pipe, and to open it would wait for a reader"
    return "" if os.access(path, os.W_OK) else os.strerror(errno.EACCES)


def directory_refusal(path: str) -> str:
    """Why no file can be made in the directory; "": it can, or the directory can be made."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        return os.strerror(errno.ENOTDIR)
    return "" if os.access(path, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


FILES = (
    "users_file",
    "iproto_users_file",
    "cluster_secret_file",
    "tls_cert_file",
    "tls_key_file",
    "tls_ca_cert_file",
    "tls_cluster_ca_cert_file",
    "cluster_config_file",
)


def files_of(cfg: Config) -> list[tuple[str, str]]:
    """The options that name a file that the node reads, and the files."""
    named = [(name.replace("_", "-"), getattr(cfg, name)) for name in FILES]
    if cfg.daemonize:
        named.append(("pidfile", cfg.pidfile))
    found = [(name, in_dir(cfg, path)) for name, path in named if path]
    return [*(("config file", path) for path in cfg.read_files), *found]


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
