"""Sessions have tasks, over one or several connections (SPEC T8)."""

from hashlib import shake_128
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import BAD_UUID, UNKNOWN_UUID
from tuque.core.model.task import TAKEN
from tuque.core.model.timers import PIECE
from tuque.core.msgs.records import SessionRow
from tuque.core.node.node import Node
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tubes import (
    FOR_EVER,
    SESSION_BYTES,
    Session,
    Tubes,
)
from tuque.tubes.work.transitions import give_back

RELEASE_MOST: Final = 2 * PIECE  # tasks of ended sessions released per turn


def session_for(n: Node, t: Tubes, client: i64, user: bytes = b"") -> Session:
    """The client's session, created if it has none (T8.1)."""
    last = t.last_session
    if last is not None and client == t.last_client:
        return last
    session = t.by_client.get(client)
    if session is None:
        session = make_session(n, t, user)
        session.clients[client] = None
        t.by_client[client] = session
    t.last_client = client
    t.last_session = session
    return session


def make_session(n: Node, t: Tubes, user: bytes) -> Session:
    """A new session with a random uuid of version 4."""
    t.session_serial += 1
    raw = shake_128(b"session %d " % t.session_serial + t.seed).digest(16)
    # little-endian groups: version and variant are in bytes 7 and 8
    uuid = raw[:7] + bytes([raw[7] & 0x0F | 0x40, raw[8] & 0x3F | 0x80]) + raw[9:]
    session = Session(t.session_serial, uuid, user)
    enter_session(t, session)
    record_session(n, t, session, False)
    return session


def record_session(n: Node, t: Tubes, session: Session, is_over: bool) -> None:
    """Record a session that may outlive a restart (T14.3)."""
    if n.records is not None and t.in_replicaset:
        n.records.put(
            SessionRow(session.number, session.until_ms, is_over, session.uuid, session.user)
        )


def enter_session(t: Tubes, session: Session) -> None:
    """Add the session to the tables."""
    t.sessions[session.number] = session
    t.by_uuid[session.uuid] = session
    t.bytes_used += SESSION_BYTES


def session_of(t: Tubes, client: i64) -> Session | None:
    """The session of that connection, or None."""
    return t.by_client.get(client)


def identify(n: Node, t: Tubes, client: i64, user: bytes, uuid: bytes | None) -> bytes:
    """[T8] ON identify: the session's uuid; if one is given, the connection joins that session.

    Raises TubeError for an invalid or unknown uuid, and for another user's (T8.3).
    """
    if uuid is None:
        return session_for(n, t, client, user).uuid
    if len(uuid) != 16:
        raise TubeError(BAD_UUID)
    session = t.by_uuid.get(uuid)
    if session is None or session.user != user or len(session.leaving) > 0:
        raise TubeError(UNKNOWN_UUID, (dashed(uuid),))
    if t.by_client.get(client) is not session:
        leave(n, t, client)
        t.last_session = None
        session.clients[client] = None
        session.until_ms = FOR_EVER
        t.by_client[client] = session
    return session.uuid


def dashed(uuid: bytes) -> bytes:
    """The uuid as text; its first three groups are little-endian."""
    h = (uuid[3::-1] + uuid[5:3:-1] + uuid[7:5:-1] + uuid[8:]).hex().encode()
    return h[:8] + b"-" + h[8:12] + b"-" + h[12:16] + b"-" + h[16:20] + b"-" + h[20:]


def on_client_gone(n: Node, t: Tubes, client: i64) -> None:
    """[T8] ON disconnect: waiting puts are dropped, the connection leaves its session."""
    forget_puts(t, client)
    leave(n, t, client)


def forget_puts(t: Tubes, client: i64) -> None:
    """Drop the connection's waiting puts (T7.3)."""
    for tube in t.by_name.values() if len(t.put_ends) > 0 else []:
        if len(tube.putters) > 0:
            for putter in tube.putters:
                if putter.client == client and not putter.is_over:
                    t.end_put(tube, putter)
            while len(tube.putters) > 0 and tube.putters[0].is_over:
                tube.putters.popleft()


def leave(n: Node, t: Tubes, client: i64) -> None:
    """The connection leaves its session; after the last one its tasks are released (T8.2)."""
    session = t.by_client.pop(client, None)
    t.last_session = None
    if session is None:
        return
    session.clients.pop(client, None)
    if len(session.clients) > 0:
        return
    if t.ttr_ms == 0:
        end_session(n, t, session)
    else:
        session.until_ms = n.now_ms + t.ttr_ms
        heappush(t.session_ends, (session.until_ms, session.number))


def end_session(n: Node, t: Tubes, session: Session) -> None:
    """End the session: release its tasks in the order of (tube, number) (T8.2)."""
    t.last_session = None
    numbers: dict[bytes, list[int]] = {}  # plain numbers: sorting many takes little time
    for task in session.taken.values():
        of_tube = numbers.get(task.queue)
        if of_tube is None:
            of_tube = numbers[task.queue] = []
        of_tube.append(task.number)
    found: list[tuple[int, bytes]] = []
    for name in numbers:
        tube = t.by_name.get(name)
        if tube is not None:
            found.append((tube.number, name))
    found.sort()
    for _, name in found:
        of_tube = numbers[name]
        of_tube.sort()
        tasks = t.by_name[name].tasks
        for number in of_tube:
            held = tasks.get(number)
            if held is not None:
                session.leaving.append(held)
    if len(session.leaving) <= PIECE:
        release_some(n, t, session, len(session.leaving))
    else:
        t.sessions_over.append(session)


def release_some(n: Node, t: Tubes, session: Session, most: i64) -> bool:
    """Release the next tasks of an ended session; True: all released, session removed."""
    end: i64 = min(session.left + most, len(session.leaving))
    if end == len(session.leaving):
        del t.sessions[session.number]
        del t.by_uuid[session.uuid]
        record_session(n, t, session, True)
        t.bytes_used -= SESSION_BYTES
    while session.left < end:
        task = session.leaving[session.left]
        session.left += 1
        tube = t.by_name.get(task.queue)
        if tube is None or tube.tasks.get(task.number) is not task:
            continue
        if task.status == TAKEN and task.owner == session.number:
            if tube.shift is None:
                give_back(n, t, tube, task)
            else:
                tube.shift.orphans.append(task)  # T19.6: released when the tube runs
    return session.left == len(session.leaving)


def sessions_tick(n: Node, t: Tubes) -> None:
    """End sessions whose time without connections is over."""
    while len(t.session_ends) > 0 and t.session_ends[0][0] <= n.now_ms:
        until_ms, number = heappop(t.session_ends)
        session = t.sessions.get(number)
        if session is not None and session.until_ms == until_ms and len(session.leaving) == 0:
            end_session(n, t, session)
    if len(t.sessions_over) > 0:
        over = t.sessions_over[0]
        before = over.left
        if release_some(n, t, over, RELEASE_MOST):
            t.sessions_over.pop(0)
        n.work += over.left - before
