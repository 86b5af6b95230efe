"""The dead letters of one queue, in order, and how many of each reason (SPEC W12)."""

from typing import final

from mypy_extensions import i64

from tuque.core.model.life import Life


@final
class Letters:
    """The dead letters of one queue, oldest first."""

    def __init__(self) -> None:
        self.order: list[tuple[int, bytes]] = []  # (serial, id); some may be gone
        self.count: i64 = 0
        self.reasons: dict[tuple[bytes, bytes], int] = {}  # how many of each cause and reason

    def count_in(self, life: Life, by: i64) -> None:
        """Count a letter that came or went, under the reason that it came with."""
        if by > 0:
            life.buried_as = (life.dead_cause, life.last.reason if life.last is not None else b"")
        self.count += by
        left = self.reasons.get(life.buried_as, 0) + int(by)
        if left > 0:
            self.reasons[life.buried_as] = left
        else:
            self.reasons.pop(life.buried_as, None)

    def recount(self, life: Life, cause: bytes) -> None:
        """Count a letter anew: its cause, or its last failure, is another one now."""
        last = life.last
        life.dead_cause = cause
        if life.buried_as != (cause, last.reason if last is not None else b""):
            self.count_in(life, -1)
            self.count_in(life, 1)

    def after(self, serial: i64) -> i64:
        """The position of the first entry with a later serial."""
        low: i64 = 0
        high: i64 = len(self.order)
        while low < high:
            middle = (low + high) // 2
            if self.order[middle][0] <= serial:
                low = middle + 1
            else:
                high = middle
        return low


def enter_letter(
    letters: dict[bytes, Letters], queue: bytes, serial: i64, id: bytes, life: Life
) -> None:
    """The job is the newest dead letter of the queue."""
    found = letters.get(queue)
    if found is None:
        found = Letters()
        letters[queue] = found
    found.order.append((int(serial), id))
    found.count_in(life, 1)


def last_serial(letters: dict[bytes, Letters], queue: bytes) -> i64:
    """The serial of the queue's newest dead letter, which may be gone; 0: it has none."""
    found = letters.get(queue)
    if found is None or len(found.order) == 0:
        return 0
    return i64(found.order[len(found.order) - 1][0])


def count_of(letters: dict[bytes, Letters], queue: bytes) -> i64:
    """How many dead letters the queue has."""
    found = letters.get(queue)
    return 0 if found is None else found.count
