"""CLUSTER: figures of the cluster, and changes of its membership (SPEC S6, K3, K5 to K7, K9)."""

from __future__ import annotations

from os import urandom
from typing import Final

from tuque.core.dispatch.restore import flush_all
from tuque.core.model.job_id import IdMaker
from tuque.core.node.node import DATA_RESET, NODE_LEAVING
from tuque.core.node.peers import journal_fails
from tuque.core.queues.deliver import wake_all
from tuque.core.repair.drain import (
    drain_left,
    results_here,
    results_left,
    set_leaving,
    set_stopping,
    tubes_to_move,
)
from tuque.core.repair.node_loss import repair_left
from tuque.logtext import facts
from tuque.server.bus.reasons import NO_SECRET
from tuque.server.commands.tube_leaders import cmd_voters
from tuque.server.config.config import is_loopback
from tuque.server.net.resolver import is_literal
from tuque.server.replies.errors import reply_help
from tuque.server.replies.redirects import own_host
from tuque.server.start.bus import make_card
from tuque.server.state.client import Client
from tuque.server.state.server import Server, log
from tuque.tubes.election.voters import is_free
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError, Misuse, WrongWords
from tuque.wire.proto.resp import Status, strict_int

Fields = dict[str, object]

BAD_LEAVING: Final = b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
BAD_STOPPING: Final = b"ERR Wrong argument for CLUSTER STOPPING. Use 'yes' or 'no'"
NO_BUS: Final = b"ERR this node stays alone: cluster-enabled is no"
TOO_MANY: Final = b"ERR too many meetings are open, see CLUSTER NODES"
ITSELF: Final = b"ERR that is this node itself: CLUSTER MEET takes the address of another node"
IT_VOTES: Final = b"ERR node %s votes: CLUSTER VOTERS REMOVE %s first"
IT_RUNS: Final = (
    b"ERR node %s runs and is linked: drain and stop it first, or CLUSTER FORGET %s FORCE: it then "
    b"does no work any more"
)
IT_LEADS: Final = (
    b"ERR this node leads tubes that other nodes can lead, and %d of them would have no leader: "
    b"CLUSTER LEAVING yes hands them over, or CLUSTER RESET %s FORCE"
)
PORT_MAX: Final = 65_535
BUS_OFFSET: Final = 10_000  # from the clients' port to the bus port
HOST_MAX: Final = 255
MEETINGS_MAX: Final = 64


# ---- Figures, for CLUSTER INFO and INFO (SPEC S6, S8)


def is_safe_to_stop(s: Server) -> bool:
    """[K7.3] Whether the node is leaving and has handed over everything."""
    return s.n.is_leaving and drain_left(s.n) == 0


def absent_nodes(s: Server) -> int:
    """[K9] Nodes of the cluster that take no copies now and do not leave (K9.2)."""
    there = s.n.reachable | s.n.leavers
    return sum(1 for one in s.members.alive() if there >> one.slot & 1 == 0 and not one.is_leaving)


def stop_left(s: Server) -> int:
    """[K9] What a stop by plan waits for (K9.2)."""
    if not s.n.is_stopping:
        return 0
    return int(repair_left(s.n)) + int(tubes_to_move(s.n)) + absent_nodes(s)


def links_over_tls(s: Server) -> int:
    """[B1] How many nodes it is linked with over TLS (B1.8)."""
    if s.bus is None:
        return 0
    return sum(1 for link in s.bus.by_slot.values() if link.is_tls)


