"""GROUP SHOW, LIST, RESULTS and CHILDREN: what a leader knows of its groups (SPEC T51)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.model.task import FAR, Task
from tuque.server.schedules.options import shown_life
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.tubes import groups
from tuque.tubes.entries.group import (
    CHILDREN_MAX,
    POLICY_WORDS,
    GroupPlan,
    is_group,
    unpack_child,
    unpack_group,
)
from tuque.tubes.model.tube import Tube
from tuque.wire.commands.arguments import ranged, refused, twice
from tuque.wire.commands.arguments import wrong_option as wrong_word

STATES: Final = ("open", "done", "failed", "cancelled")
CALLED: Final = "called"
DEAD: Final = "dead"  # of open children: those whose replay is awaited (T50.5)
CHILD_STATES: Final = (b"open", b"done", b"failed", b"failed")
BAD_FROM: Final = b"ERR the first index must be a number from 0 to %d" % CHILDREN_MAX
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
OPTIONS: Final = (b"COUNT", b"STATE")
ROWS_MAX: Final = 1_000
LIST_MAX: Final = 100
LOOKED_AT: Final = 1_000  # children, by one CHILDREN
PAGE_BYTES: Final = 1024 * 1024  # results of a page; one is always there
REASONS_BYTES: Final = 131_072  # of a page of CHILDREN


def shown(c: Client, tube: Tube, task: Task) -> dict[str, object]:
    """A group, as names and values (T51.3)."""
    family = groups.family_of(tube, task.number)
    plan = GroupPlan()
    state = "called"
    packed = task.subqueue
    if is_group(task.subqueue):
        plan = unpack_group(task.subqueue)
        packed = plan.keys
        state = STATES[int(plan.state)]
    else:
        plan.size = len(family.by_index)
        plan.has_callback = True
    return {
        "id": task.id,
        "queue": c.named(tube.name),
        "state": state,
        "children": int(plan.size),
        "added": len(family.by_index),
        "done": int(family.done),
        "failed": int(family.failed),
        "dead": int(family.dead),
        "onfail": POLICY_WORDS[int(plan.policy)] if is_group(task.subqueue) else "",
        "callback": int(plan.has_callback),
        "created-ms": int(task.created_ms),
        "over-ms": int(plan.over_ms),
        **shown_life(c, packed),
    }


def show_all(s: Server, c: Client, tube: Tube, words: list[bytes]) -> None:
    """LIST tube [cursor] [COUNT n] [STATE state]: groups, the oldest first (T51.4)."""
    cursor: i64 = 0
    if len(words) > 0 and words[0].upper() not in OPTIONS:
        cursor = ranged(words[0], 0, FAR, BAD_CURSOR)
        words = words[1:]
    count, state = asked(b"GROUP LIST", words, LIST_MAX, (*STATES, CALLED))
    numbers = numbers_in(tube, state)
    s.n.work += len(numbers) // 10
    found = [number for number in numbers if number >= cursor]
    rows: list[object] = [shown(c, tube, tube.tasks[one]) for one in found[: int(count)]]
    after = found[int(count)] if len(found) > count else 0
    c.reply([b"%d" % after, rows])


def numbers_in(tube: Tube, state: str) -> list[int]:
    """The numbers of the groups in that state; empty: of those that are not their callback."""
    members = groups.driver_of(tube).plans.members
    if state == CALLED:
        over = [number for number in members.families if number not in members.open]
        return sorted([number for number in over if number in tube.tasks])
    numbers = sorted(members.open)
    if len(state) == 0:
        return numbers
    return [
        number
        for number in numbers
        if STATES[int(unpack_group(tube.tasks[number].subqueue).state)] == state
    ]


def asked(
    command: bytes, words: list[bytes], most: i64, states: tuple[str, ...]
) -> tuple[int, str]:
    """The values of COUNT and STATE; empty: any state."""
    count, state = most, ""
    seen: dict[bytes, None] = {}
    options = OPTIONS if len(states) > 0 else OPTIONS[:1]
    for i in range(0, len(words), 2):
        word = words[i].upper()
        if word not in options or i + 1 == len(words):
            raise wrong_word(command, words[i], options)
        if word in seen:
            raise twice(word)
        seen[word] = None
        if word == b"COUNT":
            count = min(ranged(words[i + 1], 1, ROWS_MAX, BAD_COUNT), most)
            continue
        state = words[i + 1].lower().decode("latin-1")
        if state not in states:
            raise refused(word, ", ".join(states).encode(), words[i + 1])
    return int(count), state


def begins(words: list[bytes]) -> tuple[int, list[bytes]]:
    """The index that a page begins with, 0 if there is none, and the words after it."""
    if len(words) == 0 or words[0].upper() in OPTIONS:
        return 0, words
    return int(ranged(words[0], 0, CHILDREN_MAX, BAD_FROM)), words[1:]


def size_of(tube: Tube, task: Task) -> int:
    """How many children the group has."""
    if is_group(task.subqueue):
        return int(unpack_group(task.subqueue).size)
    return len(groups.family_of(tube, task.number).by_index)


def results(s: Server, c: Client, tube: Tube, task: Task, words: list[bytes]) -> None:
    """RESULTS tube group [from] [COUNT n]: the next index, 0 at the end, and rows (T51.3)."""
    index, words = begins(words)
    left, _ = asked(b"GROUP RESULTS", words, ROWS_MAX, ())
    family = groups.family_of(tube, task.number)
    size = size_of(tube, task)
    room = PAGE_BYTES
    rows: list[object] = []
    while index < size and left > 0 and room > 0:
        number = family.by_index.get(index)
        left -= 1
        s.n.work += 1
        if number is not None:
            child = unpack_child(tube.tasks[number].subqueue)
            word = child.word if len(child.word) > 0 else b"open"
            state = CHILD_STATES[int(child.state)]
            rows.append([index, child.id, state, child.result, word, child.reason])
            room -= 100 + len(child.reason)
            room -= 0 if child.result is None else len(child.result)
        index += 1
    c.reply([index if index < size else 0, rows])


def show_children(s: Server, c: Client, tube: Tube, task: Task, words: list[bytes]) -> None:
    """CHILDREN tube group [from] [COUNT n] [STATE state]: how they ended (T51.6)."""
    index, words = begins(words)
    states = ("open", "done", "failed", DEAD)
    left, wanted = asked(b"GROUP CHILDREN", words, ROWS_MAX, states)
    family = groups.family_of(tube, task.number)
    size = size_of(tube, task)
    until = min(size, index + LOOKED_AT)
    room = REASONS_BYTES
    rows: list[object] = []
    while index < until and left > 0 and room > 0:
        number = family.by_index.get(index)
        s.n.work += 1
        if number is not None:
            child = unpack_child(tube.tasks[number].subqueue)
            state = CHILD_STATES[int(child.state)]
            is_dead = state == b"open" and len(child.word) > 0
            if len(wanted) == 0 or wanted.encode() == state or (wanted == DEAD and is_dead):
                word = child.word if len(child.word) > 0 else b"open"
                size_bytes = 0 if child.result is None else len(child.result)
                over_ms = int(child.over_ms)
                rows.append([index, child.id, state, size_bytes, word, child.reason, over_ms])
                left -= 1
                room -= 100 + len(child.reason)
        index += 1
    c.reply([index if index < size else 0, rows])
