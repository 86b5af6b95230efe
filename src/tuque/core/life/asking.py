"""RESULT, WAITJOB and CANCEL at a node without the job: it asks all others (SPEC W15)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.endings import tell_watchers
from tuque.core.life.change import UNKNOWN, on_cancel
from tuque.core.life.outcomes import is_elsewhere, is_settled, result_fields
from tuque.core.msgs.bus import JobAsk, JobTold
from tuque.core.node.node import Node
from tuque.core.node.slots import say
from tuque.core.state.lives import Asking

LOOK: Final = 1
CANCEL: Final = 2

AGAIN_MS: Final = 1_000  # between two questions about one job
ASKED_MAX: Final = 1_000  # jobs asked about at once


def may_ask(n: Node, id: bytes) -> bool:
    """Whether another node may know the job, which this one does not (W15.1)."""
    if not is_elsewhere(n, id):
        return False
    if len(n.peers) == 1 or len(n.life.asking) >= ASKED_MAX:
        return False
    return n.linked != 0 and n.ids.knows(id)


def ask(n: Node, id: bytes, what: i64, reason: bytes = b"") -> None:
    """[W15] Ask all other nodes about the job; a client waits for it (W15.1)."""
    asking = n.life.asking.get(id)
    if asking is None or asking.what != what:
        asking = Asking(what, reason)
        n.life.asking[id] = asking
        send(n, id, asking)


def send(n: Node, id: bytes, asking: Asking) -> None:
    """One round of questions."""
    asking.next_ms = n.now_ms + AGAIN_MS
    asking.denied = 0
    message = JobAsk(id, int(asking.what), asking.reason)
    for peer in n.peers:
        if peer.slot != 0 and peer.is_linked and peer.has_room:
            say(n, peer.slot, message)


def on_job_ask(n: Node, slot: i64, m: JobAsk) -> None:
    """[W15] ON RECV ASK about one job: reply what this node knows (W15.2)."""
    told = JobTold(m.id, not is_elsewhere(n, m.id) and not n.is_loading, 0, False)
    if told.is_known and m.what == CANCEL:
        became, _, change = on_cancel(n, m.id, m.reason)
        if change is not None:
            change.slots.append(int(slot))  # gets the reply when it is over
            return
        told.became = int(became)
    elif told.is_known:
        fields, _ = result_fields(n, m.id)
        if fields is None:
            told.is_known = False
        else:
            told.is_settled = is_settled(n, m.id)
            told.fields = field_values(fields)
    say(n, slot, told)


def field_values(fields: dict[str, object]) -> list[bytes | int | None]:
    """The values of RESULT, in their order."""
    values: list[bytes | int | None] = []
    for value in fields.values():
        if value is None or isinstance(value, (bytes, int)):
            values.append(value)
    return values


def on_job_told(n: Node, slot: i64, m: JobTold) -> None:
    """[W15] ON RECV TOLD: an answer about a job that clients here ask for (W15.3)."""
    asking = n.life.asking.get(m.id)
    if asking is None:
        return
    if m.is_known:
        if asking.what == CANCEL:
            if asking.became == UNKNOWN or i64(m.became) < asking.became:
                asking.became = m.became
        elif len(m.fields) == FIELDS and (not asking.is_settled or m.is_settled):
            asking.fields = list(m.fields)
            asking.is_settled = m.is_settled
        asking.is_told = True
    else:
        asking.denied |= 1 << slot
        if n.linked & ~asking.denied & ~1 == 0 and not asking.is_told:
            asking.is_told = True
            asking.is_settled = True  # nobody knows it
            asking.fields = []
    if asking.is_told and m.id in n.life.watchers:
        tell_watchers(n, m.id)


FIELDS: Final = 10  # of RESULT


def asking_tick(n: Node) -> None:
    """[W15] TIMER: ask again while a client waits (W15.4)."""
    for id in list(n.life.asking):
        asking = n.life.asking[id]
        if id not in n.life.watchers:
            del n.life.asking[id]
        elif asking.next_ms <= n.now_ms:
            asking.is_told = False
            send(n, id, asking)


def asking_next_ms(n: Node, at_ms: i64) -> i64:
    """The instant of the next question, if it is before `at_ms`."""
    for asking in n.life.asking.values():
        if asking.next_ms < at_ms:
            at_ms = asking.next_ms
    return at_ms