def cluster_fields(s: Server) -> Fields:
    """CLUSTER INFO: Disque's fields, then ours."""
    n, bus = s.n, s.bus
    size = int(s.members.size())
    sent = received = sent_bytes = received_bytes = 0
    if bus is not None:
        sent = sum(bus.figures.out_messages.values())
        received = sum(bus.figures.in_messages.values())
        sent_bytes, received_bytes = int(bus.figures.out_bytes), int(bus.figures.in_bytes)
    return {
        "cluster_state": s.members.why_idle() or "ok",
        "cluster_known_nodes": size,
        "cluster_reachable_nodes": int(n.reachable_count),
        "cluster_size": size,
        "cluster_stats_messages_sent": sent,
        "cluster_stats_messages_received": received,
        "cluster_stats_bytes_sent": sent_bytes,
        "cluster_stats_bytes_received": received_bytes,
        "cluster_bus_port": int(bus.port) if bus is not None else 0,
        "cluster_tls": "yes" if s.cfg.tls_cluster else "no",
        "cluster_links_tls": links_over_tls(s),
        "cluster_meetings": len(s.members.meetings.going),
        "cluster_meet_error": s.members.meetings.error,
        "cluster_repair_left": int(repair_left(n)),
        "cluster_leaving": "yes" if n.is_leaving else "no",
        "cluster_drain_left": int(drain_left(n)) if n.is_leaving else 0,
        "cluster_drain_results": int(results_left(n)),
        "cluster_results_here": int(results_here(n)),
        "cluster_safe_to_stop": "yes" if is_safe_to_stop(s) else "no",
        "cluster_stopping": "yes" if n.is_stopping else "no",
        "cluster_stop_left": stop_left(s),
        "cluster_stop_tubes": int(tubes_to_move(n)) if n.is_stopping else 0,
        "cluster_stop_absent": absent_nodes(s) if n.is_stopping else 0,
    }


def cluster_section(s: Server) -> Fields:
    """INFO cluster."""
    n = s.n
    fields: Fields = {"cluster_enabled": int(s.bus is not None)}
    fields.update(cluster_fields(s))
    fields["cluster_adding"] = len(n.adding)
    fields["cluster_acked_jobs"] = len(n.acked)
    fields["cluster_acks_evicted"] = int(n.acks_evicted)  # M3.1
    fields["cluster_tombstones"] = n.tombs.count()
    fields["standstills"] = int(n.standstills)  # G8.4
    return fields


def bus_section(s: Server) -> Fields:
    """INFO bus: links, and their traffic since the start or RESETSTAT."""
    bus = s.bus
    if bus is None:
        return {"bus_enabled": 0}
    figures = bus.figures
    fields: Fields = {
        "bus_enabled": 1,
        "bus_port": bus.port,
        "bus_links": len(bus.by_slot),
        "bus_handshakes": len(bus.links) - len(bus.by_slot),
        "bus_waiting_bytes": bus.waiting_bytes(),
        "bus_links_without_room": bus.crowded,
        "bus_producers_without_room": len(s.stalled),
        "bus_in_bytes": figures.in_bytes,
        "bus_out_bytes": figures.out_bytes,
        "bus_in_frames": figures.in_frames,
        "bus_out_frames": figures.out_frames,
        "bus_accepted": figures.accepted,
        "bus_dialed": figures.dialed,
        "bus_joined": figures.joined,
        "bus_refused": figures.refused,
        "bus_closed_malformed": figures.malformed,
        "bus_frames_refused": figures.frames_refused,
        "bus_sealed": int(len(bus.secrets) > 0),
        "bus_tls": int(bus.is_tls),
        "bus_links_tls": links_over_tls(s),
        "bus_shut": int(bool(bus.shut)),
        "bus_closed_overfull": figures.overfull,
    }
    for way, counts in (("in", figures.in_messages), ("out", figures.out_messages)):
        for kind, count in sorted((kind.__name__.lower(), count) for kind, count in counts.items()):
            fields[f"bus_{way}_{kind}"] = count
    return fields


# ---- The command (SPEC S6)


