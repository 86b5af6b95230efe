"""Housekeeping at the end of turns: idle clients, memory, events, tubes (SPEC C2, E3, M2, M3)."""

from __future__ import annotations

import ctypes
from typing import Final

from mypy_extensions import i64

from tuque.core.model.timers import NEVER_MS
from tuque.core.queues.procedures import FAR, letters_in_way, memory_level, on_memory_level
from tuque.core.repair.drain import make_room
from tuque.logtext import facts
from tuque.server.access.change import watch_users
from tuque.server.commands.firing import check_groups, run_schedules
from tuque.server.commands.tube_leaders import reply_leaders, send_watchers_away
from tuque.server.journal.thread import Note
from tuque.server.log.log import say_once, warn_once
from tuque.server.log.slowlog import look
from tuque.server.loop.fairness import is_stranger
from tuque.server.replies.tubes import tell_puts, tell_puts_resp
from tuque.server.replies.waiting import tell_synced
from tuque.server.state.client import Client, Connection, Wired, weigh
from tuque.server.state.notices import tell_changes
from tuque.server.state.server import EVENTS, Server, log
from tuque.tubes.policy import tubes_of

SHRINK_JOBS = 1_000  # a smaller table is not worth shrinking
EVENT_BYTES = 200  # per buffered event
STRANGER_REPLY_BYTES = 65_536  # unread by a client that has not logged in (C2.9)
MONITOR_BYTES = 8 << 20  # unread by a client in MONITOR (C7.11)
CONFLICTS_MS = 1_000  # between two log lines about outcomes that met
MEMORY_MS = 5_000  # between two log lines about memory
QUIET_MS = 60_000  # without a drop: the memory is no longer short
EVICT_PER_ROUND = 1_000  # records dropped in one round
LEVELS = (
    "all is well",
    "no new jobs are taken here",
    "delivered at-most-once jobs, results and details of dead letters are dropped, oldest first",
    "what adds jobs is refused, what does or ends work is not",
)
IN_WAY = ": without its dead letters this node would take jobs, replay or purge them"
CLIENT_BYTES = 3_000  # an idle connection: objects, reader, socket

EVICT_SHARE: Final = 8  # clients are closed until this part of their memory is free
EVICT_MIN: Final = 1_024  # one that holds less frees nothing

EVENTS_MS: Final = 20  # an event waits at most this long in memory (E3.2)


def run_housekeeping(s: Server) -> None:
    """[C2] Close clients past a deadline and take samples.

    With many clients each round checks some of them: with 10,000 a deadline is seen 2 s late.
    """
    now_ms = s.n.now_ms
    heard_ms = now_ms - s.idle_close_ms if s.idle_close_ms > 0 else 0
    late = s.client_check.next(s.clients, heard_ms)
    if len(s.wired) > 0:
        late += s.wired_check.next(s.wired, heard_ms)
    for c in late:
        reason = overdue(s, c, now_ms)
        if reason:
            warn_once(now_ms, c.address, reason)
            s.doomed.append(c)
    buffers = (len(s.clients) + len(s.wired)) * CLIENT_BYTES
    buffers += s.slowlog.bytes + s.workers.bytes + s.watch.bytes_used()
    if s.workers.look_ms <= now_ms and len(s.workers.by_name) + len(s.workers.early) > 0:
        s.workers.drop_lost(now_ms)
    if s.n.events is not None:
        buffers += s.n.events.pending_rows() * EVENT_BYTES
    if s.committer is not None:
        buffers += s.committer.waiting_bytes()
    if s.bus is not None:
        buffers += s.bus.waiting_bytes()
    s.n.other_bytes = buffers
    if memory_level(s.n) > 0:
        make_room(s.n, EVICT_PER_ROUND)  # M3.5
    on_memory_level(s.n)
    tell_conflicts(s)
    tell_level(s)
    log_dropped(s)
    watch_users(s)
    if s.audit is not None and s.audit.error:
        say_once(now_ms, "audit: %(reason)s", facts("audit_failed", reason=s.audit.error))
    s.figures.sample(now_ms)
    look(s)
    live = len(s.n.jobs)
    s.jobs_peak = max(s.jobs_peak, live)
    if s.jobs_peak > SHRINK_JOBS and live < s.jobs_peak // 4:
        give_back(s)
        s.jobs_peak = live


