"""TUBE: what operators ask, and what concerns the whole connection (SPEC T15, T16)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tuque.core.model.task import MAX_MS, STATUS_NAMES
from tuque.server.replies.chores import begin
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.server.state.tube_notices import leave_notices, watch
from tuque.server.tubes.chores import DROP, LOOKS, RELEASE_ALL, TRUNCATE, Tasks, TubeChore
from tuque.server.tubes.homes import await_home, home_id
from tuque.server.tubes.plugins import listing, register_installed
from tuque.server.tubes.statistics import Statistics
from tuque.server.tubes.words import USER, tube_here, tube_named
from tuque.tubes.failover.claims import claim_tube
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.leadership import homeless, state_of_node, state_of_tube
from tuque.tubes.tasks import admin
from tuque.tubes.tasks.sessions import dashed, identify
from tuque.tubes.tasks.totals import Totals, totals_of
from tuque.wire.args import ArgError, ranged
from tuque.wire.tube_args import (
    NUMBER_MAX,
    create_options,
    pairs,
    span_ms,
    state_of,
    uuid_of,
)

LISTED: Final = 100  # tasks, or changes, that are shown unless more are asked for
HOMELESS_SHOWN: Final = 20  # names of tubes in INFO
LISTED_MAX: Final = 10_000
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 10000"
BAD_AFTER: Final = b"ERR AFTER must be a number from -1 to 4503599627370496"
BAD_FLAG: Final = b"ERR INREPLICASET must be yes or no"
NEEDS_RESP3: Final = b"ERR TUBE SUBSCRIBE needs RESP3 (HELLO 3); in RESP2 poll TUBE CHANGES"
NO_CALLBACK: Final = b"ERR no callback of this server is named '%s'"
WATCHED_MAX: Final = 1_000  # tubes that one connection subscribes to


def create(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE CREATE tube type [options]."""
    o = create_options(args)
    if o.on_task_change and o.on_task_change not in s.notices.callbacks:
        raise ArgError(NO_CALLBACK % o.on_task_change)
    if claim_tube(s.n, t, args[2], args[3], o, USER, c.number, c.put_serial + 1) is None:
        await_home(s, c)  # other nodes are asked (T17.5)
    else:
        c.ok()


