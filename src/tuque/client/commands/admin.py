"""The method table: the wire form of calls about a node and its cluster."""

from __future__ import annotations

from typing import Any

from tuque.client.api import Arg, ClusterNode, Hello, NodeInfo, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call, pairs


def ping(*, timeout: float | None = None) -> Call[str]:
    """Returns "PONG"."""
    return Call(args=("PING",), parse=to_text, repeat=True, timeout_s=timeout)


def hello(*, timeout: float | None = None) -> Call[Hello]:
    """The node's identity and the nodes that it knows."""
    return Call(args=("HELLO",), parse=_hello, repeat=True, timeout_s=timeout)


def time(*, timeout: float | None = None) -> Call[float]:
    """The node's wall clock in unix seconds."""
    return Call(args=("TIME",), parse=_seconds, repeat=True, timeout_s=timeout)


def info(section: str | None = None, *, timeout: float | None = None) -> Call[dict[str, str | int]]:
    """The node's figures by name, of one section or of the default ones."""
    args: tuple[Arg, ...] = ("INFO",) if section is None else ("INFO", section)
    return Call(args=args, parse=_info, repeat=True, timeout_s=timeout)


def config_get(pattern: str = "*", *, timeout: float | None = None) -> Call[dict[str, str]]:
    """The settings whose names match a glob."""
    return Call(args=("CONFIG", "GET", pattern), parse=_text_pairs, repeat=True, timeout_s=timeout)


def config_set(name: str, value: Arg, *, timeout: float | None = None) -> Call[bool]:
    """Changes an option until the node stops."""
    args = ("CONFIG", "SET", name, value)
    return Call(args=args, parse=_is_ok, repeat=True, timeout_s=timeout)


def config_rewrite(*, timeout: float | None = None) -> Call[bool]:
    """Writes the running options to the node's file."""
    return Call(args=("CONFIG", "REWRITE"), parse=_is_ok, repeat=True, timeout_s=timeout)


def config_resetstat(*, timeout: float | None = None) -> Call[bool]:
    """Zeroes the node's counters."""
    return Call(args=("CONFIG", "RESETSTAT"), parse=_is_ok, repeat=True, timeout_s=timeout)


def client_list(*, timeout: float | None = None) -> Call[list[dict[str, str]]]:
    """The node's connections."""
    return Call(args=("CLIENT", "LIST"), parse=_clients, repeat=True, timeout_s=timeout)


def cluster_nodes(*, timeout: float | None = None) -> Call[list[ClusterNode]]:
    """The nodes this node knows, itself included."""
    return Call(args=("CLUSTER", "NODES"), parse=_cluster_nodes, repeat=True, timeout_s=timeout)


def cluster_info(*, timeout: float | None = None) -> Call[dict[str, str | int]]:
    """This node's view of the cluster, by name."""
    return Call(args=("CLUSTER", "INFO"), parse=_info, repeat=True, timeout_s=timeout)


def cluster_myid(*, timeout: float | None = None) -> Call[str]:
    """The id of the node."""
    return Call(args=("CLUSTER", "MYID"), parse=to_text, repeat=True, timeout_s=timeout)


def cluster_meet(
    host: str, port: int, bus_port: int | None = None, *, timeout: float | None = None
) -> Call[bool]:
    """Asks the node to join another one, by host name or address; the reply comes before that.

    Without `bus_port` the other node's bus port is its port + 10000. `cluster_nodes` lists the
    other node once they have met.
    """
    args: tuple[Arg, ...] = ("CLUSTER", "MEET", host, port)
    if bus_port is not None:
        args += (bus_port,)
    return Call(args=args, parse=_is_ok, repeat=True, timeout_s=timeout)


def cluster_forget(
    node_id: Text, *, force: bool = False, timeout: float | None = None
) -> Call[bool]:
    """Makes the node forget another one; `force`: also one that runs, which then does no work."""
    args: tuple[Arg, ...] = ("CLUSTER", "FORGET", to_bytes(node_id))
    if force:
        args += ("FORCE",)
    return Call(args=args, parse=_is_ok, repeat=True, timeout_s=timeout)


