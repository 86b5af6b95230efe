"""Options about TLS; the other options are in options.py."""

# Annotations are read at run time to make the table: no `from __future__ import annotations`.
from typing import Annotated

import msgspec

from tuque.server.config.kinds import Bool, Choice, Int, Opt, Text


class TlsOptions(msgspec.Struct, kw_only=True):
    """Part of Config."""

    tls_port: Annotated[
        int,
        Opt(
            Int(0, 65535),
            "TCP port of the clients with TLS; 0 = none; with `port` 0 it is the only one",
        ),
    ] = 0
    iproto_tls_port: Annotated[
        int, Opt(Int(0, 65535), "TCP port of IPROTO clients with TLS; 0 = none")
    ] = 0
    metrics_tls: Annotated[bool, Opt(Bool(), "metrics-port speaks TLS only")] = False
    tls_cert_file: Annotated[
        str,
        Opt(
            Text(),
            "certificate of the node, and those between it and the root, in PEM; read again when "
            "it changes",
        ),
    ] = ""
    tls_key_file: Annotated[
        str, Opt(Text(), "key of the certificate, in PEM, without a passphrase")
    ] = ""
    tls_ca_cert_file: Annotated[
        str, Opt(Text(), "certificates of those who sign the clients' certificates, in PEM")
    ] = ""
    tls_auth_clients: Annotated[
        str,
        Opt(
            Choice("no", "optional", "yes"),
            "ask clients for a certificate; its common name is their user",
        ),
    ] = "no"
    tls_min_version: Annotated[str, Opt(Choice("1.2", "1.3"), "oldest version of TLS spoken")] = (
        "1.2"
    )
    tls_ciphers: Annotated[
        str,
        Opt(Text(), "ciphers of TLS 1.2, as OpenSSL lists them; empty = its own choice"),
    ] = ""
    tls_cluster: Annotated[
        bool,
        Opt(
            Bool(),
            "links to other nodes speak TLS, and both ends show a certificate; the same for all "
            "nodes",
        ),
    ] = False
    tls_cluster_ca_cert_file: Annotated[
        str,
        Opt(
            Text(),
            "certificates of those who sign the nodes' certificates, in PEM; whoever they sign "
            "for is a node",
        ),
    ] = ""
