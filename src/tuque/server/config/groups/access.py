"""Options about users and log-ins; the other options are in options.py."""

# Annotations are read at run time to make the table: no `from __future__ import annotations`.
from typing import Annotated

from tuque.server.config.groups.tls import TlsOptions
from tuque.server.config.kinds import Bool, Int, Memory, Opt, Text


class AccessOptions(TlsOptions, kw_only=True):
    """Part of Config, with those of TLS; comes after its own options in every list."""

    users_file: Annotated[
        str,
        Opt(
            Text(),
            "users and their rights, one a line as ACL SAVE writes it; read again when it changes",
        ),
    ] = ""
    acllog_max_len: Annotated[int, Opt(Int(0, 10_000), "entries kept by ACL LOG", runtime=True)] = (
        128
    )
    audit: Annotated[
        bool, Opt(Bool(), "keep what administrators do, one line of JSON for each act")
    ] = False
    audit_dir: Annotated[str, Opt(Text(), "directory of the audit")] = "audit"
    audit_keep_bytes: Annotated[
        int, Opt(Memory(1 << 20, 1 << 40), "audit kept; the oldest files go first")
    ] = 100 << 20
    login_timeout: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "close connections that must log in and have not; 0 = never",
            unit="s",
            runtime=True,
        ),
    ] = 10
    login_connections: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "connections of one address that must log in and have not, at most; 0 = unlimited",
            runtime=True,
        ),
    ] = 100
