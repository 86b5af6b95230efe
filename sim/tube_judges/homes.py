"""Judges of tube leadership: one leader at a time, and a tube that moves stays the same (T17-T21).

A node runs a tube if it would accept the next command: RUNNING, with a valid lease by its own
clock. A planned switchover loses nothing; a failover by force keeps what clients know of if
enough nodes had to have it (SYNC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.tube_judges.disk import Ident, as_loaded, ident_of, tubes_on
from sim.tube_judges.facts import Facts, Line, State
from sim.tube_judges.forces import is_outdated
from tuque.core.model.task import DONE, MAX_MS, TAKEN
from tuque.tubes.log.leader import has_lease
from tuque.tubes.model.tube import INIT, RUNNING

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster
    from sim.tube_judges.mirror import Mirror, Seen
    from tuque.tubes.model.tube import Tube

HOMELESS_US: Final = 14_000_000  # when all is well, a tube runs again within it


def is_up(tube: Tube) -> bool:
    """Whether the node believes that it runs the tube."""
    return bool(tube.is_mine) and tube.state == RUNNING


def would_do(m: Machine, facts: Facts, line: Line | None) -> bool:
    """Whether the node would accept a command about the tube now.

    Without a line: about any tube of the name that votes lead (T24.3).
    """
    shell = m.shell
    t = tubes_on(shell.n) if shell is not None else None
    tube = t.by_name.get(facts.key) if t is not None else None
    if shell is None or t is None or tube is None or shell.s.is_loading or is_outdated(m):
        return False
    if not is_up(tube) or (line is not None and facts.lines.get(ident_of(tube)) is not line):
        return False
    if line is None and not tube.led_by_votes:
        return False
    return has_lease(max(shell.clock.now_ms(), int(shell.n.now_ms)), t, tube)


def excuse_of(m: Machine, line: Line) -> str:
    """The rule that allows two leaders here; "": none.

    An operator forced it, disks were lost, or a disk without fsync has forgotten (T20.3).
    """
    if line.excuse:
        return line.excuse
    forgets = m.settings.policy == "no" and (m.had_power_cut or m.had_disk_fault)
    return "T20.3" if forgets else ""


def count_takes(cluster: Cluster, m: Machine, mirror: Mirror, takes: int) -> None:
    """Count takes, and doubled ones: another node would accept takes too, or has a later epoch.

    Those that SPEC allows are counted under their rule, apart from those that must never happen.
    """
    facts, line, excuse = mirror.facts, mirror.line, excuse_of(m, mirror.line)
    others = [other for other in cluster.machines if other is not m]
    is_over = mirror.epoch < line.epoch or line.homes.get(mirror.epoch, m.name) != m.name
    cluster.history.count(f"takes {excuse}" if excuse else "takes of one home", takes)
    if is_over or any(would_do(other, facts, line) for other in others):
        cluster.history.count(f"doubled takes {excuse}".rstrip(), takes)


def judge_alone(cluster: Cluster, m: Machine, facts: Facts, line: Line) -> None:
    """This node acts in the tube: no other one would (T20.4)."""
    if excuse_of(m, line):
        return
    cluster.history.count("looks for second homes")
    is_voted = m.shell is not None and is_by_vote(m.shell, facts)
    for other in cluster.machines:
        if other is not m and would_do(other, facts, None if is_voted else line):
            cluster.history.find(
                "tube-twice", f"{facts.name} runs at {m.name} and at {other.name} at the same time"
            )


def judge_epoch(cluster: Cluster, m: Machine, facts: Facts, line: Line, epoch: int) -> None:
    """Each epoch has one leader, and epochs increase (T17.1)."""
    home = line.homes.setdefault(epoch, m.name)  # of two, the second is the one that finds it set
    if epoch > line.epoch:
        line.epoch_us = cluster.world.now_us
    judge_awake(cluster, m, facts, line, epoch)
    if excuse_of(m, line):
        line.epoch = max(line.epoch, epoch)
        return
    if home != m.name:
        cluster.history.find(
            "tube-twice", f"epoch {epoch} of {facts.name} has two homes: {home} and {m.name}"
        )
    if epoch < line.epoch:
        cluster.history.find(
            "tube-twice", f"{facts.name} did something under epoch {epoch} after {line.epoch}"
        )
    line.epoch = max(line.epoch, epoch)


def judge_awake(cluster: Cluster, m: Machine, facts: Facts, line: Line, epoch: int) -> None:
    """After a standstill a node does not act under an epoch that ended before it woke (T19.7).

    Nodes that lost their disks may not have told it.
    """
    if m.woke_us == 0 or any(may_have_forgotten(other) for other in cluster.machines):
        return
    cluster.history.count("looks at homes that stood still")
    if epoch < line.epoch and line.epoch_us < m.woke_us:
        cluster.history.find(
            "tube-stood",
            f"{m.name} stood still, and did something in {facts.name} under epoch {epoch}"
            f" after {line.epoch}",
        )


def may_have_forgotten(m: Machine) -> bool:
    """Whether the node may have lost an epoch: its disk is gone, or was never synced."""
    return m.has_lost_disk or m.had_disk_fault or (m.settings.policy == "no" and m.had_power_cut)


def judge_state(cluster: Cluster, m: Machine, facts: Facts, tube: Tube) -> None:
    """A tube never goes back to INIT while its node lives (T19)."""
    line = facts.lines.get(ident_of(tube))
    if line is None:
        return
    old = line.states.get(m.name)
    line.states[m.name] = int(tube.state)
    if tube.state == INIT and old not in (None, INIT):
        cluster.history.find("tube-home", f"{facts.name} went from state {old} to INIT at {m.name}")


def judge_start(cluster: Cluster, m: Machine, shell: Shell, mirror: Mirror) -> None:
    """A node starts to run the tube: it is the same as at the end of the last leader.

    Tasks that were changed between the start and this check are not judged.
    """
    facts, line, history = mirror.facts, mirror.line, cluster.history
    by_vote = is_by_vote(shell, facts)
    was_forced = by_vote or m.name in facts.forced
    home = line.homes.get(mirror.epoch, m.name)
    is_again = was_forced and mirror.epoch == line.epoch and home != m.name
    is_move = is_again or mirror.epoch > line.epoch > 0
    others = int(shell.n.others) & ~int(shell.n.forgotten)
    if is_move and was_forced and others.bit_count() == 1:
        line.excuse = "T21.1"
    if is_again or mirror.epoch < line.epoch:
        line.excuse = line.excuse or excuse_of_start(cluster, m, facts, line)
    judge_epoch(cluster, m, facts, line, mirror.epoch)
    judge_alone(cluster, m, facts, line)
    line.is_lost = False
    facts.home = m.name
    note_sessions(cluster, m, shell)
    before, line.state = line.state, None
    old, line.mirror = line.mirror, mirror
    if is_move:
        history.count("switchovers")
        by_force = "failovers by vote" if by_vote else "failovers by force"
        history.count(by_force if was_forced else "planned switchovers")
        end_force(facts, m.name, cluster.world.now_us)
    if before is None or facts.is_temporary:
        return
    is_other = old is not None and old.epoch != mirror.epoch and not is_move
    if line.excuse and (is_again or is_other):
        return  # it continues from this node's state, not from that of the other leader
    if is_move and was_forced:
        judge_forced(cluster, mirror, old)
    elif before.is_exact:
        judge_same(cluster, m, mirror, before)
        if before.is_whole and old is not None:
            judge_tasks(cluster, m, mirror, old)


def is_by_vote(shell: Shell, facts: Facts) -> bool:
    """Whether votes choose the leader of the tube (T23.5): what few nodes had may be lost."""
    t = tubes_on(shell.n)
    tube = t.by_name.get(facts.key) if t is not None else None
    return t is not None and tube is not None and t.voter_state.leads(tube)


def end_force(facts: Facts, name: str, now_us: int) -> None:
    """A node leads now; another one that was recently told to may be next."""
    facts.forced = {
        other: asked_us
        for other, asked_us in facts.forced.items()
        if other != name and asked_us > now_us - HOMELESS_US
    }


def excuse_of_start(cluster: Cluster, m: Machine, facts: Facts, line: Line) -> str:
    """The rule by which m may run an outdated epoch, and hand over later ones; "": none."""
    if is_told(cluster, m, facts, line):
        return ""
    if m.settings.policy == "no" and m.had_power_cut:
        return "T20.3"  # it has forgotten the next leader
    return "T19.4" if is_unknown(cluster, m, line) else ""


def is_told(cluster: Cluster, m: Machine, facts: Facts, line: Line) -> bool:
    """Whether another node sent m the newest epoch, not having it from m."""
    own = facts_told(m, facts)
    known = [facts_told(other, facts) for other in cluster.machines if has_told(m, other)]
    return any(told[0] >= line.epoch and told != own for told in known)


def is_unknown(cluster: Cluster, m: Machine, line: Line) -> bool:
    """Whether m cannot learn the newest epoch: too many nodes lost their disks (T19.4).

    Half of all nodes, of two both, have sent what they know. Too few of these still know all that
    they ever knew. m itself does not, if it got its disk after that epoch began.
    """
    count = len(cluster.machines)
    others = [other for other in cluster.machines if has_told(m, other)]
    if 1 + len(others) < (2 if count == 2 else (count + 1) // 2):
        return False
    is_own_known = m.disk_since_us <= line.epoch_us
    knowing = int(is_own_known) + sum(not other.has_lost_disk for other in others)
    return knowing * 2 < count


def facts_told(m: Machine, facts: Facts) -> tuple[int, bytes]:
    """Epoch and leader of the tube as the node knows them."""
    t = tubes_on(m.shell.n) if m.shell is not None else None
    tube = t.by_name.get(facts.key) if t is not None else None
    return (int(tube.epoch), tube.home) if tube is not None else (0, b"")


def has_told(m: Machine, other: Machine) -> bool:
    """Whether the other node has sent m its catalog on the current link (T17.2)."""
    if m.shell is None or other.shell is None or other is m:
        return False
    t = tubes_on(m.shell.n)
    slot = m.shell.n.slot_of.get(other.node_id)
    return t is not None and slot is not None and bool(int(t.heard) >> slot & 1)


def note_sessions(cluster: Cluster, m: Machine, shell: Shell) -> None:
    """Sessions of the last leader exist without connections: their ttr starts now.

    They are set up with the holders, before tasks are loaded (T19.6).
    """
    t = tubes_on(shell.n)
    if t is None:
        return
    now_ms, ttr_ms = int(shell.n.now_ms), int(t.ttr_ms)
    for one in t.sessions.values():
        if not one.clients:
            cluster.tubing.closed.setdefault((m.name, int(one.number)), (now_ms, ttr_ms))


def judge_same(cluster: Cluster, m: Machine, mirror: Mirror, before: State) -> None:
    """Every task keeps its number and state (T20.5), except that it may have lost its holder."""
    history, name = cluster.history, mirror.facts.name
    history.count("tubes that go on")
    now = {number: as_loaded(one.status) for number, one in mirror.tasks.items()}
    then = {number: as_loaded(status) for number, status in before.statuses.items()}
    for number in mirror.vague:
        now.pop(number, None)
        then.pop(number, None)
    if now != then:
        odd = sorted(set(now.items()) ^ set(then.items()))
        history.find("tube-home", f"{name} is not what it was when {m.name} runs it: {odd[:4]}")
    if mirror.next_number < before.next_number:
        history.find("tube-number", f"{name} goes on at {mirror.next_number} at {m.name}")


def judge_tasks(cluster: Cluster, m: Machine, mirror: Mirror, old: Mirror) -> None:
    """Every task keeps its pri, times, token and body (T20.5)."""
    history, name = cluster.history, mirror.facts.name
    for number, one in mirror.tasks.items():
        was = old.tasks.get(number)
        if was is None or not was.is_known or number in mirror.vague:
            continue
        history.count("tasks that moved")
        if facts_of(was) != facts_of(one):
            history.find(
                "tube-home", f"{name}: task {number} was {facts_of(was)}, is {facts_of(one)}"
            )
        if one.status == TAKEN and was.status == TAKEN and one.token != was.token:
            history.find("tube-home", f"{name}: task {number} has another token at {m.name}")


def facts_of(one: Seen) -> tuple[int, bytes, int, int, bytes]:
    """What must not change in a task; times are limited to 100 years."""
    token = one.put.token if one.put is not None else b""
    return one.pri, one.subqueue, min(one.ttl_ms, MAX_MS), min(one.ttr_ms, MAX_MS), token


def is_number_known(cluster: Cluster, facts: Facts, line: Line) -> bool:
    """Whether a disk has the last number, or a node knows it (T21.3)."""
    for m in cluster.machines:
        t = tubes_on(m.shell.n) if m.shell is not None else None
        tube = t.by_name.get(facts.key) if t is not None else None
        if m.disk_since_us <= line.top_us:
            return True
        if tube is not None and facts.lines.get(ident_of(tube)) is line:
            if not tube.is_mine and tube.next_number > line.top_number:
                return True
    return False


def judge_forced(cluster: Cluster, mirror: Mirror, old: Mirror | None) -> None:
    """What clients know of exists if that many nodes had it (T18.5); numbers increase."""
    facts, line, history = mirror.facts, mirror.line, cluster.history
    if mirror.next_number <= line.top_number and is_number_known(cluster, facts, line):
        history.find("tube-number", f"{facts.name} goes on at {mirror.next_number} after a loss")
    if old is None:
        return
    count = len(cluster.machines)
    asked = 1 if count == 2 else count // 2 + 1
    is_few = facts.sync == 1 or facts.sync - 1 + asked <= count - 1
    if is_few and not facts.by_majority:
        return  # the nodes that had it may be those that could not be asked
    home = line.homes.get(old.epoch)
    is_noticed = cluster.plan.failover and cluster.plan.policy == "always"  # an old disk (T29.4)
    if not is_noticed and any(m.has_lost_memory for m in cluster.machines if m.name != home):
        return
    least: dict[int, int] = {}  # number -> index of the last change that a client knows
    for _, at in old.told:
        number = old.log[at].number
        least[number] = max(least.get(number, -1), at)
    for number, first in least.items():
        if number in mirror.vague:
            continue
        history.count("synced ops looked for")
        one = mirror.tasks.get(number)
        status = as_loaded(one.status) if one is not None else DONE
        later = [as_loaded(s.status) for s in old.log[first:] if s.number == number]
        if status not in later:
            history.find(
                "tube-sync", f"{facts.name}: task {number} is {status}, clients know of {later}"
            )


def may_forget(m: Machine, tube: Tube) -> bool:
    """Whether the node may have forgotten that it leads, or who does.

    An epoch after the first is sent once it is on the disk, also under `everysec` (T20.3).
    """
    if m.disk_since_us > 0 or m.had_disk_fault or m.settings.policy in ("off", "no"):
        return True
    return m.has_lost_memory and tube.epoch == 1


def is_lost(cluster: Cluster, facts: Facts, ident: Ident) -> bool:
    """Whether the known leader, or the node that handed over to it, lost its memory (T22.2)."""
    newest: Tube | None = None
    for m in cluster.machines:
        t = tubes_on(m.shell.n) if m.shell is not None else None
        tube = t.by_name.get(facts.key) if t is not None else None
        if tube is None or ident_of(tube) != ident:
            continue
        if newest is None or tube.epoch > newest.epoch:
            newest = tube
    if newest is None:
        return True
    home = next((m for m in cluster.machines if m.node_id == newest.home), None)
    giver = facts.lines[ident].homes.get(int(newest.epoch) - 1)
    if home is None or home.shell is None:
        return False
    if not any(may_forget(m, newest) for m in cluster.machines if m is home or m.name == giver):
        return False  # the old leader repeats the handover until the new one has it (T20.3)
    t = tubes_on(home.shell.n)
    own = t.by_name.get(facts.key) if t is not None else None
    return own is None or ident_of(own) != ident or not own.is_mine


def look_for_home(cluster: Cluster, facts: Facts) -> None:
    """When all is well each tube runs somewhere, unless its leader forgot it."""
    now_us = cluster.world.now_us
    for m in cluster.machines:
        t = tubes_on(m.shell.n) if m.shell is not None and not m.shell.s.is_loading else None
        tube = t.by_name.get(facts.key) if t is not None else None
        if tube is not None:  # it was in flight to this node when its leader forgot it
            facts.lines.setdefault(ident_of(tube), Line())
    for ident, line in list(facts.lines.items()):
        cluster.history.count("looks for homes")
        if any(would_do(m, facts, line) for m in cluster.machines):
            line.up_us = now_us
            continue
        line.is_lost = is_lost(cluster, facts, ident)
        if line.is_lost:
            line.up_us = now_us
        elif now_us - max(line.up_us, cluster.healed_us) > HOMELESS_US:
            cluster.history.find("tube-home", f"{facts.name} runs nowhere though all is well")
            line.up_us = now_us
