"""What a disk has of tubes after a process ended: a long enough prefix (T14.1, T14.4).

The leader's changes are known in order. A journal cut off anywhere gives the tube as it was after
one of them; not before a change that clients know of and that the policy keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.tube_judges.facts import Facts, Line, State
from tuque.core.model.task import DONE, READY, TAKEN
from tuque.server.journal.thread import ALWAYS, EVERYSEC
from tuque.tubes.model.tubes import Tubes

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster
    from sim.tube_judges.mirror import Mirror
    from tuque.core.node.node import Node
    from tuque.tubes.model.tube import Tube

Ident = tuple[bytes, int]


class KeptTube:
    """A tube on the disk of an ended process, as leader or as replica."""

    def __init__(self, tube: Tube) -> None:
        self.ident = ident_of(tube)
        self.is_mine = bool(tube.is_mine)
        self.epoch = int(tube.epoch)
        self.next_number = int(tube.next_number)
        tasks = {**tube.copies, **tube.tasks}
        self.statuses = {int(k): as_loaded(int(task.status)) for k, task in tasks.items()}


def ident_of(tube: Tube) -> Ident:
    """What distinguishes tubes of one name (T17.2)."""
    return bytes(tube.maker), int(tube.made_ns)


def tubes_on(n: Node) -> Tubes | None:
    """The tubes of a node, if it has any."""
    return n.policy if isinstance(n.policy, Tubes) else None


def as_loaded(status: int) -> int:
    """TAKEN counts as READY: a lost take is only repeated (T14.1)."""
    return READY if status == TAKEN else status


def must_have(machine: Machine, shell: Shell, mirror: Mirror) -> int:
    """How many changes the disk must have: those that clients know of, by the policy."""
    policy = machine.settings.policy
    until_us = -1
    if policy == ALWAYS:
        until_us = machine.world.now_us
    elif policy == EVERYSEC and shell.thread is not None:
        until_us = machine.world.now_us - shell.thread.window_us()
    return max((at + 1 for told_us, at in mirror.told if told_us <= until_us), default=0)


def prefix(mirror: Mirror, kept: dict[int, int], least: int) -> int:
    """The smallest number of changes, at least `least`, that gives this state; -1: none."""
    now = {number: as_loaded(status) for number, status in mirror.base.items()}
    wrong = {number for number in {*now, *kept} if now.get(number) != kept.get(number)}
    wrong -= mirror.vague
    for at in range(len(mirror.log) + 1):
        if at >= least and not wrong:
            return at
        if at < len(mirror.log):
            step = mirror.log[at]
            if step.number in mirror.vague:
                continue
            is_so = kept.get(step.number, DONE) == as_loaded(step.status)
            if is_so:
                wrong.discard(step.number)
            else:
                wrong.add(step.number)
    return -1


def judge_disk(cluster: Cluster, machine: Machine, shell: Shell, mirror: Mirror, back: str) -> None:
    """A leader's process ended: its disk has the tube as it was after enough changes."""
    facts, line, history = mirror.facts, mirror.line, cluster.history
    if line.epoch > mirror.epoch:
        return  # another node leads it
    kept = machine.kept_tubes.get(facts.key)
    # The handover was not on the disk yet, so nobody knew of it (T20.3): this node leads again.
    is_back = kept is not None and kept.is_mine and kept.epoch == mirror.epoch
    if not mirror.tube.is_mine and not is_back:
        return
    if kept is not None and (kept.ident != ident_of(mirror.tube) or not kept.is_mine):
        return  # handed over (T20.3): its state when it stopped running is what counts
    if machine.settings.policy == "off" or back != "disk" or machine.had_disk_fault:
        line.state = State({}, 0, False, False)
        forget(cluster, facts, ident_of(mirror.tube))
        return
    least = must_have(machine, shell, mirror)
    history.count("ends of homes")
    if kept is None:
        if least > 0 or (machine.settings.policy == ALWAYS and facts.created_us):
            history.find("tube-disk", f"{facts.name} is not on the disk of {machine.name}")
        line.state = State({}, 0, False, False)
        forget(cluster, facts, ident_of(mirror.tube))
        return
    if kept.epoch < mirror.epoch:
        line.state = State({}, 0, False, False)
        if machine.settings.policy in (ALWAYS, EVERYSEC):  # T20.4
            history.find("tube-disk", f"{facts.name} ran before the disk had its epoch")
        return
    line.state = State(kept.statuses, kept.next_number, True, False)
    if facts.is_temporary:
        if kept.next_number < numbers_after(mirror, least):
            history.find("tube-number", f"{facts.name} would begin at {kept.next_number} again")
        if kept.statuses:
            history.find("tube-disk", f"{facts.name} is temporary and has tasks on the disk")
        return
    judge_prefix(cluster, machine, shell, mirror, kept, least)
    drop_lost(facts, line, kept.next_number)