def tell_conflicts(s: Server) -> None:
    """[W14] Log that two outcomes of one job met, once a second at most (W14.15)."""
    work = s.n.life
    if work.conflicts == s.conflicts_told or s.n.now_ms < s.conflicts_ms:
        return
    log.info(
        "%(count)d jobs ended in two ways at two nodes, last %(job)s: done wins over "
        "cancelled, and of two results that of the earlier run",
        facts(
            "outcomes_met",
            count=work.conflicts - s.conflicts_told,
            job=work.conflict_id.decode("ascii", "replace"),
        ),
    )
    s.conflicts_told = work.conflicts
    s.conflicts_ms = s.n.now_ms + CONFLICTS_MS


def tell_level(s: Server) -> None:
    """[M2] Log a memory level that was reached, or left for some time (M2.5)."""
    n = s.n
    level = memory_level(n)
    if level == s.level_told or (level < s.level_told and n.now_ms < s.level_ms):
        return
    used, limit = int(n.counted_bytes()), int(n.limits.memory_bytes)
    meaning = LEVELS[level] + (IN_WAY if letters_in_way(n) > 0 else "")
    if level > s.level_told:
        work = n.life
        log.warning(
            "memory level %(memory_level)d: %(used)d of %(limit)d bytes are used, "
            "%(jobs)d by jobs, %(results)d by results, %(letters)d by dead letters: %(meaning)s",
            facts(
                "memory_short",
                memory_level=int(level),
                used=used,
                limit=limit,
                jobs=int(n.job_bytes),
                results=int(work.kept_bytes),
                letters=int(work.dead_bytes),
                meaning=meaning,
            ),
        )
    else:
        log.info(
            "memory level %(memory_level)d again: %(used)d of %(limit)d bytes are used: "
            "%(meaning)s",
            facts("memory_back", memory_level=int(level), used=used, limit=limit, meaning=meaning),
        )
    s.level_told = level
    s.level_ms = n.now_ms + MEMORY_MS


def log_dropped(s: Server) -> None:
    """[M3, W7] Log when results and details begin to go (M3.6), and which were too large (W7.4)."""
    lives = s.n.life
    thinned = lives.results_thinned + lives.details_thinned
    if thinned != s.thinned_seen:
        if s.dropped_ms == 0:
            log.warning(
                "memory is short: results and details of dead letters are dropped, oldest first; "
                "the outcomes and the jobs stay",
                extra=facts("memory_dropping"),
            )
        s.thinned_seen = thinned
        s.dropped_ms = s.n.now_ms + QUIET_MS
    elif 0 < s.dropped_ms <= s.n.now_ms:
        log.info(
            "memory was short: %(count)d results and details of dead letters were dropped",
            facts("memory_dropped", count=int(thinned - s.thinned_told)),
        )
        s.thinned_told = thinned
        s.dropped_ms = 0
    if lives.results_large != s.large_told and s.n.now_ms >= s.large_ms:
        log.warning(
            "%(count)d results were larger than results-max-bytes and are not kept, "
            "the last one of %(job)s",
            facts(
                "results_too_large",
                count=int(lives.results_large - s.large_told),
                job=lives.large_id.decode("ascii", "replace"),
            ),
        )
        s.large_told = lives.results_large
        s.large_ms = s.n.now_ms + MEMORY_MS


def give_back(s: Server) -> None:
    """Free memory of a past peak: neither tables nor the heap shrink by themselves (M1.3)."""
    s.n.jobs = dict(s.n.jobs)
    s.n.delivered_amo = dict(s.n.delivered_amo)
    if TRIM is not None:
        TRIM(0)


def find_trim() -> ctypes._NamedFuncPointer | None:
    """glibc's malloc_trim; None elsewhere."""
    try:
        found: ctypes._NamedFuncPointer = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found


TRIM = find_trim()
MMAP_THRESHOLD: Final = -3  # numbers of glibc's mallopt
TRIM_THRESHOLD: Final = -1
LARGE: Final = 128 << 10  # blocks from this size on go back to the system when they are freed
TOP: Final = 16 << 20  # so much may stay free at the end of the heap


