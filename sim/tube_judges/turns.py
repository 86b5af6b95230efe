"""Judges of fairness and of pauses.

Clients that wait on a leader are served in order of arrival (T9.1, T7.2). The check does not use
the node's own order: a client that waited at the end of one turn came before one that asked
later. Nothing goes into or out of a paused tube (P2), and a pause follows the leader (T17.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.tube_judges.homes import excuse_of
from tuque.core.node.queue import PAUSE_IN, PAUSE_NAMES, PAUSE_OUT

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.tube_judges.facts import Facts
    from sim.tube_judges.judge import Tubing
    from sim.tube_judges.mirror import Mirror, Seen, Step

TRAVEL_US: Final = 10_000_000  # within it a PAUSE without a reply has run, or never will
WAITS_MAX: Final = 100  # ended waits that are kept


class Pausing:
    """A PAUSE of a tube that a client sent."""

    def __init__(self, bits: int, asked_us: int) -> None:
        self.bits = bits
        self.asked_us = asked_us
        self.is_over = False


class Waits:
    """Waiting clients of a tube on one leader, and its pause, at the ends of turns."""

    def __init__(self) -> None:
        self.takes: dict[int, tuple[object, int]] = {}  # by client: the wait and its start
        self.over: list[tuple[int, int]] = []  # ended waits: start and end
        self.puts: list[bytes] = []  # bodies in order of arrival
        self.looked = 0  # number of changes checked
        self.pause = -1  # at the end of the last turn; -1: unknown
        self.out_us = -1  # when it was last paused in output


def look_at_turn(tubing: Tubing, shell: Shell, mirror: Mirror) -> None:
    """A leader's turn ended."""
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
    """Bodies of the waiting puts; each is unique."""
    return [bytes(one.body) for one in mirror.tube.putters if not one.is_over]


def judge_puts(tubing: Tubing, mirror: Mirror, steps: list[Step]) -> None:
    """Waiting puts run in order of arrival (T7.2)."""
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
    """A take got a task: no client that waited before its request still waits (T9.1)."""
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
    """Whether a PAUSE (with those bits) may be in flight."""
    since_us = tubing.world.now_us - TRAVEL_US
    return any(
        not one.is_over and one.asked_us > since_us and bits in (-1, one.bits)
        for one in facts.pauses
    )


def judge_pause(tubing: Tubing, mirror: Mirror) -> None:
    """The pause is as before, here or on the last leader, except for a PAUSE since (T17.7)."""
    line, tube, facts = mirror.line, mirror.tube, mirror.facts
    if is_one_of_two(tubing, mirror):
        line.pause = -1  # a PAUSE on one has no effect on the other until they are linked
        return
    now = int(tube.pause)
    if line.pause >= 0:
        tubing.history.count("looks at pauses")
        if now != line.pause and not is_open(tubing, facts, now):
            was, found = PAUSE_NAMES[line.pause].decode(), PAUSE_NAMES[now].decode()
            tubing.find("tube-pause", f"{facts.name} was paused {was!r} and is {found!r}")
    line.pause = now


def is_one_of_two(tubing: Tubing, mirror: Mirror) -> bool:
    """Whether another node runs the tube too, and SPEC allows it (excuse_of)."""
    line = mirror.line
    if not any(excuse_of(m, line) for m in tubing.cluster.machines):
        return False
    others = [other for other in tubing.mirrors.values() if other is not mirror]
    return any(other.line is line and other.is_up for other in others)


def judge_home(tubing: Tubing, machine: Machine, mirror: Mirror) -> None:
    """The tube has a new leader or runs again: after a force its pause is that known there."""
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
    """A process ended: whether its disk has the last PAUSE is certain if none is in flight."""
    is_kept = machine.settings.policy == "always" and back == "disk" and not machine.had_disk_fault
    for facts in tubing.facts.values():
        if not is_kept or is_open(tubing, facts):
            for line in facts.lines.values():
                line.pause = -1


def note_pause(tubing: Tubing, mirror: Mirror, now: int) -> None:
    """A leader's turn ended: note its pause, and whether takes may have found it paused."""
    waits = mirror.waits
    if now & PAUSE_OUT or (waits.pause > 0 and waits.pause & PAUSE_OUT):
        waits.out_us = tubing.world.now_us
    waits.pause = now


def is_paused_since(mirror: Mirror, asked_us: int) -> bool:
    """Whether a take sent at that time may have found the tube paused."""
    return mirror.waits.out_us >= asked_us