def cmd_cluster(s: Server, c: Client, args: list[bytes]) -> None:
    """[S6] CLUSTER subcommand [argument ...]."""
    word = args[1].upper()
    count = len(args)
    if word == b"MEET" and count in (4, 5):
        meet(s, args[2], args[3], args[4] if count == 5 else b"")
        c.ok()
    elif word == b"NODES" and count == 2:
        refuses = (s.idle or "conflict") if s.n.is_double else ""
        own = s.identity.line(journal_fails(s.n, 0), refuses, own_host(s, c))
        c.reply(own + s.members.lines())
    elif word == b"MYID" and count == 2:
        c.reply(s.n.node_id)
    elif word == b"INFO" and count == 2:
        c.reply("".join([f"{key}:{value}\r\n" for key, value in cluster_fields(s).items()]))
    elif word == b"SAVECONFIG" and count == 2:
        save(s)
        c.ok()
    elif word == b"FORGET" and (count == 3 or (count == 4 and args[3].upper() == b"FORCE")):
        forget(s, args[2], count == 4)
        c.ok()
    elif word == b"RESET" and count <= 4:
        modes = [one.upper() for one in args[2:]]
        is_forced = modes[-1:] == [b"FORCE"]
        if is_forced:
            modes.pop()
        reset(s, b" ".join(modes) or b"SOFT", is_forced)
        c.ok()
    elif word == b"LEAVING" and count == 2:
        c.reply(Status("yes" if s.n.is_leaving else "no"))
    elif word == b"LEAVING" and count == 3:
        leave(s, args[2].lower())
        c.ok()
    elif word == b"STOPPING" and count == 2:
        c.reply(Status("yes" if s.n.is_stopping else "no"))
    elif word == b"STOPPING" and count == 3:
        prepare_stop(s, args[2].lower())
        c.ok()
    elif word == b"REPAIR" and count == 2:
        left = int(repair_left(s.n))
        c.reply(left if left > 0 else Status("done"))  # K5.5, S6.7
    elif word == b"VOTERS":
        cmd_voters(s, c, args)
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"CLUSTER")
    else:
        raise WrongWords(b"CLUSTER")


def meet(s: Server, host: bytes, port_word: bytes, bus_word: bytes) -> None:
    """[K3] CLUSTER MEET host port [bus-port]: start; CLUSTER NODES shows the progress (K3.1)."""
    port = strict_int(port_word)
    if port is None:
        raise ArgError(b"ERR Invalid TCP port specified: " + port_word)
    bus_port = strict_int(bus_word) if bus_word else port + BUS_OFFSET
    if bus_port is None:
        raise ArgError(b"ERR Invalid TCP port specified: " + bus_word)
    if not is_host(host) or not 1 <= port <= PORT_MAX or not 1 <= bus_port <= PORT_MAX:
        raise ArgError(b"ERR Invalid node address specified: %s:%s" % (host, port_word))
    if s.bus is None:
        raise ArgError(NO_BUS)
    name = host.decode()
    if s.bus.shut:
        raise ArgError(b"ERR " + s.bus.shut.encode())  # B1.7
    if not s.bus.is_guarded() and is_literal(name) and not is_loopback(name):
        raise ArgError(b"ERR " + NO_SECRET.encode())
    if is_own_address(s, name, bus_port):
        raise ArgError(ITSELF)
    if len(s.members.meetings.going) >= MEETINGS_MAX:
        raise ArgError(TOO_MANY)
    s.members.meet(name, port, bus_port)


def is_own_address(s: Server, name: str, bus_port: int) -> bool:
    """Whether the address is known to be this node's own bus (K3.3)."""
    cfg = s.cfg
    if s.bus is None or bus_port not in (int(s.bus.port), cfg.cluster_announce_bus_port):
        return False
    known = [*cfg.cluster_bind, *cfg.bind, cfg.cluster_announce_ip]
    return is_loopback(name) or name in known


def is_host(host: bytes) -> bool:
    """Whether the word can be an address or a host name."""
    return 0 < len(host) <= HOST_MAX and all(33 <= byte <= 126 for byte in host)


