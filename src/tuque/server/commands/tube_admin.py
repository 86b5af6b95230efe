"""Procedures of operators on tubes: types, grants, statistics, notices (SPEC T2, T3, T10-T12, T16).

RESP and IPROTO call the same functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import quote

from mypy_extensions import i64

from tuque.core.model.errors import NO_CALLBACK, NO_DRIVER, NO_ROLE, NO_USER, NOT_LOADED, TUBES_MAX
from tuque.core.model.stats import tenant_of
from tuque.core.model.task import MAX_MS, STATUS_NAMES
from tuque.core.tables.staged import share_of
from tuque.logtext import facts
from tuque.server.commands.tube_leaders import home_id, own_state
from tuque.server.commands.tube_slices import LOOKS
from tuque.server.log.log import log
from tuque.server.replies.errors import text_of
from tuque.server.replies.redirects import tube_named
from tuque.server.replies.tubes import OK, TubeCall, end_takes
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.notices import Callback, leave_notices, watch
from tuque.server.state.server import Server
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.log.catalog import announce
from tuque.tubes.log.leader import (
    copies_needed,
    homeless,
    needs_home,
    state_of_node,
    state_of_tube,
)
from tuque.tubes.model.driver_guard import DriverFailed, Guarded, summary_of, why_stopped
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.grants import CALL, TRUNCATE, USER, role_key, user_key
from tuque.tubes.model.grants import PREFIX as OWN_PREFIX
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import BUILT_IN, Tubes
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
from tuque.tubes.tasks.admin import register_driver as register_type
from tuque.tubes.tasks.sessions import identify
from tuque.tubes.work.transitions import record_tube
from tuque.wire.commands.arguments import ArgError

if TYPE_CHECKING:
    from tuque.tubes.types.driver import Driver


COST: Final = 10  # units for the 17 counters of one tube

DENIED: Final = b"Execute access to function '%s.%s:take' is denied for user '%s'"
NAMES: Final = {b"call": CALL, b"truncate": TRUNCATE}

DRIVERS: Final = "tuque.tube_drivers"
CALLBACKS: Final = "tuque.tube_callbacks"

# [T3.7] states of a type
IS_BUILT_IN: Final = "built-in"
IS_LOADED: Final = "loaded"
IS_INSTALLED: Final = "installed"  # not registered yet
IS_FAILED: Final = "failed"  # failed to load
IS_MISSING: Final = "missing"  # not installed; its tubes wait

HOMELESS_SHOWN: Final = 20  # names of tubes in INFO
NEEDS_RESP3: Final = b"ERR TUBE SUBSCRIBE needs RESP3 (HELLO 3); in RESP2 poll TUBE CHANGES"
WATCHED_MAX: Final = 1_000  # tubes that one connection may subscribe to


# ---- STATISTICS of all tubes, some in each turn (SPEC L2, T11)


@final
class Statistics(LongCommand):
    """The counters of every tube; tubes dropped meanwhile are left out."""

    def __init__(self, call: TubeCall) -> None:
        super().__init__(call.caller)
        self.call = call
        self.n = call.n
        self.t = call.t
        self.names: list[bytes] = []
        self.at: i64 = -1  # -1: not started
        self.count: i64 = 0
        self.parts: list[bytes] = []  # one per turn

    def step(self, room: i64) -> bool:
        """Add the counters of the next tubes."""
        parts: list[bytes] = []
        is_over = self.put_some(parts, room)
        self.parts.append(b"".join(parts))  # joining a million small ones would take long
        return is_over

    def put_some(self, parts: list[bytes], room: i64) -> bool:
        """Add as many as there is room for; True: those were the last."""
        n = self.n
        until = n.work + room
        if self.at < 0:
            self.at = 0
            self.names = list(self.t.by_name)
        while self.at < len(self.names):
            if n.work >= until:
                return False
            n.work += COST
            name = self.names[self.at]
            self.at += 1
            tube = self.t.by_name.get(name)
            if tube is None or not self.call.sees(name):
                continue
            self.count += 1
            parts.append(self.call.pair(self.call.named(name), admin.statistics(self.t, tube)))
        return True

    def tell(self) -> None:
        """Reply with a map by name."""
        self.call.pairs(self.count, self.parts)


# ---- Which users of IPROTO may call a tube (SPEC T10, I5)


def holder_of(call: TubeCall) -> bytes:
    """The key of the user or role that the call names."""
    name = call.options.name or b""
    return role_key(name) if call.options.is_role else user_key(name)


def bits_of(call: TubeCall) -> i64:
    """The rights that the call names."""
    return (CALL if call.options.may_call else 0) | (TRUNCATE if call.options.may_truncate else 0)


def grant_calls(call: TubeCall) -> None:
    """[T10] Grant a user or a role the right to call the tube (T10.3)."""
    users = call.s.users
    o = call.options
    if o.is_role and o.name not in users.roles:
        raise TubeError(NO_ROLE, (o.name or b"",))
    if not o.is_role and o.name not in users.by_name:
        raise TubeError(NO_USER, (o.name or b"",))
    holder = holder_of(call)
    admin.grant(call.n, call.t, holder, call.at, bits_of(call), o.prefix or OWN_PREFIX)
    call.value(OK)


def grant_role(call: TubeCall) -> None:
    """[I5] Grant a role the right to call the tube (I5.7)."""
    call.set_option("is_role", True)
    grant_calls(call)


def revoke_calls(call: TubeCall) -> None:
    """[T10] Revoke rights: those named, else all (T10.4)."""
    t, tube = call.t, call.at
    bits = bits_of(call)
    if bits == 0:
        bits = CALL | TRUNCATE
    call.value(int(admin.revoke(call.n, t, holder_of(call), tube, bits, call.options.prefix)))
    for w in list(call.s.wired.values()):
        user = w.user
        if not user.sees(tube.name) and not t.rights.may_read(user.holders, tube.name):
            end_takes(call.s, w, tube.name, DENIED % (OWN_PREFIX, tube.name, user.name))


def grants(call: TubeCall) -> None:
    """[T10] Each grant: the tube, and the kind and name of its holder (T10.5)."""
    rows: list[object] = []
    for one in call.t.rights.listing(call.tube or b""):
        if not call.sees(one.tube):
            continue
        kind = b"user" if one.holder.startswith(USER) else b"role"
        words = [word for word, bit in NAMES.items() if one.bits & bit]
        rows.append([one.tube, kind, one.holder[1:], words, one.prefix])
    call.n.work += len(rows)
    call.value(rows)


# ---- Types and callbacks from installed packages (SPEC T3.5-T3.7, T16.4)
#
# They are found by their entry point names; no input of a connection is ever run, imported or
# looked up as anything but such a name.


def load_plugins(s: Server) -> None:
    """[T3] Load all types and callbacks at startup; skip and log those that fail."""
    for entry in entry_points(group=DRIVERS):
        try:
            load_driver(s, entry)
        except TubeError as error:
            log.error(
                "%(group)s %(name)s: %(reason)s",
                facts(
                    "plugin_refused", group=DRIVERS, name=entry.name, reason=text_of(error).decode()
                ),
            )
    for entry in entry_points(group=CALLBACKS):
        try:
            callback = loaded(entry)
        except TubeError as error:
            log.error(
                "%(group)s %(name)s: %(reason)s",
                facts(
                    "plugin_refused",
                    group=CALLBACKS,
                    name=entry.name,
                    reason=text_of(error).decode(),
                ),
            )
            continue
        s.notices.callbacks[entry.name.encode()] = cast(Callback, callback)


def load_driver(s: Server, entry: EntryPoint) -> None:
    """Register the type of the entry point. Raises TubeError."""
    name = entry.name.encode()
    t = tubes_of(s.n)
    try:
        factory = cast("Callable[[], Driver]", loaded(entry))
        try:
            register_type(s.n, t, name, factory)
        except DriverFailed as failed:
            raise not_loaded(entry, failed.error) from failed.error
    except TubeError as error:
        if name not in t.drivers:
            s.notices.failed[name] = text_of(error)
        raise
    s.notices.failed.pop(name, None)
    s.notices.origins[name] = origin(entry)


def loaded(entry: EntryPoint) -> object:
    """The object of the entry point. Raises TubeError if it fails to load or is not callable."""
    try:
        found: object = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: it ends no node (T3.8)
        raise not_loaded(entry, error) from error
    if not callable(found):
        raise not_loaded(entry, TypeError("it is nothing to call"))
    return found


def not_loaded(entry: EntryPoint, error: BaseException) -> TubeError:
    """The error for the caller; logs the whole of it."""
    log.error(
        "cannot load %(group)s %(name)s",
        facts("plugin_failed", group=entry.group, name=entry.name),
        exc_info=error,
    )
    what = b"driver" if entry.group == DRIVERS else b"callback"
    name = entry.name.encode("utf-8", "backslashreplace")
    return TubeError(NOT_LOADED, (what, name, summary_of(error).encode()))


def origin(entry: EntryPoint) -> str:
    """The origin of a type, for people: module, class and package."""
    package = "" if entry.dist is None else f" ({entry.dist.name} {entry.dist.version})"
    return entry.value + package


def register_installed(s: Server, name: bytes) -> None:
    """[T3] ON register_driver: load a type installed after the start (T3.6). Raises TubeError."""
    importlib.invalidate_caches()
    for entry in entry_points(group=DRIVERS):
        if entry.name.encode() == name:
            load_driver(s, entry)
            log.info(
                "registered the tube type %(type)s: %(origin)s",
                facts("tube_type_registered", type=entry.name, origin=origin(entry)),
            )
            return
    if name in tubes_of(s.n).drivers:
        register_type(s.n, tubes_of(s.n), name, nothing)  # raises the reason
    raise TubeError(NO_DRIVER, (name,))


def nothing() -> Driver:
    """A factory that is never called."""
    raise AssertionError("a type that is there was registered again")


def listing(s: Server, t: Tubes) -> list[list[object]]:
    """[T3] Each type: state, origin, tubes, stopped tubes (T3.7)."""
    counts: dict[bytes, int] = {}
    stopped: dict[bytes, list[list[object]]] = {}
    for tube in t.by_name.values():
        counts[tube.type] = counts.get(tube.type, 0) + 1
        if isinstance(tube.driver, Guarded):
            why = why_stopped(tube.type, tube.driver)
            if why:
                stopped.setdefault(tube.type, []).append([tube.name, why])
    known: dict[bytes, tuple[str, str]] = {}
    for name in t.drivers:
        word = IS_BUILT_IN if name in BUILT_IN else IS_LOADED
        known[name] = (word, s.notices.origins.get(name, ""))
    for entry in entry_points(group=DRIVERS):
        name = entry.name.encode()
        if name not in known:
            known[name] = (IS_FAILED if name in s.notices.failed else IS_INSTALLED, origin(entry))
    for name in counts:
        known.setdefault(name, (IS_MISSING, ""))
    rows: list[list[object]] = []
    for name, (word, where) in known.items():
        why_not = s.notices.failed.get(name, b"") if word == IS_FAILED else b""
        rows.append([name, word, where, counts.get(name, 0), stopped.get(name, []), why_not])
    return rows


# ---- Tubes and connections (SPEC T2, T8, T11, T12, T15, T16)


def create(call: TubeCall) -> None:
    """[T2] Create a tube of that type with these options."""
    s = call.s
    is_tenant = call.caller.is_tenant()
    if is_tenant and len(call.options.on_change) > 0:
        raise TubeError(NO_CALLBACK, (call.options.on_change,))  # N10.4
    check_callback(s, call.options.on_change)
    name, type, o = call.tube or b"", call.options.name or b"", call.options.tube_options()
    if is_tenant:
        check_share(call.t, name, s.n.limits.tubes_max)
    made = claim_tube(s.n, call.t, name, type, o, call.user, call.client, call.serial())
    if made is None:
        call.await_home()  # it asks other nodes (T17.5)
    else:
        call.value(OK)


def check_share(t: Tubes, name: bytes, most: i64) -> None:
    """[N11] Raise TubeError if the tenant has as many tubes as it may (N11.8)."""
    used: i64 = len(t.by_name)
    if used < share_of(most, used, 0) or name in t.by_name:
        return
    prefix = tenant_of(name) + b"/"
    count: i64 = sum([1 for one in t.by_name if one.startswith(prefix)])
    its = share_of(most, used, count)
    if count >= its:
        raise TubeError(TUBES_MAX, (int(count), int(its)))


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
        "delayed": int(tube.delayed_count()),
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
        "failover": int(tube.led_by_votes),
        "implicit": int(tube.is_implicit),
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
    """Schedules, values, groups of jobs and keys of tubes of type tasks (T11.5)."""
    keys = found.keys
    return {
        "tubes_schedules": int(found.schedules),
        "tubes_schedules_fired": 0 if t is None else int(t.schedules_fired),
        "tubes_schedules_late": 0 if t is None else int(t.schedules_late),
        "tubes_values": int(found.values),
        "tubes_values_bytes": int(found.values_bytes),
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
    voters = None if t is None else t.voter_state.in_force()
    state = "" if t is None else own_state(s.n, t, s.idle)
    won = [0] * len(REASONS) if t is None else t.voter_state.won_by
    return {
        "tubes_voters": 0 if voters is None else len(voters.rights),
        "tubes_votes": int(state == "votes"),
        "tubes_vote_state": state,
        "tubes_elections_won": 0 if t is None else int(t.voter_state.elections_won),
        "tubes_elections_lost": 0 if t is None else int(t.voter_state.elections_lost),
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
    call.n.work += len(rows) // LOOKS
    call.value(rows)


def subscribe(call: TubeCall) -> None:
    """[T16] Subscribe; replies with the number of tubes the connection is subscribed to."""
    c = call.caller
    assert isinstance(c, Client)
    if not c.resp3:
        raise ArgError(NEEDS_RESP3)
    call.n.work += len(call.options.names) // LOOKS
    found: list[Tube] = []
    for name in call.options.names:
        found.append(tube_named(call.n, call.t, name))
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
    names = call.options.names or list(c.watched)
    call.n.work += len(names) // LOOKS
    leave_notices(call.s, c, names)
    c.reply(len(c.watched))
