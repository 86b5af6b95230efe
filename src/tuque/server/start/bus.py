"""The bus at startup: the node's identity, its sockets, when it opens (SPEC B1, K1)."""

from __future__ import annotations

import socket
from hashlib import blake2b
from typing import Final

from tuque.cluster.members import Members
from tuque.core.repair.drain import set_leaving
from tuque.logtext import facts
from tuque.server.bus.peers import Bus
from tuque.server.bus.reasons import SHUT
from tuque.server.config.config import announced_port, cluster_secrets, in_dir
from tuque.server.config.identity import Identity, IdentityError
from tuque.server.config.options import Config
from tuque.server.loop.pump import Pump
from tuque.server.net.listen import BUS_OFFSET, open_bus_sockets
from tuque.server.state.server import Server, apply_settings, log
from tuque.server.users.users import Account
from tuque.store.frames import RESERVE
from tuque.tubes.election.lease import was_bound
from tuque.tubes.policy import tubes_of
from tuque.wire.bus.card import Card

OTHERS_WRITE: Final = 0o002


def id_key(secret: bytes) -> bytes:
    """[G6] The key that authenticates the ids of the cluster's jobs (G6.5)."""
    return blake2b(secret, digest_size=32, person=b"tuque id").digest() if secret else b""


def take_identity(s: Server, identity: Identity) -> None:
    """[K1] Take that identity, and the other nodes listed in its file (K1.1)."""
    s.identity = identity
    members = Members(s.n, identity.life, identity.mark, s.cfg.cluster_node_timeout)
    members.number = identity.kept.number
    s.n.is_double = len(members.why_idle()) > 0  # K6.4
    for one in identity.kept.nodes:
        members.restore(one.node_id, one.host, one.port, one.bus_port, one.number)
    s.members = members
    s.n.ids.older = identity.kept.id_keys
    kept = identity.kept
    if kept.lease_ms == 0 and not identity.is_new:
        kept.lease_ms = s.cfg.cluster_node_timeout  # a version without tube-lease-timeout
    was_bound(tubes_of(s.n).voter_state, kept.lease_ms)  # T25.5


def take_secrets(s: Server, secrets: list[bytes]) -> None:
    """[B1] Link with nodes under these secrets; make and know ids of jobs by them (B1.6, G6.5)."""
    s.n.ids.take_keys([id_key(one) for one in secrets] or [b""])
    s.members.is_changed = True  # nodes.conf has the former keys
    if s.bus is not None:
        s.bus.take_secrets(secrets, why_shut(s, secrets))


def apply_doors(s: Server) -> None:
    """[B1] Closed doors without a secret shut the bus, an open one opens it (B1.7)."""
    bus = s.bus
    if bus is None:
        return
    was_shut = bool(bus.shut)
    bus.take_secrets(bus.secrets, why_shut(s, bus.secrets))
    if not was_shut:
        log_shut(s, bus)


def log_shut(s: Server, bus: Bus) -> None:
    """[B1] Log that a node which knows others has no links to them (B1.7)."""
    if bus.shut and len(s.members.by_id) > 0:
        log.warning("no links: %(reason)s", facts("bus_shut", reason=bus.shut))


def why_shut(s: Server, secrets: list[bytes]) -> str:
    """[B1] Why the node has no links at all; empty if it may have some (B1.7)."""
    is_bare = not secrets and not s.cfg.tls_cluster
    return SHUT if is_bare and not is_any_door_open(s.cfg, s.acl.newcomer) else ""


def is_any_door_open(cfg: Config, newcomer: Account | None) -> bool:
    """[B1] Whether some door lets every process of this machine do everything (B1.7)."""
    if cfg.users_file or newcomer is None or not newcomer.is_full:
        return False
    if cfg.port > 0 or not (cfg.unixsocket or cfg.tls_port):  # as the listeners are opened
        return True
    if cfg.tls_port > 0 and cfg.tls_auth_clients != "yes":
        return True
    return len(cfg.unixsocket) > 0 and cfg.unixsocketperm & OTHERS_WRITE > 0


def prepare_bus(pump: Pump) -> None:
    """Take the port of the bus and begin a life. Raises ListenError, ConfigError, IdentityError."""
    s = pump.s
    cfg = s.cfg
    secrets = cluster_secrets(cfg)
    s.members.port = announced_port(cfg)
    if not cfg.cluster_enabled:
        take_secrets(s, secrets)
        s.n.others = 0  # it stays alone, whoever it knew
        return
    attach_bus(pump, secrets, open_bus_sockets(cfg, len(secrets) > 0 or cfg.tls_cluster))


def attach_bus(pump: Pump, secrets: list[bytes], sockets: list[socket.socket]) -> None:
    """Have the bus on these sockets; store that a new life begins, before anybody hears of it.

    Raises IdentityError.
    """
    s = pump.s
    s.members.port = announced_port(s.cfg)
    bus = Bus(s.n, s.members, pump.poller, secrets, s.system)
    bus.sockets = sockets
    bus.is_tls = s.cfg.tls_cluster
    bus.bugs = s.bugs
    bus.port = bus.sockets[0].getsockname()[1]
    s.bus = bus
    take_secrets(s, secrets)
    apply_settings(s)
    try:
        reserve = f"{in_dir(s.cfg, s.cfg.appenddirname)}/{RESERVE}"
        s.identity.save_first(s.members, reserve)  # K1.1
        s.members.is_changed = False  # or the first node met would be stored a second later
    except OSError as error:
        path = s.identity.path
        raise IdentityError(f"cluster-config-file {path}: {error.strerror}") from None


def make_card(s: Server, bus: Bus, is_empty: bool) -> Card:
    """The identity that this node presents to others."""
    cfg = s.cfg
    return Card(
        node_id=s.n.node_id,
        life=s.identity.life,
        mark=s.identity.mark,
        is_empty=is_empty,
        port=s.members.port,
        bus_port=cfg.cluster_announce_bus_port or int(bus.port),
        host=cfg.cluster_announce_ip,
        is_meeting=False,
    )


def is_port_chosen(cfg: Config) -> bool:
    """Whether the operator has configured the port of the bus (B1.4)."""
    return cfg.cluster_port > 0 or cfg.cluster_announce_bus_port > 0


def open_bus(pump: Pump) -> None:
    """Accept other nodes and dial the known ones; the jobs are loaded by now."""
    s = pump.s
    if s.identity.is_leaving:
        set_leaving(s.n, True)
        log.warning(
            "this node is leaving its cluster since before it started: it takes no jobs and no "
            "votes. CLUSTER LEAVING no keeps it; else wait until cluster_safe_to_stop is yes, "
            "stop it and CLUSTER FORGET it",
            facts("still_leaving"),
        )
    bus = s.bus
    if bus is None:
        return
    bus.card = make_card(s, bus, not s.n.remembers)
    bus.open()
    log.info("The bus listens on port %(port)d", facts("bus_listening", port=bus.port))
    log_shut(s, bus)
    if 0 < s.members.port != bus.port - BUS_OFFSET and not is_port_chosen(s.cfg):
        log.warning(
            "the bus is not 10000 above the clients' port: CLUSTER MEET needs it as a third "
            "argument, `CLUSTER MEET <host> %(port)d %(bus_port)d`; "
            "cluster-port makes it a fixed one",
            facts("bus_port_unusual", port=s.members.port, bus_port=bus.port),
        )
