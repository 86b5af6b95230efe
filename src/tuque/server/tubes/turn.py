"""The end of a turn for tubes: replies that are due, messages to other nodes."""

from mypy_extensions import i64

from tuque.core.queues.procedures import FAR
from tuque.server.groups.looking import look_at_groups
from tuque.server.replies.iproto_replies import tell_puts
from tuque.server.replies.tube_replies import tell_puts_resp
from tuque.server.replies.tube_sync import next_sync_ms, tell_synced
from tuque.server.schedules.firing import run_schedules
from tuque.server.state.state import Server
from tuque.server.state.tube_notices import tell_changes
from tuque.server.tubes.homes import send_watchers_away, tell_homes
from tuque.tubes.policy import tubes_of


def end_turn(s: Server) -> None:
    """Send the replies and notices that are due, and changes to other nodes (T18.2)."""
    n = s.n
    if n.policy is None:
        return
    t = tubes_of(n)
    if len(t.due) > 0:
        run_schedules(s, t)
    if len(t.members_due) > 0:
        look_at_groups(s, t)
    tell_puts_resp(s, t)
    tell_puts(s, t)
    if len(s.syncing) > 0:
        tell_synced(s, t)
    t.synced_changed = False
    if len(t.notes) + len(t.news) + len(t.home_done) > 0:
        tell_homes(s, t)
    if len(t.told) > 0:
        tell_changes(s, t)
    if len(s.notices.watchers) > 0:
        send_watchers_away(s, t)
    t.turn_end(n)


def next_turn_ms(s: Server) -> i64:
    """When a turn has work here without any input."""
    if s.n.policy is None:
        return FAR
    t = tubes_of(s.n)
    if len(t.told) > 0 or len(t.home_done) > 0 or len(t.due) + len(t.members_due) > 0:
        return s.n.now_ms
    return next_sync_ms(s) if len(s.syncing) > 0 else FAR


def has_left(s: Server) -> bool:
    """Whether connections closed at the end of a turn left work.

    The tasks of a session are released with its last connection (T8.2).
    """
    records = s.n.records
    if len(s.n.ready) > 0:
        return True
    return records is not None and records.count > 0 and s.committer is not None
