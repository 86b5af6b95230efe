"""Dead letters: listed, shown, counted, replayed and purged (SPEC W12)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.holders import place_of
from tuque.core.model.job import ACKED, Job
from tuque.core.model.work import Life
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of, look_again
from tuque.core.records.events import REPLAYED
from tuque.core.work import rules

REPLAY: Final = 1
PURGE: Final = 2

LOOK_MAX: Final = 1_000  # letters looked at in one call


@final
class Filter:
    """Which dead letters a command means; globs are matched by the caller's function."""

    def __init__(self) -> None:
        self.reason = b""  # globs; empty: any
        self.task = b""
        self.cause = b""
        self.since_ms: i64 = 0


@final
class Letter:
    """One dead letter."""

    def __init__(self, job: Job, life: Life) -> None:
        self.job = job
        self.life = life


def letters_from(n: Node, queue: bytes, cursor: i64, most: i64) -> list[Letter]:
    """Up to `most` dead letters of the queue with a later serial than the cursor, oldest first."""
    found: list[Letter] = []
    letters = n.life.letters.get(queue)
    if letters is None:
        return found
    for id in letters.after(cursor, most):
        found.append(Letter(n.jobs[id], n.life.by_id[id]))
    return found


def is_last(n: Node, queue: bytes, serial: i64) -> bool:
    """[W12] Whether no letter of the queue is later than that (W12.6)."""
    letters = n.life.letters.get(queue)
    return letters is None or len(letters.after(serial, 1)) == 0


def letter_of(n: Node, id: bytes) -> Letter | None:
    """The dead letter with that id."""
    job = n.jobs.get(id)
    life = life_of(n, id)
    if job is None or life is None or not life.is_dead or job.state == ACKED:
        return None
    return Letter(job, life)


def replay(n: Node, letter: Letter, queue: bytes) -> bool:
    """[W12] The job runs again in its queue, or in another one, as in a new life (W12.4, T48.13).

    False: not now, and the letter stays as it is.
    """
    job, life = letter.job, letter.life
    place = place_of(n, job)
    if not place.frees(n, job, len(queue) == 0):
        return False
    n.record_run(job, life, REPLAYED, life.dead_cause)
    n.life.replayed += 1
    if len(queue) > 0 and place.send_on(n, job, life, queue):
        return True
    to = queue if len(queue) > 0 else life.origin
    n.life.remove_dead_letter(job.queue, job.id, life, len(job.body))
    rules.revive(life, n.now_ms)
    n.life.weigh(life)
    place.revive(n, job, life, to)
    look_again(n, job.id)  # T50.5
    return True


def purge(n: Node, letter: Letter) -> bool:
    """[W12] The dead letter is deleted (W12.5); False as above."""
    place = place_of(n, letter.job)
    if not place.frees(n, letter.job, False):
        return False
    place.purge(n, letter.job)
    return True