def settle_heap() -> None:
    """[M1] Large blocks never come from the heap, where what is freed between small ones stays
    (M1.7). By default glibc raises the limit to the size of what was freed, up to 32 MB.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(MMAP_THRESHOLD, LARGE)
    mallopt(TRIM_THRESHOLD, TOP)


def leaves_too_much(s: Server, c: Connection) -> bool:
    """[C2.6] Whether unread replies exceed the hard limit; notes when they passed the soft one."""
    waiting = c.wire_bytes + c.held_bytes
    if waiting > STRANGER_REPLY_BYTES and is_stranger(s, c):
        warn_once(s.n.now_ms, c.address, "its replies are unread, and it has not logged in")
        s.figures.strangers_closed += 1
        return True
    if waiting > MONITOR_BYTES and isinstance(c, Client) and c.is_monitor:
        warn_once(s.n.now_ms, c.address, "it monitors, and does not read")
        s.figures.output_closed += 1
        return True  # C7.11
    waiting -= c.longest  # a body that a client was given to read is no reason to close it
    if 0 < s.out_hard < waiting:
        warn_once(s.n.now_ms, c.address, passed_hard(s, c))
        s.figures.output_closed += 1
        return True
    if 0 < s.out_soft < waiting:
        if c.soft_since_ms == 0:
            c.soft_since_ms = s.n.now_ms
    else:
        c.soft_since_ms = 0
    return False


def passed_hard(s: Server, c: Connection) -> str:
    """Why the connection is closed: no figure that differs each time, for it is logged once."""
    text = "its unread replies pass the hard limit of client-output-buffer-limit"
    last = f"; its last command was {c.command.upper()}" if isinstance(c, Client) else ""
    return f"{text} ({s.out_hard} bytes){last}"


# ---- What all clients hold together has a bound (SPEC M5)


def held_by(s: Server, c: Connection) -> i64:
    """[M5] Bytes that the connection holds: its buffers, and what it waits for (M5.1)."""
    n = s.n
    weigh(n, c)
    held = c.weight + n.life.watch_size(c.number)
    waits = list(c.takes) if isinstance(c, Wired) else [int(c.number)]
    for number in waits:
        waiter = n.waiters.get(number)
        if waiter is not None:
            held += waiter.bytes_used
    if n.policy is not None:
        held += tubes_of(n).puts_of.get(c.number, 0)
    return held


def home_of(c: Connection) -> bytes:
    """The tenant of the connection's user; empty: of none."""
    account = c.user if isinstance(c, Client) else None
    if isinstance(c, Wired):
        account = c.user.account
    return b"" if account is None else account.tenant


def evict_clients(s: Server) -> None:
    """[M5] Clients hold more than `maxmemory-clients`: close the largest of the tenant that holds
    most, until an eighth is free (M5.3).
    """
    n = s.n
    by_home: dict[bytes, list[tuple[int, int, Connection]]] = {}
    sums: dict[bytes, int] = {}
    everyone: list[Connection] = [*s.clients.values(), *s.wired.values()]
    for c in everyone:
        held = held_by(s, c)
        home = home_of(c)
        by_home.setdefault(home, []).append((int(held), int(c.number), c))
        sums[home] = sums.get(home, 0) + int(held)
    for rows in by_home.values():
        rows.sort(key=by_size)
    most = n.limits.clients_bytes
    left: i64 = sum(sums.values())
    while left > most - most // EVICT_SHARE and len(sums) > 0:
        home = max(sums, key=sums.__getitem__)
        size, _, c = by_home[home].pop()
        if size < EVICT_MIN:
            break  # what is left are connections, which have a bound of their own
        warn_once(n.now_ms, c.address, f"clients hold more than maxmemory-clients, it {size} bytes")
        s.figures.evicted += 1
        s.doomed.append(c)
        left -= size
        sums[home] -= size
        if len(by_home[home]) == 0:
            del sums[home]


def by_size(row: tuple[int, int, Connection]) -> tuple[int, int]:
    """The order of connections: the largest, and of these the newest, last."""
    return row[:2]


def note_many(s: Server, c: Connection, most: int) -> None:
    """[N6.6] Log that the client is closed: it has sent more commands than that."""
    warn_once(s.n.now_ms, c.address, f"more than {most} commands before its log-in")
    s.figures.strangers_closed += 1


