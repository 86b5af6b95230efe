"""Commands of operators on tubes, and of a whole connection (SPEC T15, T16)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tuque.core.model.stats import tenant_of
from tuque.core.model.task import MAX_MS, STATUS_NAMES
from tuque.core.tables.staged import FAIR
from tuque.server.replies.redirects import tube_named
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.server.state.tube_notices import leave_notices, watch
from tuque.server.tubes.call import OK, TubeCall
from tuque.server.tubes.chores import LOOKS
from tuque.server.tubes.homes import home_id
from tuque.server.tubes.plugins import listing, register_installed
from tuque.server.tubes.statistics import Statistics
from tuque.server.tubes.voters import own_state
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.log.catalog import announce
from tuque.tubes.log.leader import (
    copies_needed,
    homeless,
    needs_home,
    state_of_node,
    state_of_tube,
)
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.errors import NO_CALLBACK, TUBES_MAX, TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import (
    AGAIN,
    FORCED,
    GAVE_UP,
    GIVEN,
    REASONS,
    SILENT,
)
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin
from tuque.tubes.tasks.admin import Totals, totals_of
from tuque.tubes.tasks.sessions import identify
from tuque.tubes.work.transitions import record_tube
from tuque.wire.commands.arguments import ArgError

HOMELESS_SHOWN: Final = 20  # names of tubes in INFO
NEEDS_RESP3: Final = b"ERR TUBE SUBSCRIBE needs RESP3 (HELLO 3); in RESP2 poll TUBE CHANGES"
WATCHED_MAX: Final = 1_000  # tubes that one connection may subscribe to


def create(call: TubeCall) -> None:
    """[T2] Create a tube of that type with these options."""
    s = call.s
    is_tenant = call.caller.is_tenant()
    if is_tenant and len(call.options.on_change) > 0:
        raise TubeError(NO_CALLBACK, (call.options.on_change,))  # N10.4
    check_callback(s, call.options.on_change)
    name, type, o = call.tube or b"", call.options.name or b"", call.options.tube_options()
    if is_tenant:
        check_share(call.t, name, s.n.limits.tubes_max // FAIR)
    made = claim_tube(s.n, call.t, name, type, o, call.user, call.client, call.serial())
    if made is None:
        call.await_home()  # it asks other nodes (T17.5)
    else:
        call.value(OK)


def check_share(t: Tubes, name: bytes, most: int) -> None:
    """[N11] Raise TubeError if the tenant has as many tubes as it may (N11.8)."""
    if len(t.by_name) < most or name in t.by_name:
        return
    prefix = tenant_of(name) + b"/"
    count = sum([1 for one in t.by_name if one.startswith(prefix)])
    if count >= most:
        raise TubeError(TUBES_MAX, (count, most))


def check_callback(s: Server, name: bytes) -> None:
    """Raise TubeError if the server lacks a callback of that name; none is fine (T16.4)."""
    if len(name) > 0 and name not in s.notices.callbacks:
        raise TubeError(NO_CALLBACK, (name,))


def on_task_change(call: TubeCall) -> None:
    """[T16] Name the callback for changes (T16.4); replies with the previous name."""
    check_callback(call.s, call.options.on_change)
    n, tube = call.n, call.at
    before = tube.on_task_change
    tube.on_task_change = call.options.on_change
    if n.records is not None:
        record_tube(n.records, tube)
    if n.others != 0:
        announce(n, call.t, [tube], -1)  # T17.2
    call.value(before or None)


def seconds(ms: int) -> int | str:
    """A time in the form of options; from 100 years: forever."""
    if ms >= MAX_MS:
        return "forever"
    return ms // 1000 if ms % 1000 == 0 else f"{ms / 1000:.3f}"


def info(call: TubeCall) -> None:
    """[T15] Options and figures of a tube (T15.4)."""
    fields = info_of(call.s, call.at)
    fields["name"] = call.named(call.at.name)
    call.value(fields)


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
        "sync": int(copies_needed(s.n, tubes_of(s.n), tube)),
        "copies": len(tube.copies),
        "conflict": tube.conflict,
        "stopped": why_stopped(tube.type, tube.driver),
        "failover": int(tube.fails_over),
    }


def tube_figures(s: Server) -> dict[str, object]:
    """Figures of all tubes for INFO (T11.5); reading them creates nothing."""
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
        **task_figures(t, found),
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
        "tubes_incomplete": int(found.incomplete),
        "tubes_waiting_copies": sum(len(line) for line in s.syncing.values()),
        "tubes_homes_moved": 0 if t is None else int(t.homes_moved),
        "tubes_homes_given": 0 if t is None else int(t.homes_given),
        "tubes_homes_by_command": 0 if t is None else int(t.homes_by_command),
        "tubes_changes_lost": 0 if t is None else int(t.changes_lost),
        **vote_figures(s, t),
        **homeless_figures(s, t),
    }


def task_figures(t: Tubes | None, found: Totals) -> dict[str, object]:
    """Schedules, groups of jobs and keys of tubes of type tasks (T11.5)."""
    keys = found.keys
    return {
        "tubes_schedules": int(found.schedules),
        "tubes_schedules_fired": 0 if t is None else int(t.schedules_fired),
        "tubes_schedules_late": 0 if t is None else int(t.schedules_late),
        "tubes_groups": int(found.groups),
        "tubes_groups_made": 0 if t is None else int(t.groups_made),
        "tubes_groups_done": 0 if t is None else int(t.groups_done),
        "tubes_groups_failed": 0 if t is None else int(t.groups_failed),
        "tubes_keys": int(keys.known),
        "tubes_keys_waited": int(keys.waited),
        "tubes_keys_wait_ms": int(keys.wait_ms),
        "tubes_unique_keys": int(keys.unique),
        "tubes_duplicates": 0 if t is None else int(t.duplicates),
    }


def vote_figures(s: Server, t: Tubes | None) -> dict[str, object]:
    """The voters that are in force here, and elections of this node (T11.5)."""
    voters = None if t is None else t.ballots.in_force()
    state = "" if t is None else own_state(s.n, t)
    won = [0] * len(REASONS) if t is None else t.ballots.won_by
    return {
        "tubes_voters": 0 if voters is None else len(voters.rights),
        "tubes_votes": int(state == "votes"),
        "tubes_vote_state": state,
        "tubes_elections_won": 0 if t is None else int(t.ballots.elections_won),
        "tubes_elections_lost": 0 if t is None else int(t.ballots.elections_lost),
        "tubes_elections_silent": won[SILENT],
        "tubes_elections_gave_up": won[GAVE_UP],
        "tubes_elections_given": won[GIVEN],
        "tubes_elections_again": won[AGAIN],
        "tubes_elections_forced": won[FORCED],
    }


def homeless_figures(s: Server, t: Tubes | None) -> dict[str, object]:
    """Number and names of tubes that have no usable leader, as this node sees it (T11.5)."""
    names = [] if t is None else homeless(s.n, t)
    shown = [quote(name, "") for name in names[:HOMELESS_SHOWN]]
    return {"tubes_homeless": len(names), "tubes_homeless_names": ",".join(shown)}


def drivers(call: TubeCall) -> None:
    """[T3] The types of tubes (T3.7)."""
    call.n.work += len(call.t.by_name) // LOOKS
    call.value(listing(call.s, call.t))


def register_driver(call: TubeCall) -> None:
    """[T3] Allow tubes of that type from now on (T3.6)."""
    register_installed(call.s, call.options.name or b"")
    call.value(OK)


def list_tubes(call: TubeCall) -> None:
    """[T15, I6] The names of all tubes, or whether that one exists."""
    if call.options.name is not None:
        name = call.full(call.options.name)
        call.value(name in call.t.by_name and call.sees(name))
        return
    call.n.work += len(call.t.by_name) // LOOKS
    call.value([call.named(name) for name in call.t.by_name if call.sees(name)])


def statistics(call: TubeCall) -> None:
    """[T11] The counters of one tube, or of each."""
    if call.tube is not None:
        call.may_read(call.at)
        call.value(admin.statistics(call.t, call.at))
        return
    for tube in call.t.by_name.values():
        call.may_read(tube)
    call.begin(Statistics(call))


def cfg(call: TubeCall) -> None:
    """[T10] The settings in force."""
    t = call.t
    ttr_ms = call.options.ttr_ms if call.options.ttr_ms >= 0 else None
    if call.given > 0:
        admin.cfg(call.n, t, ttr_ms, call.options.in_replicaset)
    call.value({"ttr": seconds(t.ttr_ms), "in-replicaset": "yes" if t.in_replicaset else "no"})


def identify_client(call: TubeCall) -> None:
    """[T8] The uuid of the session, or join the session of that uuid (T15.7)."""
    call.uuid(identify(call.n, call.t, call.client, call.user, call.options.name))


def changes(call: TubeCall) -> None:
    """[T12] The kept notices, oldest first (T16.1)."""
    tube = call.at
    after = call.options.after
    if after >= tube.change_seq:
        after = -1  # a number from an earlier incarnation of this node
    rows: list[object] = []
    for one in call.t.changes(tube, after, call.options.count):
        row = [int(one.seq), one.event, int(one.number), STATUS_NAMES[one.status], int(one.at_ms)]
        rows.append(row)
    call.value(rows)


def subscribe(call: TubeCall) -> None:
    """[T16] Subscribe; replies with the number of tubes the connection is subscribed to."""
    c = call.caller
    assert isinstance(c, Client)
    if not c.resp3:
        raise ArgError(NEEDS_RESP3)
    found: list[Tube] = []
    for name in call.options.names:
        found.append(tube_named(call.t, name))
        needs_home(call.n, call.t, found[-1])
    new = {tube.name for tube in found if tube.name not in c.watched}
    if len(c.watched) + len(new) > WATCHED_MAX:
        raise ArgError(b"ERR a connection subscribes to at most %d tubes" % WATCHED_MAX)
    for tube in found:
        watch(call.s, c, tube)
    c.reply(len(c.watched))


def unsubscribe(call: TubeCall) -> None:
    """[T16] Unsubscribe from these tubes, or all; replies with the number left."""
    c = call.caller
    assert isinstance(c, Client)
    leave_notices(call.s, c, call.options.names or list(c.watched))
    c.reply(len(c.watched))
