"""CLUSTER, as a cluster of one (SPEC S6)."""

from __future__ import annotations

from ipaddress import ip_address
from os import urandom
from typing import Final

from tuque.core.ackgc import flush_all
from tuque.core.deliver import wake_all
from tuque.core.ids import IdMaker
from tuque.core.node import DATA_RESET, NODE_LEAVING
from tuque.server.clients import Client
from tuque.server.helping import reply_help
from tuque.server.state import Server, log
from tuque.wire.args import SYNTAX, ArgError
from tuque.wire.resp import Status, strict_int

WRONG: Final = b"ERR Wrong CLUSTER subcommand or number of arguments"
BAD_LEAVING: Final = b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
NO_BUS: Final = b"ERR this version has no cluster bus: the node stays a cluster of one"
PORT_MAX: Final = 55_535  # the bus listens 10000 above


def cmd_cluster(s: Server, c: Client, args: list[bytes]) -> None:
    """[S6] CLUSTER subcommand [argument ...]."""
    word = args[1].upper()
    count = len(args)
    if word == b"MEET" and count == 4:
        meet(args[2], args[3])
    elif word == b"NODES" and count == 2:
        c.reply(s.identity.members.line(s.cfg.port))
    elif word == b"MYID" and count == 2:
        c.reply(s.n.node_id)
    elif word == b"INFO" and count == 2:
        c.reply(cluster_info())
    elif word == b"SAVECONFIG" and count == 2:
        save(s)
        c.ok()
    elif word == b"FORGET" and count == 3:
        forget(s, args[2])
    elif word == b"RESET" and count in (2, 3):
        reset(s, args[2].upper() if count == 3 else b"SOFT")
        c.ok()
    elif word == b"LEAVING" and count == 2:
        c.reply(Status("yes" if s.n.is_leaving else "no"))
    elif word == b"LEAVING" and count == 3:
        set_leaving(s, args[2].lower())
        c.ok()
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"CLUSTER")
    else:
        raise ArgError(WRONG)


def meet(address: bytes, port_word: bytes) -> None:
    """CLUSTER MEET: check the address; nobody can be met without a bus."""
    port = strict_int(port_word)
    if port is None:
        raise ArgError(b"ERR Invalid TCP port specified: " + port_word)
    if not is_literal(address.decode("latin-1")) or not 1 <= port <= PORT_MAX:
        raise ArgError(b"ERR Invalid node address specified: %s:%s" % (address, port_word))
    raise ArgError(NO_BUS)


def is_literal(address: str) -> bool:
    """Whether it is an IPv4 or IPv6 address."""
    try:
        ip_address(address)
    except ValueError:
        return False
    return True


def cluster_info() -> bytes:
    """Figures of a cluster of one."""
    return (
        b"cluster_state:ok\r\n"
        b"cluster_known_nodes:1\r\n"
        b"cluster_reachable_nodes:0\r\n"
        b"cluster_size:1\r\n"
        b"cluster_stats_messages_sent:0\r\n"
        b"cluster_stats_messages_received:0\r\n"
    )


def forget(s: Server, id: bytes) -> None:
    """CLUSTER FORGET: there is no other node to forget."""
    if len(id) != 40:
        raise ArgError(b"ERR Invalid node identifier")
    if id == s.n.node_id:
        raise ArgError(b"ERR I tried hard but I can't forget myself...")
    raise ArgError(b"ERR Unknown node " + id)


def reset(s: Server, mode: bytes) -> None:
    """CLUSTER RESET: jobs and queues go; HARD also takes a new id and ends LEAVING."""
    if mode not in (b"SOFT", b"HARD"):
        raise ArgError(SYNTAX)
    n = s.n
    dropped = flush_all(n)
    wake_all(n, DATA_RESET)
    if mode == b"HARD":
        n.node_id = s.identity.renew()
        n.ids = IdMaker(n.node_id, urandom(20))
        n.is_leaving = False
    log.warning("CLUSTER RESET %s: %d jobs dropped", mode.decode(), dropped)
    save(s)


def set_leaving(s: Server, word: bytes) -> None:
    """CLUSTER LEAVING yes|no; those who wait for jobs are sent elsewhere (V7)."""
    if word not in (b"yes", b"no"):
        raise ArgError(BAD_LEAVING)
    is_leaving = word == b"yes"
    s.n.is_leaving = is_leaving
    s.identity.members.is_leaving = is_leaving
    if is_leaving:
        wake_all(s.n, NODE_LEAVING)
    save(s)


def save(s: Server) -> None:
    """Write nodes.conf; the change stands also when that fails, and the caller is told."""
    try:
        s.identity.save()
    except OSError as error:
        reason = str(error.strerror).encode()
        raise ArgError(b"ERR error saving the cluster node config: " + reason) from None
