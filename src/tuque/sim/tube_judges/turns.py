"""Judges of who goes first, and of pauses.

Who waits at a home is served in the order in which it came there (T9.1, T7.2). That is seen
without looking at the node's own order: who waited at the end of one turn came before whoever
asked later. Nothing goes into or out of a tube that is paused (P2), and a pause is where the home
is (T17.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuque.core.node.queue import PAUSE_IN, PAUSE_NAMES, PAUSE_OUT
from tuque.sim.tube_judges.homes import excuse_of

if TYPE_CHECKING:
    from tuque.sim.machines.machine import Machine
    from tuque.sim.machines.shell import Shell
    from tuque.sim.tube_judges.facts import Facts
    from tuque.sim.tube_judges.judge import Tubing
    from tuque.sim.tube_judges.mirror import Mirror, Seen, Step

TRAVEL_US: Final = 10_000_000  # a PAUSE without an answer is done within it, or not
WAITS_MAX: Final = 100  # waits that are over and remembered


class Pausing:
    """One PAUSE of a tube that was asked for."""

    def __init__(self, bits: int, asked_us: int) -> None:
        self.bits = bits
        self.asked_us = asked_us
        self.is_over = False


class Waits:
    """Who waits at one home of a tube, and how it is paused, at the ends of its turns."""

    def __init__(self) -> None:
        self.takes: dict[int, tuple[object, int]] = {}  # by client: the wait, and since when
        self.over: list[tuple[int, int]] = []  # of those that ended: since when, until when
        self.puts: list[bytes] = []  # bodies, in the order in which they came
        self.looked = 0  # changes that were looked at
        self.pause = -1  # at the end of the last turn; -1: none was seen
        self.out_us = -1  # when it was paused in output last


def look_at_turn(tubing: Tubing, shell: Shell, mirror: Mirror) -> None:
    """A turn of a home is over."""
    waits, now_us = mirror.waits, tubing.world.now_us
    steps = mirror.log[waits.looked :]
    waits.looked = len(mirror.log)
    judge_pause(tubing, mirror)
    judge_steps(tubing, mirror, steps)
    judge_puts(tubing, mirror, steps)
    tube = mirror.tube
    before, waits.takes = waits.takes, {}
    for number in tube.waiters:
        client = int(number)
        waiter = shell.n.waiters.get(client)
        old = before.pop(client, None)
        same = old is not None and old[0] is waiter
        waits.takes[client] = old if same and old is not None else (waiter, now_us)
        if old is not None and not same:
            waits.over.append((old[1], now_us))
    waits.over += [(since_us, now_us) for _, since_us in before.values()]
    del waits.over[:-WAITS_MAX]
    waits.puts = bodies_of(mirror)
    note_pause(tubing, mirror, int(tube.pause))


# ---- turns


def seen_of(mirror: Mirror, step: Step) -> Seen | None:
    """The task of a change."""
    return mirror.tasks.get(step.number) or mirror.gone.get(step.number)


def bodies_of(mirror: Mirror) -> list[bytes]:
    """Puts that wait now; each has a body of its own."""
    return [bytes(one.body) for one in mirror.tube.putters if not one.is_over]


def judge_puts(tubing: Tubing, mirror: Mirror, steps: list[Step]) -> None:
    """Puts that wait are done in the order they came (T7.2)."""
    order, still = mirror.waits.puts, bodies_of(mirror)
    for step in steps:
        one = seen_of(mirror, step) if step.event == b"put" else None
        if one is None or one.put is None:
            continue
        tubing.history.count("turns of puts and takes")
        body = one.put.body
        before = order[: order.index(body)] if body in order else order
        late = [other for other in before if other in still]
        if late:
            tubing.find(
                "tube-turn",
                f"{mirror.facts.name}: task {one.number} was put while {late[0][:20]!r} waits",
            )


def judge_overtaken(tubing: Tubing, mirror: Mirror, one: Seen, token: int, asked_us: int) -> None:
    """A take got a task: nobody was waiting before it was asked for, and is still (T9.1)."""
    take = next((take for take in one.takes if take.token == token), None)
    if take is None or take.at < 0:
        return
    at_us = mirror.log[take.at].at_us
    waits = mirror.waits
    tubing.history.count("turns of puts and takes")
    spans = [*waits.over, *((since_us, 1 << 62) for _, since_us in waits.takes.values())]
    for since_us, until_us in spans:
        if since_us <= asked_us and until_us > at_us:
            waited_ms = (at_us - since_us) // 1000
            tubing.find(
                "tube-turn",
                f"{mirror.facts.name}: task {one.number} went to a later take than one that"
                f" waited for {waited_ms} ms",
            )
            return


# ---- pauses


def is_open(tubing: Tubing, facts: Facts, bits: int = -1) -> bool:
    """Whether a PAUSE (with those bits) may just be done, or was not answered."""
    since_us = tubing.world.now_us - TRAVEL_US
    return any(
        not one.is_over and one.asked_us > since_us and bits in (-1, one.bits)
        for one in facts.pauses
    )


def judge_pause(tubing: Tubing, mirror: Mirror) -> None:
    """The tube is paused as here or at its last home before, but for a PAUSE since (T17.7)."""
    line, tube, facts = mirror.line, mirror.tube, mirror.facts
    if is_one_of_two(tubing, mirror):
        line.pause = -1  # a PAUSE at one is nothing to the other, until they hear of each other
        return
    now = int(tube.pause)
    if line.pause >= 0:
        tubing.history.count("looks at pauses")
        if now != line.pause and not is_open(tubing, facts, now):
            was, found = PAUSE_NAMES[line.pause].decode(), PAUSE_NAMES[now].decode()
            tubing.find("tube-pause", f"{facts.name} was paused {was!r} and is {found!r}")
    line.pause = now


def is_one_of_two(tubing: Tubing, mirror: Mirror) -> bool:
    """Whether the tube runs at another node besides, and SPEC lets it (excuse_of)."""
    line = mirror.line
    if not any(excuse_of(m, line) for m in tubing.cluster.machines):
        return False
    others = [other for other in tubing.mirrors.values() if other is not mirror]
    return any(other.line is line and other.is_up for other in others)


def judge_home(tubing: Tubing, machine: Machine, mirror: Mirror) -> None:
    """The tube runs at another node, or again: by force it is paused as that node was told."""
    if machine.name in mirror.facts.forced or excuse_of(machine, mirror.line):
        mirror.line.pause = -1


def judge_steps(tubing: Tubing, mirror: Mirror, steps: list[Step]) -> None:
    """Nothing goes in, and nothing out, while the tube is paused (P2)."""
    waits, facts, tube = mirror.waits, mirror.facts, mirror.tube
    if waits.pause <= 0 or waits.pause != tube.pause or is_open(tubing, facts):
        return
    for step in steps:
        tubing.history.count("changes of paused tubes")
        if step.event == b"take" and waits.pause & PAUSE_OUT:
            text = f"{facts.name} is paused: task {step.number} was taken"
            tubing.find("tube-pause", text)
        one = seen_of(mirror, step) if step.event == b"put" and waits.pause & PAUSE_IN else None
        if one is not None and one.put is not None:
            text = f"{facts.name} is paused: task {step.number} was put"
            tubing.find("tube-pause", text)


def forget_pauses(tubing: Tubing, machine: Machine, back: str) -> None:
    """A process ended: whether its disk has the last PAUSE is known when all are answered."""
    is_kept = machine.settings.policy == "always" and back == "disk" and not machine.had_disk_fault
    for facts in tubing.facts.values():
        if not is_kept or is_open(tubing, facts):
            for line in facts.lines.values():
                line.pause = -1


def note_pause(tubing: Tubing, mirror: Mirror, now: int) -> None:
    """A turn of a home is over: how it is paused, and whether takes may have found it so."""
    waits = mirror.waits
    if now & PAUSE_OUT or (waits.pause > 0 and waits.pause & PAUSE_OUT):
        waits.out_us = tubing.world.now_us
    waits.pause = now


def is_paused_since(mirror: Mirror, asked_us: int) -> bool:
    """Whether a take that was asked for then may have found the tube paused."""
    return mirror.waits.out_us >= asked_us