def overdue(s: Server, c: Connection, now_ms: int) -> str:
    """Why the client must be closed now; empty if it may stay."""
    if s.half_close_ms > 0 and c.half_since_ms > 0:
        is_late = now_ms - c.half_since_ms > s.half_close_ms
        if is_late and not c.is_waiting() and not c.is_busy():
            s.figures.deadline_closed += 1
            return f"half a command for more than {s.half_close_ms // 1000} s"
    is_late = 0 < s.login_ms < now_ms - c.stranger_ms and c.line_ms == 0
    if is_late and c.stranger_ms > 0 and is_stranger(s, c):
        s.figures.strangers_closed += 1
        return f"it has not logged in for {s.login_ms // 1000} s"  # N6.4
    if c.soft_since_ms > 0 and now_ms - c.soft_since_ms > s.out_soft_ms:
        s.figures.output_closed += 1
        seconds = s.out_soft_ms // 1000
        return f"more than {s.out_soft} bytes unread for {seconds} s (client-output-buffer-limit)"
    if s.idle_close_ms > 0 and not c.is_waiting() and not c.is_busy():
        if isinstance(c, Client) and c.is_monitor:
            return ""
        if now_ms - c.last_ms > s.idle_close_ms:
            return f"idle for more than {s.idle_close_ms // 1000} s"
    return ""


def log_notes(notes: list[Note]) -> None:
    """Write the journal's notes to the log: failures as errors (J6.1)."""
    for note in notes:
        if note.is_failure:
            log.error("%(text)s", facts("journal_failed", text=note.text))
        else:
            log.info("%(text)s", facts("journal_note", text=note.text))


def log_room(is_short: bool, free_bytes: int) -> None:
    """[J6.9] Log that the disk takes no more jobs, or does again."""
    if is_short:
        log.error(
            "the disk has %(bytes)d bytes free: jobs are refused with -DISKFULL",
            facts("disk_short", bytes=free_bytes),
        )
        return
    log.info(
        "the disk has %(bytes)d bytes free: jobs are taken again",
        facts("disk_has_room", bytes=free_bytes),
    )


def log_cut_off(address: str, held_bytes: int, reason: str) -> None:
    """[J6.7] Log why a connection is closed whose replies wait for the journal."""
    log.warning(
        "closing %(address)s: %(bytes)d bytes of replies wait for the journal, "
        "which fails: %(reason)s",
        facts("client_cut_off", address=address, bytes=held_bytes, reason=reason),
    )


# ---- Events of a turn, and when they are flushed (SPEC E3)


def tell_events(s: Server, seq: i64, binding_seq: i64) -> None:
    """[E3.1] Pass events on once their turn's records are as durable as replies require."""
    events = s.n.events
    assert events is not None and s.eventlog is not None
    durable: i64 = FAR
    if s.committer is not None and (seq >= 0 or len(s.journal_error) > 0):
        is_failing = len(s.journal_error) > 0
        durable = s.committer.durable_seq if is_failing else s.committer.open_seq
        events.hold(binding_seq)
    else:
        events.hold(0)
    at_ms = s.alarms.at(EVENTS)
    if at_ms == NEVER_MS and events.open.rows > 0:
        at_ms = s.n.now_ms + EVENTS_MS
    is_due = at_ms <= s.n.now_ms
    if is_due:
        events.cut()
    if is_due or events.is_ready(durable):
        s.eventlog.flush(events, durable)
        at_ms = s.n.now_ms + EVENTS_MS if events.pending_rows() > 0 else NEVER_MS
    s.alarms.set(EVENTS, at_ms)


# ---- The end of a turn for tubes: replies that are due, messages to other nodes


def end_turn(s: Server) -> None:
    """Send the replies and notices that are due, and changes to other nodes (T18.2)."""
    n = s.n
    if n.policy is None:
        return
    t = tubes_of(n)
    if len(t.due) > 0:
        run_schedules(s, t)
    if len(t.members_due) > 0:
        check_groups(s, t)
    tell_puts_resp(s, t)
    tell_puts(s, t)
    if len(s.syncing) > 0:
        tell_synced(s, t)
    t.synced_changed = False
    if len(t.notes) + len(t.news) + len(t.home_done) > 0:
        reply_leaders(s, t)
    if len(t.told) > 0:
        tell_changes(s, t)
    if len(s.notices.watchers) > 0:
        send_watchers_away(s, t)
    t.turn_end(n)


def next_turn_ms(s: Server) -> i64:
    """When a turn has work here without any input, but for what has an alarm."""
    if s.n.policy is None:
        return NEVER_MS
    t = tubes_of(s.n)
    if len(t.told) > 0 or len(t.home_done) > 0 or len(t.due) + len(t.members_due) > 0:
        return s.n.now_ms
    return NEVER_MS


def has_left(s: Server) -> bool:
    """Whether connections closed at the end of a turn left work.

    The tasks of a session are released with its last connection (T8.2).
    """
    records = s.n.records
    if len(s.n.ready) > 0:
        return True
    return records is not None and records.count > 0 and s.committer is not None
