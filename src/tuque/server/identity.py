"""Who this node is, kept in nodes.conf, which is locked as long as the server lives.

Decides when the file is safe: written aside, synced, put in place. What stands in it is
cluster/membership.py's.
"""

from __future__ import annotations

import fcntl
import os
from secrets import token_hex

from tuque.cluster.membership import BadNodes, Membership, parse_nodes
from tuque.server.config import in_dir
from tuque.server.options import Config


class IdentityError(Exception):
    """The file cannot be used; the text names it and says what to do."""


class Identity:
    """The node's id and LEAVING flag, and the file that keeps them (none without a path)."""

    def __init__(self, members: Membership, cfg: Config, path: str = "", fd: int = -1) -> None:
        self.members = members
        self.cfg = cfg  # its port is 0 until the server listens
        self.path = path
        self.fd = fd
        self.is_new = False

    @property
    def node_id(self) -> bytes:
        """40 lower-case hex characters."""
        return self.members.node_id

    @property
    def is_leaving(self) -> bool:
        """Whether the node is leaving the cluster."""
        return self.members.is_leaving

    def renew(self) -> bytes:
        """Take a new id; the caller saves it."""
        self.members = Membership(token_hex(20).encode())
        return self.members.node_id

    def save(self) -> None:
        """Replace the contents of the file, durably. Raises OSError, the old contents kept."""
        if not self.path:
            return
        aside = self.path + ".new"
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, self.members.line(self.cfg.port))
            os.fsync(fd)
            os.replace(aside, self.path)
        except OSError:
            os.close(fd)
            raise
        os.close(self.fd)
        self.fd = fd
        sync_directory(self.path)

    def close(self) -> None:
        """Close the file, which ends the lock."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def open_identity(cfg: Config) -> Identity:
    """Lock and read the file; a missing or empty one is made with a new id.

    Raises IdentityError when another server has it, or when it is not valid.
    """
    path = in_dir(cfg, cfg.cluster_config_file)
    identity = Identity(Membership(token_hex(20).encode()), cfg, path)
    try:
        identity.fd = locked(path)
        text = os.pread(identity.fd, 1 << 20, 0)
        if text.strip():
            identity.members = parse_nodes(text)
        else:
            identity.is_new = True
            identity.save()
    except BadNodes as error:
        identity.close()
        raise IdentityError(f"cluster-config-file {path}: {error}") from None
    except OSError as error:
        identity.close()
        raise IdentityError(f"cluster-config-file {path}: {error.strerror}") from None
    return identity


def locked(path: str) -> int:
    """A descriptor of the file with its exclusive lock. Raises IdentityError when it is taken."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        os.close(fd)  # replaced by its owner between the open and the lock


def is_in_place(path: str, fd: int) -> bool:
    """Whether the path still leads to the open file."""
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
