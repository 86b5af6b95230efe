"""Dead letters: listed, shown, counted, replayed and purged (SPEC W12)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.holders import place_of
from tuque.core.model.job import ACKED, Job
from tuque.core.model.work import Life
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of, look_again
from tuque.core.queues.work_copies import DEAD_SUFFIX
from tuque.core.records.events import REPLAYED
from tuque.core.work import rules

REPLAY: Final = 1
PURGE: Final = 2

LOOK_MAX: Final = 1_000  # letters looked at in one call
OF_TUBE: Final = 1 << 62  # bit of a cursor: those of the tube follow those of the queue


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

    def __init__(self, job: Job, life: Life, cursor: i64) -> None:
        self.job = job
        self.life = life
        self.cursor = cursor  # of a page that ends with it


@final
class Letters:
    """The dead letters that a name means: those in the queue of that name, and after them those of
    the tube, if the queue is that of its letters (T48.15).
    """

    def __init__(self, queue: bytes, tube: bytes) -> None:
        self.queue = queue
        self.tube = tube  # empty: none

    def has(self, letter: Letter) -> bool:
        """Whether that letter is one of them."""
        name = letter.job.queue
        return name == self.queue or (len(self.tube) > 0 and name == self.tube)

    def after(self, n: Node, cursor: i64, most: i64) -> list[Letter]:
        """Up to `most` that come after the cursor, the oldest of queue and tube first."""
        found: list[Letter] = []
        if cursor < OF_TUBE:
            add_letters(n, found, self.queue, cursor, most, 0)
            cursor = OF_TUBE
        if len(self.tube) > 0 and len(found) < most:
            add_letters(n, found, self.tube, cursor - OF_TUBE, most - len(found), OF_TUBE)
        return found

    def reasons(self, n: Node) -> list[dict[tuple[bytes, bytes], int]]:
        """How many there are of each cause and reason, of the queue and of the tube."""
        found = [n.life.letters.get(name) for name in (self.queue, self.tube)]
        return [letters.reasons for letters in found if letters is not None]

    def is_last(self, n: Node, cursor: i64) -> bool:
        """[W12] Whether none is later than that (W12.6)."""
        return len(self.after(n, cursor, 1)) == 0


def add_letters(
    n: Node, found: list[Letter], queue: bytes, serial: i64, most: i64, part: i64
) -> None:
    """Add up to `most` dead letters of that queue or tube with a later serial."""
    letters = n.life.letters.get(queue)
    if letters is not None:
        for id in letters.after(serial, most):
            life = n.life.by_id[id]
            found.append(Letter(n.jobs[id], life, part + life.serial))


def tube_of_letters(n: Node, queue: bytes) -> bytes:
    """The tube whose dead letters that queue would have, were it no tube; empty: none (T48.15)."""
    if not queue.endswith(DEAD_SUFFIX):
        return b""
    q = n.queues.get(queue[: -len(DEAD_SUFFIX)])
    if q is None or q.policy is None or not q.policy.takes_work(q):
        return b""
    return q.name


def letter_of(n: Node, id: bytes) -> Letter | None:
    """The dead letter with that id."""
    job = n.jobs.get(id)
    life = life_of(n, id)
    if job is None or life is None or not life.is_dead or job.state == ACKED:
        return None
    return Letter(job, life, life.serial)


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