def judge_tokens(cluster: Cluster, machine: Machine, facts: Facts, back: str) -> None:
    """The disk reserves a number above all tokens that clients know (T5.1)."""
    kept, policy = machine.kept_tokens, machine.settings.policy
    known = max(m.newest_token() for m in cluster.machines)
    for line in facts.lines.values():
        told = line.told_tokens.pop(machine.name, 0)
        if policy == "off" or back != "disk":  # nobody can tell the next node of it
            line.newest_token = min(line.newest_token, known)
            continue
        if told == 0:
            continue
        cluster.history.count("tokens looked for on disks")
        if told <= kept:
            line.told_tokens[machine.name] = told
        elif policy == "no":  # the power cut lost the number: tokens may go back to this
            line.newest_token = min(line.newest_token, kept)
            line.takers = {token: who for token, who in line.takers.items() if token <= kept}
        elif not machine.had_disk_fault:
            cluster.history.find(
                "tube-fence", f"{facts.name}: token {told}, {machine.name} has {kept} on its disk"
            )


def judge_prefix(
    cluster: Cluster, machine: Machine, shell: Shell, mirror: Mirror, kept: KeptTube, least: int
) -> None:
    """The tube on the disk is what it was after some of its changes, at least `least`."""
    history, name = cluster.history, mirror.facts.name
    history.count("tubes on disks")
    history.count("changes that a disk must have", least)
    at = prefix(mirror, kept.statuses, least)
    # It may have stood still and continued since the last write to the disk: the cut may then be
    # before its start, if the disk need not have anything that came after.
    while at < 0 and least == 0 and mirror.earlier is not None:
        mirror = mirror.earlier
        least = must_have(machine, shell, mirror)
        at = prefix(mirror, kept.statuses, least)
    if at < 0:
        whole = prefix(mirror, kept.statuses, 0)
        how = "a prefix with a hole" if whole < 0 else f"{whole} changes of {least} that it must"
        history.find("tube-disk", f"{name}: the disk of {machine.name} has {how}")
    elif kept.next_number < numbers_after(mirror, at):
        history.find("tube-number", f"{name} would begin at {kept.next_number} again")


def numbers_after(mirror: Mirror, at: int) -> int:
    """The next task number after so many changes."""
    used = [step.number + 1 for step in mirror.log[:at]]
    return max([*used, *(number + 1 for number in mirror.base)], default=0)


def drop_lost(facts: Facts, line: Line, next_number: int) -> None:
    """Numbers of puts that the disk never had may be given to others (promise 1).

    Another tube of that name, which another node leads, has lost nothing (T17.5).
    """
    for put in facts.puts.values():
        if put.line is line and put.number >= next_number:
            put.number = -1


def forget(cluster: Cluster, facts: Facts, ident: Ident) -> None:
    """The leader lost the tube: it is created again, or restored from a replica (T22.2)."""
    facts.created_us = 0
    if ident in facts.lines:
        facts.lines[ident].by_job.clear()
    if not any(ident in m.tubes_known() for m in cluster.machines):
        facts.lines.pop(ident, None)


def look_again(cluster: Cluster, machine: Machine, facts: Facts) -> None:
    """The power failed before the node ran the tube again: its disk may have less than before.

    What the last process wrote may be unsynced, except under `always`. Whether it was enough was
    judged when that process ended.
    """
    if facts.home != machine.name or machine.settings.policy in ("always", "off"):
        return
    kept = machine.kept_tubes.get(facts.key)
    for ident, line in list(facts.lines.items()):
        if line.state is None or not line.state.is_exact:
            continue
        if kept is not None and kept.ident == ident and kept.is_mine:
            line.state = State(kept.statuses, kept.next_number, True, False)
            drop_lost(facts, line, kept.next_number)
        elif kept is None:
            line.state = State({}, 0, False, False)
            forget(cluster, facts, ident)


def judge_load(cluster: Cluster, machine: Machine, facts: Facts, tube: Tube, tubes: Tubes) -> None:
    """What was on the disk is loaded, unless a peer's message set it aside meanwhile (T17.5)."""
    kept = machine.kept_tubes.get(facts.key)
    if kept is None or (kept.ident != ident_of(tube) and kept.ident in tubes.aside):
        return
    cluster.history.count("tubes loaded")
    loaded = KeptTube(tube)
    if loaded.statuses != kept.statuses or loaded.next_number < kept.next_number:
        odd = sorted(set(loaded.statuses.items()) ^ set(kept.statuses.items()))
        cluster.history.find("tube-disk", f"{facts.name} was not loaded as it lay there: {odd[:4]}")
