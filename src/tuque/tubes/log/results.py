"""How tasks ended, as part of what the leader sends to its followers (SPEC T48.6).

The outcome of a task is kept with those of jobs (core/tables/work.py), at the leader and at each
follower, for KEEP. Here is what goes to followers, what they do with it, and which node may show
it.
"""

from mypy_extensions import i64

from tuque.core.model.stats import tenant_of
from tuque.core.model.task import FAR, Task
from tuque.core.model.work import Outcome
from tuque.core.node.node import Node
from tuque.core.node.queue import AWAY, NOT_YET, SHOWN
from tuque.core.queues.ends import look_again
from tuque.core.records.jobs import Records
from tuque.tubes.log.leader import copies_needed, synced, votes_needed
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes


def note_end(n: Node, tube: Tube, task: Task) -> None:
    """The task ended with the change `tube.seq`, here at its leader."""
    outcome = n.life.kept.get(task.id)
    if outcome is None or not outcome.is_of_task():
        return
    outcome.change = tube.seq
    if n.others != 0 and (tube.sync > 1 or tube.by_majority):
        tube.ends_due.append((int(tube.seq), task.id))


def shows(n: Node, t: Tubes, outcome: Outcome) -> i64:
    """[T48] Whether this node may show the outcome now (T48.6)."""
    tube = t.by_name.get(outcome.queue)
    if tube is None or tube.is_temporary:
        return SHOWN
    needed = copies_needed(n, t, tube)
    if tube.is_mine:
        if needed <= 1:
            return SHOWN
        change = max(outcome.change, tube.begin_seq, tube.loaded_seq)
        return SHOWN if change <= synced(n, t, tube) else NOT_YET
    if needed > 2 or not tube.is_complete or tube.copy_epoch != tube.epoch:
        return AWAY
    voters = t.voter_state.list_of(tube)
    if voters is None:
        return SHOWN
    had: i64 = len([one for one in (tube.home, n.node_id) if one in voters.rights])  # T27.7
    return SHOWN if had >= votes_needed(tube, voters) else AWAY


def settle_ends(n: Node, t: Tubes, tube: Tube) -> None:
    """[T48] Followers have confirmed changes: wake who waits for the ends that may be shown now."""
    due = tube.ends_due
    if len(due) == 0:
        return
    done = synced(n, t, tube) if tube.is_mine else FAR
    while len(due) > 0 and due[0][0] <= done:
        _, id = due.popleft()
        look_again(n, id)


def record_outcome(n: Node, tube: Tube, number: i64, records: Records) -> None:
    """Write the outcome of the task that had this number, if it is kept."""
    outcome = n.life.kept_in(tube.name, number)
    if outcome is not None and outcome.until_ms > n.now_ms:
        records.outcome(outcome)


def ended_numbers(n: Node, tube: Tube) -> list[int]:
    """The numbers of the tasks whose outcomes are kept here."""
    ended = n.life.ended_in.get(tube.name)
    return [] if ended is None else list(ended)


def keep_end(n: Node, outcome: Outcome, jump_ms: i64) -> None:
    """[T48] Keep the outcome that the leader sent; a stale one of this node goes (T48.6)."""
    outcome.until_ms = max(1, outcome.until_ms + jump_ms)
    outcome.ended_ms = max(1, outcome.ended_ms + jump_ms)
    outcome.move(jump_ms)
    old = n.life.kept.get(outcome.id)
    if old is not None:
        if not old.is_claim and (old.kind, old.run, old.number) == (
            outcome.kind,
            outcome.run,
            outcome.number,
        ):
            return  # a scan sends it again
        n.life.forget(outcome.id)
    outcome.tenant = tenant_of(outcome.queue)
    n.has_lives = True
    n.life.keep(outcome, n.limits.results_bytes)
    n.life.forget_old(n.now_ms, n.limits.results_bytes)  # W7.4
    if n.records is not None:
        n.records.outcome(outcome)
    look_again(n, outcome.id)


def drop_end(n: Node, id: bytes) -> None:
    """[T48] The task is there after all: a leader that was lost had ended it (T48.6)."""
    outcome = n.life.kept.get(id)
    if outcome is not None:
        n.life.forget(id)
        if n.records is not None:
            n.records.outcome(Outcome(id, outcome.kind, 0, 0))