def forget(s: Server, id: bytes, is_forced: bool) -> None:
    """[K6] CLUSTER FORGET: remove the node from the cluster; the other nodes follow (K6.1)."""
    if len(id) != 40:
        raise ArgError(b"ERR Invalid node identifier")
    if id == s.n.node_id:
        raise ArgError(b"ERR I tried hard but I can't forget myself...")
    t = tubes_of(s.n)
    voters = t.voter_state.in_force()
    if voters is not None and id in voters.rights and not is_free(t, voters):
        raise ArgError(IT_VOTES % (id, id))  # T28.6
    if s.members.runs(id) and not is_forced:
        raise ArgError(IT_RUNS % (id, id))  # K6.5
    if not s.members.forget(id):
        raise ArgError(b"ERR Unknown node " + id)
    if s.bus is not None:
        s.bus.close_stale()
    save(s)


def reset(s: Server, mode: bytes, is_forced: bool) -> None:
    """CLUSTER RESET: drop jobs, queues and other nodes; HARD also takes a new id, ends LEAVING."""
    if mode not in (b"SOFT", b"HARD"):
        raise Misuse(mode)
    n = s.n
    led = 0 if is_forced or n.is_double else int(tubes_to_move(n))
    if led > 0:
        raise ArgError(IT_LEADS % (led, mode))  # S6.6
    dropped = flush_all(n)
    wake_all(n, DATA_RESET)
    if s.bus is not None:
        s.bus.close_links("this node was reset")
    s.members.forget_all()
    flush_all(n)  # a TUBE CREATE that waited for the others made its tube when they went
    s.identity.renew(is_new_id=mode == b"HARD")
    if mode == b"HARD":
        set_leaving(n, False)
        take_new_id(s)
    s.members.renew(s.identity.life, s.identity.mark)
    if s.bus is not None and s.bus.card is not None:
        s.bus.card = make_card(s, s.bus, is_empty=True)
    log.warning(
        "CLUSTER RESET %(mode)s: %(dropped)d jobs dropped",
        facts("cluster_reset", mode=mode.decode(), dropped=dropped),
    )
    save(s)


def take_new_id(s: Server) -> None:
    """Take a new node id, unknown to every node."""
    n = s.n
    del n.slot_of[n.node_id]
    n.node_id = s.identity.node_id
    n.slot_of[n.node_id] = 0
    n.peers[0].node_id = n.node_id
    n.node_ids[0] = n.node_id
    before = n.ids
    n.ids = IdMaker(n.node_id, urandom(20), before.key)
    n.ids.older = before.older
    n.ids.tubes = before.tubes
    s.members.number = 0


def leave(s: Server, word: bytes) -> None:
    """[K7] CLUSTER LEAVING yes|no; waiting clients are redirected (V7)."""
    if word not in (b"yes", b"no"):
        raise ArgError(BAD_LEAVING)
    is_leaving = word == b"yes"
    set_leaving(s.n, is_leaving)
    s.settle_plain()
    s.identity.is_leaving = is_leaving
    if is_leaving:
        wake_all(s.n, NODE_LEAVING)
    save(s)


def prepare_stop(s: Server, word: bytes) -> None:
    """[K9] CLUSTER STOPPING yes|no: this node is about to stop, and to come back (K9.1)."""
    if word not in (b"yes", b"no"):
        raise ArgError(BAD_STOPPING)
    is_stopping = word == b"yes"
    set_stopping(s.n, is_stopping)
    if is_stopping:
        wake_all(s.n, NODE_LEAVING)
    log.info(
        "CLUSTER STOPPING %(answer)s",
        facts("cluster_stopping", answer=word.decode()),
    )


def save(s: Server) -> None:
    """Write nodes.conf. If that fails the change stands, and the reply says so."""
    try:
        s.identity.save(s.members)
    except OSError as error:
        reason = str(error.strerror).encode()
        raise ArgError(b"ERR error saving the cluster node config: " + reason) from None
    s.members.is_changed = False
