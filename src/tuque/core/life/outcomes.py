"""How a job ends by DONE, and what RESULT and WAITJOB show of it (SPEC W7-W9)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack import ack_job
from tuque.core.copies.ack_gc import (
    hurry,
    on_unknown_ack,
    report_ack,
    retire_concluded,
    unheard,
)
from tuque.core.life.start import end_cancelled
from tuque.core.model.errors import (
    NOJOB,
    NOREACH,
    NOREACH_OWN,
    Refusal,
)
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    BODYLESS,
    Job,
)
from tuque.core.model.task import Task
from tuque.core.model.work import (
    DONE,
    LIVE,
    OUTCOME_NAMES,
    RELEASED,
    Outcome,
)
from tuque.core.node.node import WAIT_OVER, Node, Wake
from tuque.core.node.peers import journal_fails, slots_of
from tuque.core.node.queue import AWAY, SHOWN
from tuque.core.queues.ends import (
    ELSEWHERE_MS,
    conclude_life,
    drop_life,
    keep_claim,
    keep_here,
    life_of,
    note_large,
)
from tuque.core.queues.procedures import policy_of
from tuque.core.queues.requeue import on_enqueue
from tuque.core.queues.work_copies import drop_letters, has_surplus, tell_untold
from tuque.core.tables.work import Asking

HURRY_MS: Final = 50  # until holders are asked again for a client that waits
RESULT: Final = 5  # the place of the result among them
NAMED_MAX: Final = 3  # nodes that NOREACH names


def on_done(n: Node, id: bytes, run: i64, result: bytes | None, client: i64 = -1) -> bool:
    """[W7] ON COMMAND DONE: the job ends, whichever run is named (W7.1)."""
    job = n.jobs.get(id)
    if job is None:
        if len(n.peers) > 1:
            done_elsewhere(n, id, run, result, client)
        return False
    return end_done(n, job, run, result, client)


def end_done(n: Node, job: Job, run: i64, result: bytes | None, client: i64) -> bool:
    """[W7] As `on_done`, of a known job."""
    if isinstance(job, Task):
        return done_task(n, job, run, result, client)
    if job.state == ACKED:
        return False
    work = life_of(n, job.id)
    if work is not None:
        if run == 0 and work.run_state == LIVE:
            run = work.run
        if client == work.client:
            work.run_state = RELEASED  # its worker knows
    n.record_done(job, run)
    report_ack(n, job)
    if work is not None:
        drop_life(n, job, work)
    if n.has_lives:
        conclude_life(n, job, work, DONE, run, result, b"")
    retire_concluded(n, job)
    n.life.in_hand = None
    return True


def done_task(n: Node, task: Task, run: i64, result: bytes | None, client: i64) -> bool:
    """[T48] DONE of a task is an ack with a result (T48.6)."""
    life = life_of(n, task.id)
    caller: i64 = -1 if life is None else life.client
    if life is not None and client == caller:
        life.client = -1  # its worker knows
    work = n.life
    work.result, work.done_run = result, run
    try:
        is_done = ack_job(n, task, client)
    finally:
        work.result, work.done_run = None, 0
    if not is_done and life is not None:
        life.client = caller
    return is_done


def done_elsewhere(n: Node, id: bytes, run: i64, result: bytes | None, client: i64) -> None:
    """[W14] The job is not known here: all nodes are asked, and get the result (W14.6)."""
    is_too_large = False
    work = n.life
    if id not in work.kept and n.ids.knows(id):
        outcome = Outcome(id, DONE, n.now_ms + ELSEWHERE_MS, 0)
        outcome.run = run
        outcome.result = result
        outcome.is_claim = True
        n.has_lives = True
        keep_here(n, outcome)
        is_too_large = result is not None and outcome.result is None
    on_unknown_ack(n, client, id)
    work.in_hand = None
    record = n.jobs.get(id)
    if record is not None:
        keep_claim(n, record)
        if is_too_large and n.others & ~(n.linked | n.forgotten) != 0:
            note_large(n, id)


def on_enqueue_of(n: Node, id: bytes) -> bool:
    """[Q5] ON COMMAND ENQUEUE: not of a job at work (W4.4); a flagged one ends (W8.3)."""
    work = n.life.by_id.get(id)
    if work is not None and work.run_state == LIVE:
        return False
    job = n.jobs.get(id)
    if work is not None and work.is_cancelled and job is not None and job.state == ACTIVE:
        end_cancelled(n, job, work)
        return True
    return on_enqueue(n, id)


# ---- What clients see (SPEC W9, W15.5)


def is_agreed(n: Node, id: bytes) -> bool:
    """[W14] Whether all holders in reach have confirmed the end of the job (W14.4); of a task,
    whether enough nodes have it (T48.6).
    """
    job = n.jobs.get(id)
    if job is not None:
        return job.state == ACKED and unheard(n, job) & n.reachable == 0
    return shows(n, id) == SHOWN


def shows(n: Node, id: bytes) -> i64:
    """[T48] Whether this node may show the kept outcome, if it is one of a task (T48.6)."""
    kept = n.life.known(id)
    policy = n.policy
    if kept is None or policy is None or not kept.is_of_task():
        return SHOWN
    return policy.shows(n, kept)


def is_elsewhere(n: Node, id: bytes) -> bool:
    """Whether this node knows neither the job nor its outcome; an ack is no outcome."""
    job = n.jobs.get(id)
    if job is not None and job.flags & BODYLESS == 0:
        return False
    return n.life.known(id) is None or (job is None and shows(n, id) == AWAY)  # W15.6


def lacks_result(n: Node, id: bytes) -> bool:
    """Whether the job is done, and this node has dropped its result."""
    kept = n.life.known(id)
    return kept is not None and kept.is_stripped()


def silent(n: Node, id: bytes, asking: Asking | None) -> i64:
    """[W15] The members that may have the job, which no other node knows: they are not in reach,
    or did not answer (W15.5). 0: there are none, or the job has ended. Without `asking` nobody
    was asked.
    """
    members = quiet(n, asking)
    if members == 0 or not is_elsewhere(n, id) or n.tombs.is_acked(id) or not n.ids.knows(id):
        return 0
    return 0 if asking is not None and asking.is_settled else members


def quiet(n: Node, asking: Asking | None) -> i64:
    """The members that are not in reach, or have not answered."""
    members = n.others & ~n.forgotten
    return members if asking is None else members & ~(n.linked & (asking.denied | asking.earlier))


def lacking(n: Node, id: bytes, asking: Asking | None) -> i64:
    """[W15] The members that may have the result of a job that is done, which this node or those
    that answered have dropped (W15.10). 0: somebody has it, or it is lost.
    """
    if asking is not None and has_result(asking):
        return 0
    kept = n.life.known(id)
    if kept is None:
        return quiet(n, asking) if asking is not None and asking.is_shared else 0
    if not kept.is_stripped() or not kept.is_shared or not is_agreed(n, id):
        return 0
    return quiet(n, asking)


def has_result(asking: Asking) -> bool:
    """Whether a node has answered with the result."""
    return len(asking.fields) > 0 and asking.fields[RESULT] is not None


def names_of(n: Node, nodes: i64) -> bytes:
    """The ids of nodes, for an error; of many only some (W15.5)."""
    slots = slots_of(nodes)
    names = b", ".join([n.peers[slot].node_id for slot in slots[:NAMED_MAX]])
    if len(slots) > NAMED_MAX:
        names += b" and %d more" % (len(slots) - NAMED_MAX)
    return names


def unknown(n: Node, id: bytes, asking: Asking | None) -> Refusal:
    """Why a job that nobody in reach knows has no result (W9.1, W15.5)."""
    nodes = silent(n, id, asking)
    if nodes == 0:
        return Refusal(NOJOB)
    if journal_fails(n, 0):  # they may not have been asked: J6.6
        return Refusal(NOREACH_OWN)
    return Refusal(NOREACH, (names_of(n, nodes),))


def told_outcome(asking: Asking) -> bytes:
    """The outcome as another node sent it (W15.3)."""
    if not asking.is_settled:
        return b""
    word = asking.fields[0] if len(asking.fields) > 0 else b"gone"
    return word if isinstance(word, bytes) and word != b"dead" else b""


def outcome_of(n: Node, id: bytes) -> bytes:
    """The outcome of a job, b"" while it is open; `gone` if nobody knows it any more (W9.1)."""
    if is_elsewhere(n, id):
        asking = n.life.asking.get(id)
        if asking is not None:
            return told_outcome(asking)
        return b"gone" if silent(n, id, None) == 0 else b""
    if not is_agreed(n, id):
        return b""
    kept = n.life.known(id)
    return b"done" if kept is None else OUTCOME_NAMES[kept.kind]


def shows_death(n: Node, job: Job) -> bool:
    """Whether the death of the job may be seen: of a task only where SYNC asks (T48.8)."""
    return not isinstance(job, Task) or policy_of(n).shows_death(n, job)


def is_settled(n: Node, id: bytes) -> bool:
    """Whether a wait for the job is over: it ended, or is a dead letter (W9.2)."""
    asking = n.life.asking.get(id)
    if asking is not None and is_elsewhere(n, id):
        return asking.is_settled
    if len(outcome_of(n, id)) > 0:
        return True
    life = life_of(n, id)
    if life is None or not life.is_dead:
        return False
    job = n.jobs.get(id)
    return job is not None and shows_death(n, job)


def watch(n: Node, client: i64, ids: list[bytes], until_ms: i64) -> None:
    """[W9] The client waits for the jobs; what is not confirmed yet is asked for (W14.13)."""
    n.has_lives = True
    for id in ids:
        job = n.jobs.get(id)
        if job is not None and job.state == ACKED:
            hurry(n, job, HURRY_MS)
    n.life.watch(client, ids, until_ms)


def lives_tick(n: Node) -> None:
    """[W7, W9] TIMER: drop outcomes whose time is over; end waits (W9.3)."""
    if not n.has_lives:
        return
    tell_untold(n)
    drop_letters(n)
    n.life.forget_old(n.now_ms, n.limits.results_bytes)
    for client in n.life.late(n.now_ms):
        n.wakes.append(Wake(client, WAIT_OVER, [], 0))


def lives_next_ms(n: Node) -> i64:
    """The instant at which `lives_tick` next has work."""
    if n.life.kept_bytes > n.limits.results_bytes and len(n.life.kept) > 0:
        return n.now_ms
    if n.life.dead_bytes > n.limits.dead_bytes and has_surplus(n):
        if n.life.drop_ms <= n.now_ms:
            return n.now_ms  # a bound was lowered
        return min(n.life.drop_ms, n.life.next_ms())
    return n.life.next_ms()