def cluster_leaving(leaving: bool | None = None, *, timeout: float | None = None) -> Call[bool]:
    """Returns, or with an argument sets, whether the node is leaving; returns the present state."""
    if leaving is None:
        return Call(args=("CLUSTER", "LEAVING"), parse=_is_yes, repeat=True, timeout_s=timeout)
    args = ("CLUSTER", "LEAVING", "yes" if leaving else "no")
    parse = _true if leaving else _false
    return Call(args=args, parse=parse, repeat=True, timeout_s=timeout)


def cluster_repair(*, timeout: float | None = None) -> Call[int]:
    """The number of jobs with lost copies that this node still has to check; 0 when done."""
    return Call(args=("CLUSTER", "REPAIR"), parse=_left, repeat=True, timeout_s=timeout)


def bgrewriteaof(*, timeout: float | None = None) -> Call[str]:
    """Starts a rewrite of the journal; returns the node's reply."""
    return Call(args=("BGREWRITEAOF",), parse=to_text, timeout_s=timeout)


def shutdown(*, rewrite_aof: bool = False, timeout: float | None = None) -> Call[None]:
    """Stops the node cleanly; it replies by closing the connection."""
    args: tuple[Arg, ...] = ("SHUTDOWN", "REWRITE-AOF") if rewrite_aof else ("SHUTDOWN",)
    return Call(args=args, parse=_nothing, timeout_s=timeout, ends_connection=True)


def execute(*args: Arg, timeout: float | None = None) -> Call[Any]:
    """Sends any command; returns the reply unchanged. Never sent twice."""
    if not args:
        raise ValueError("execute needs at least the name of a command")
    words = tuple(to_bytes(a) if isinstance(a, str) and i else a for i, a in enumerate(args))
    return Call(args=words, parse=_as_is, timeout_s=timeout)


# From replies to values


def _as_is(reply: Reply) -> Any:
    return reply


def _nothing(reply: Reply) -> None:
    return None


def _true(reply: Reply) -> bool:
    return True


def _false(reply: Reply) -> bool:
    return False


def _is_ok(reply: Reply) -> bool:
    return to_text(reply) == "OK"


def _is_yes(reply: Reply) -> bool:
    return to_text(reply) == "yes"


def _left(reply: Reply) -> int:
    return 0 if reply == b"done" else int(reply)


def _seconds(reply: Reply) -> float:
    seconds, micros = reply
    return int(seconds) + int(micros) / 1_000_000


def _hello(reply: Reply) -> Hello:
    version, own_id, *nodes = reply
    return Hello(int(version), to_text(own_id), tuple(map(_node_info, nodes)))


def _node_info(item: Reply) -> NodeInfo:
    node_id, host, port, priority = item
    return NodeInfo(to_text(node_id), to_text(host), int(port), int(priority))


def _info(reply: Reply) -> dict[str, str | int]:
    figures: dict[str, str | int] = {}
    for line in to_text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not name.startswith("#"):
            figures[name] = _int_if_whole(value)
    return figures


def _int_if_whole(value: str) -> str | int:
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() else value


def _text_pairs(reply: Reply) -> dict[str, str]:
    return {name: to_text(value) for name, value in pairs(reply).items()}


def _clients(reply: Reply) -> list[dict[str, str]]:
    lines = to_text(reply).splitlines()
    return [dict(w.partition("=")[::2] for w in line.split(" ")) for line in lines if line]


def _cluster_nodes(reply: Reply) -> list[ClusterNode]:
    return [_cluster_node(line) for line in to_text(reply).splitlines() if line]


def _cluster_node(line: str) -> ClusterNode:
    node_id, address, flags, ping_ms, pong_ms, link, *reason = line.split(" ", 6)
    host, _, port = address.rpartition(":")
    return ClusterNode(
        id=node_id,
        host=host,
        port=int(port),
        flags=tuple(f for f in flags.split(",") if f != "noflags"),
        ping_sent_ms=int(ping_ms),
        pong_received_ms=int(pong_ms),
        connected=link == "connected",
        reason="".join(reason),
    )