def drop(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE DROP tube."""
    begin(s, c, TubeChore(s, t, c, tube_here(s, t, args[2]), DROP))


def truncate(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE TRUNCATE tube: how many tasks are gone."""
    begin(s, c, TubeChore(s, t, c, tube_here(s, t, args[2]), TRUNCATE))


def release_all(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE RELEASEALL tube: how many taken tasks are READY again."""
    begin(s, c, TubeChore(s, t, c, tube_here(s, t, args[2]), RELEASE_ALL))


def count_of(found: dict[bytes, bytes]) -> int:
    """The value of COUNT among the options."""
    word = found.get(b"COUNT")
    return LISTED if word is None else int(ranged(word, 1, LISTED_MAX, BAD_COUNT))


def tasks(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE TASKS tube state [COUNT n]: tasks in that state, in the order of (pri, id)."""
    status = state_of(args[3])
    most = count_of(pairs(args, 4, [b"COUNT"]))
    begin(s, c, Tasks(s, t, c, tube_here(s, t, args[2]), status, most))


def seconds(ms: int) -> int | str:
    """A time as words have it; 100 years and more: for ever."""
    if ms >= MAX_MS:
        return "forever"
    return ms // 1000 if ms % 1000 == 0 else f"{ms / 1000:.3f}"


def info(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE INFO tube: options and figures."""
    c.reply(info_of(s, tube_named(t, args[2])))


def info_of(s: Server, tube: Tube) -> dict[str, object]:
    """Options and figures of a tube by name (T15.4)."""
    return {
        "name": tube.name,
        "type": tube.type,
        "temporary": int(tube.is_temporary),
        "ttl": seconds(tube.ttl_ms),
        "ttr": seconds(tube.ttr_ms),
        "pri": int(tube.pri),
        "capacity": int(tube.capacity),
        "storage-mode": tube.storage_mode,
        "engine": tube.engine,
        "on-task-change": tube.on_task_change,
        "ready": int(tube.ready_count()),
        "taken": int(tube.taken),
        "delayed": int(tube.delayed),
        "buried": int(tube.buried),
        "next-id": int(tube.next_number),
        "waiting-takes": len(tube.waiters),
        "waiting-puts": int(tube.waiting_puts),
        "subscribers": int(tube.subscribers),
        "changes": int(tube.change_seq),
        "home": home_id(s, tube),
        "epoch": int(tube.epoch),
        "state": state_of_tube(tube),
        "sync": int(tube.sync),
        "copies": len(tube.copies),
        "conflict": tube.conflict,
        "stopped": why_stopped(tube.type, tube.driver),
    }


def tube_figures(s: Server) -> dict[str, object]:
    """What INFO tells of all tubes (T11.5); nothing is made for it."""
    policy = s.n.policy
    t = policy if isinstance(policy, Tubes) else None
    found = Totals() if t is None else totals_of(s.n, t)
    count = 0 if t is None else len(t.by_name)
    s.n.work += count // LOOKS
    return {
        "tubes": count,
        "tubes_tasks": int(found.tasks),
        "tubes_ready": int(found.ready),
        "tubes_taken": int(found.taken),
        "tubes_delayed": int(found.delayed),
        "tubes_buried": int(found.buried),
        "tubes_sessions": 0 if t is None else len(t.sessions),
        "tubes_waiting_takes": int(found.waiting_takes),
        "tubes_waiting_puts": int(found.waiting_puts),
        "tubes_subscribers": int(found.subscribers),
        "tubes_lost_notices": s.notices.lost,
        "tubes_used_bytes": 0 if t is None else int(t.bytes_used),
        "tubes_state": (b"INIT" if t is None else state_of_node(s.n, t)).decode(),
        "tubes_running": int(found.running),
        "tubes_stopped": int(found.stopped),
        "tubes_copies": int(found.copies),
        "tubes_lag": int(found.lag),
        "tubes_waiting_copies": sum(len(line) for line in s.syncing.values()),
        "tubes_homes_moved": 0 if t is None else int(t.homes_moved),
        "tubes_changes_lost": 0 if t is None else int(t.changes_lost),
        **homeless_figures(s, t),
    }


def homeless_figures(s: Server, t: Tubes | None) -> dict[str, object]:
    """Tubes that no client can use as far as this node sees: how many, and which (T11.5)."""
    names = [] if t is None else homeless(s.n, t)
    shown = [quote(name, "") for name in names[:HOMELESS_SHOWN]]
    return {"tubes_homeless": len(names), "tubes_homeless_names": ",".join(shown)}


def drivers(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE DRIVERS: the types of tubes (T3.7)."""
    s.n.work += len(t.by_name) // LOOKS
    c.reply(listing(s, t))


def register_driver(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE REGISTERDRIVER type: from now on tubes may have it (T3.6)."""
    register_installed(s, args[2])
    c.ok()


def list_tubes(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T15] TUBE LIST: the names of all tubes."""
    s.n.work += len(t.by_name) // LOOKS
    c.reply(list(t.by_name))


def statistics(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T11] TUBE STATISTICS [tube]: the counters of one tube, or of each."""
    if len(args) == 3:
        c.reply(admin.statistics(t, tube_named(t, args[2])))
    else:
        begin(s, c, Statistics(s, t, c))


def cfg(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T10] TUBE CFG [TTR sec] [INREPLICASET yes|no]: the settings in force."""
    found = pairs(args, 2, [b"TTR", b"INREPLICASET"])
    ttr_ms = span_ms(found[b"TTR"], b"TTR") if b"TTR" in found else None
    in_replicaset = None
    if b"INREPLICASET" in found:
        flag = found[b"INREPLICASET"].lower()
        if flag not in (b"yes", b"no"):
            raise ArgError(BAD_FLAG)
        in_replicaset = flag == b"yes"
    if found:
        admin.cfg(s.n, t, ttr_ms, in_replicaset)
    c.reply({"ttr": seconds(t.ttr_ms), "in-replicaset": "yes" if t.in_replicaset else "no"})


def identify_client(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T8] TUBE IDENTIFY [uuid]: the uuid of the session, as text (T15.7)."""
    uuid = uuid_of(args[2]) if len(args) == 3 else None
    c.reply(dashed(identify(s.n, t, c.number, USER, uuid)))


def changes(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T12] TUBE CHANGES tube [AFTER number] [COUNT n]: notices kept, oldest first (T16.1)."""
    found = pairs(args, 3, [b"AFTER", b"COUNT"])
    after = ranged(found.get(b"AFTER", b"-1"), -1, NUMBER_MAX, BAD_AFTER)
    tube = tube_here(s, t, args[2])
    if after >= tube.change_seq:
        after = -1  # told by an earlier life of this node
    rows: list[object] = []
    for one in t.changes(tube, after, count_of(found)):
        row = [int(one.seq), one.event, int(one.number), STATUS_NAMES[one.status], int(one.at_ms)]
        rows.append(row)
    c.reply(rows)


def subscribe(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T16] TUBE SUBSCRIBE tube [tube ...]: to how many tubes the connection is subscribed."""
    if not c.resp3:
        raise ArgError(NEEDS_RESP3)
    found = [tube_here(s, t, name) for name in args[2:]]
    new = {tube.name for tube in found if tube.name not in c.watched}
    if len(c.watched) + len(new) > WATCHED_MAX:
        raise ArgError(b"ERR a connection subscribes to at most %d tubes" % WATCHED_MAX)
    for tube in found:
        watch(s, c, tube)
    c.reply(len(c.watched))


def unsubscribe(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T16] TUBE UNSUBSCRIBE [tube ...]: from these, or all; how many are left."""
    leave_notices(s, c, args[2:] or list(c.watched))
    c.reply(len(c.watched))
