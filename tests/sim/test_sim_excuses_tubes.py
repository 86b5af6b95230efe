"""What judges of tubes excuse, and that they excuse no more: beside each excuse a real fault."""

from __future__ import annotations

import pytest

from sim.engine.plan import Op, Plan
from sim.flaws.homes import three_homes
from sim.machines.machine import Machine
from sim.runs.cluster import SETUP_MS, Cluster
from sim.tube_judges.disk import (
    KeptTube,
    forget,
    ident_of,
    judge_disk,
    judge_tokens,
    tubes_on,
)
from sim.tube_judges.facts import Facts, Line, State
from sim.tube_judges.homes import (
    count_takes,
    excuse_of,
    excuse_of_start,
    is_lost,
    judge_epoch,
    judge_forced,
    judge_start,
    may_forget,
    note_sessions,
)
from sim.tube_judges.mirror import Mirror
from sim.tube_judges.turns import judge_pause
from sim.workload.tube_movers import TubeForcer
from stopped_seed import Situation, Table, rules, stopped
from tuque.core.model.task import READY, Task
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.tubes.entries.group import ChildEntry

# One row for each situation and what is found in it; three_homes() has a tube t0 at n0.
excuse = Table(lambda: stopped(three_homes(1), 10.1))
of_a_fresh_cluster = Table(lambda: Cluster(three_homes(1)))


def at_home(cluster: Cluster) -> tuple[Machine, Mirror]:
    """The home of t0, which is n0, and the tube there."""
    m = cluster.machines[0]
    assert cluster.tubing.facts[b"t0"].home == m.name
    return m, cluster.tubing.mirrors[m.name, b"t0"]


@excuse(
    (True, 0, False, (True, [])),
    (True, 0, True, (True, ["tube-disk"])),
    (True, 1, True, (False, [])),
    (False, 0, True, (False, [])),
)
def a_home_whose_giving_away_is_not_on_its_disk_is_the_home_again(
    cluster: Cluster, is_mine: bool, older: int, hole: bool
) -> object:
    """T20.3: nobody hears of the next home before the disk has it: what the disk has counts."""
    m, mirror = at_home(cluster)
    kept = m.kept_tubes[b"t0"] = KeptTube(mirror.tube)
    kept.is_mine, kept.epoch = is_mine, kept.epoch - older
    if hole:
        kept.statuses[kept.next_number - 1] = READY
        kept.statuses[0] = READY
    before = mirror.line.state = State({}, 0, False, False)
    mirror.tube.is_mine = False
    assert m.shell is not None
    judge_disk(cluster, m, m.shell, mirror, "disk")
    state = mirror.line.state
    assert state is before or (state is not None and state.statuses == kept.statuses)
    return state is not before, rules(cluster)


@excuse((True, 4), (False, 0))
def a_record_of_a_child_that_goes_at_rest_is_sent_to_the_others(
    cluster: Cluster, is_child: bool
) -> int:
    """T18.2: TUBE-COPY and TUBE-GOT for each of two followers; no other change is excused."""
    _, mirror = at_home(cluster)
    task = Task(b"%040d" % 1, b"t0", b"", 0, 1 << 40, 0, 0)
    if is_child:
        task.entry = ChildEntry()
    mirror.tube.tasks[task.number] = task
    cluster.verdicts.on_rest()
    del mirror.tube.tasks[task.number]
    return cluster.verdicts.timed_messages()


@excuse((True, (-1, {}, {b"other": 7})), (False, (99, {}, {b"other": 7})))
def a_home_that_has_lost_tasks_says_nothing_of_another_tube_of_that_name(
    cluster: Cluster, is_same: bool
) -> object:
    """T17.5: a tube that was created again is another one, though clients know one name."""
    m, mirror = at_home(cluster)
    facts, other = mirror.facts, Line()
    assert m.shell is not None
    put = facts.new_put(0, {})
    put.number, put.line = 99, mirror.line if is_same else other
    m.kept_tubes[b"t0"] = KeptTube(mirror.tube)
    judge_disk(cluster, m, m.shell, mirror, "disk")
    facts.lines[b"maker", 1] = other
    other.by_job[b"other"] = 7
    forget(cluster, facts, ident_of(mirror.tube))
    assert rules(cluster) == []
    return put.number, mirror.line.by_job, other.by_job


@excuse(
    (2, True, "empty", "T19.4"),
    (2, True, "down", ""),
    (2, True, "", ""),
    (2, False, "empty", ""),
    (3, True, "empty", "T19.4"),
    (3, True, "", ""),
    (3, False, "empty", ""),
)
def a_disk_older_than_an_epoch_knows_no_more_of_it_than_an_empty_one(
    _: Cluster, nodes: int, is_old: bool, peer: str
) -> object:
    """T19.4: "A node that lost its journal, or was given an old one, reports nothing"."""
    cluster, line = stopped(Plan(seed="old", nodes=nodes, policy="always"), 5), Line()
    m, other = cluster.machines[:2]
    line.epoch, line.epoch_us = 2, 1_000_000
    m.disk_since_us = line.epoch_us + int(is_old)
    other.has_lost_disk = peer == "empty"
    if peer == "down":
        other.shell = None
    return excuse_of_start(cluster, m, Facts("t0", {"type": "fifo"}), line)


@excuse(
    (2, "always", 0, "", False),
    (1, "everysec", 0, "has_lost_memory", True),
    (2, "everysec", 0, "has_lost_memory", False),
    (2, "no", 0, "has_lost_memory", True),
    (2, "always", 0, "had_disk_fault", True),
    (2, "always", 0, "disk_since_us", True),
    (2, "always", 1, "had_disk_fault", False),
    (2, "always", 2, "had_disk_fault", True),
)
def a_tube_is_lost_if_its_home_or_who_gave_it_away_may_forget(
    cluster: Cluster, epoch: int, policy: str, who: int, what: str
) -> object:
    """T20.3: an epoch after the first is told when the disk has it, under `everysec`, too."""
    home, mirror = at_home(cluster)
    for m in cluster.machines:
        assert m.shell is not None
        t = tubes_on(m.shell.n)
        assert t is not None
        t.by_name[b"t0"].epoch = epoch
        m.settings.policy = policy
    mirror.line.homes = {1: "n2", 2: "n0"} if epoch == 2 else {1: "n0"}
    mirror.tube.is_mine = False
    if what:
        setattr(cluster.machines[who], what, 1)
    facts = cluster.tubing.facts[b"t0"]
    (ident,) = facts.lines
    said = is_lost(cluster, facts, ident)
    assert who or may_forget(home, mirror.tube) == said
    mirror.tube.is_mine = True
    assert not is_lost(cluster, facts, ident)
    return said


@excuse(
    ("T19.4", 2, []),
    ("T19.4", 1, ["tube-home"]),  # the same home again: it is what it was
    ("", 2, ["tube-twice", "tube-home"]),
)
def an_older_home_of_two_goes_on_from_what_it_had(
    cluster: Cluster, excuse: str, newest: int
) -> None:
    """T19.4: "the newest home is down or not linked meanwhile, an older one may run"."""
    m, mirror = at_home(cluster)
    line, facts = mirror.line, mirror.facts
    assert m.shell is not None and mirror.epoch == 1
    old = Mirror(facts, line, mirror.tube, 0, cluster.tubing.find, False)
    old.epoch = line.epoch = newest
    line.excuse, line.mirror = excuse, old
    line.state = State({}, mirror.next_number, True, True)  # the other home had no tasks left
    judge_start(cluster, m, m.shell, mirror)
    assert mirror.tasks


@excuse((True, []), (False, ["tube-home"]))
def the_second_home_of_an_epoch_goes_on_from_what_it_had(cluster: Cluster, is_forced: bool) -> None:
    """T21.1: "the command itself is the word that the other one is dead", said to both of two."""
    m, mirror = at_home(cluster)
    line, facts = mirror.line, mirror.facts
    assert m.shell is not None
    line.excuse, line.homes = "T21.1", {}
    judge_epoch(cluster, cluster.machines[1], facts, line, mirror.epoch)  # it runs there first
    line.mirror = Mirror(facts, line, mirror.tube, 0, cluster.tubing.find, False)
    line.mirror.epoch = mirror.epoch
    line.state = State({}, mirror.next_number, True, True)  # the first had no tasks left
    if is_forced:
        facts.forced[m.name] = cluster.world.now_us
    judge_start(cluster, m, m.shell, mirror)
    assert mirror.tasks


@excuse(
    (1, False, []),
    (0, False, ["tube-pause"]),
    (1, True, ["tube-pause"]),  # given away in this turn: the next one has not heard of it yet
    (2, True, []),
)
def a_home_that_was_given_away_may_be_paused_as_the_next_one(
    cluster: Cluster, later: int, is_owed: bool
) -> None:
    """T17.7: the pause of a tube is that of its home, from its next epoch on of the next one."""
    m, mirror = at_home(cluster)
    assert m.shell is not None
    t = tubes_on(m.shell.n)
    assert t is not None and mirror.line.pause == 0
    mirror.tube.epoch += later
    mirror.tube.is_owed = is_owed
    mirror.tube.pause = PAUSE_IN
    cluster.tubing.cease(m, t, mirror)


@excuse(
    (0, PAUSE_OUT, 0, []),
    (PAUSE_OUT, 0, 0, []),  # a PAUSE in this turn, too
    (PAUSE_OUT, PAUSE_OUT, 2, []),
    (0, 0, 0, ["tube-wait"]),
    (0, PAUSE_IN, 0, ["tube-wait"]),
    (0, PAUSE_OUT, 2, ["tube-wait"]),  # the next home is paused, this one was not
)
def a_take_in_the_turn_in_which_a_home_ceases_may_find_it_paused(
    cluster: Cluster, before: int, now: int, later: int
) -> None:
    """P2.2: "GETJOB gets nothing from it"; the tube ran until the command after the take."""
    m, mirror = at_home(cluster)
    assert m.shell is not None
    t = tubes_on(m.shell.n)
    assert t is not None and any(one.status == READY for one in mirror.tasks.values())
    cluster.world.now_us += 1_000
    asked_us = cluster.world.now_us - 500
    mirror.waits.pause, mirror.line.pause = before, -1
    mirror.tube.pause, mirror.tube.epoch = now, mirror.epoch + later
    cluster.tubing.cease(m, t, mirror)
    cluster.tubing.on_taken(mirror.facts, m.name, object(), asked_us, None)


@excuse(("T21.1", True, []), ("T21.1", False, ["tube-pause"]), ("", True, ["tube-pause"]))
def two_homes_that_may_run_are_paused_each_as_it_was_told(
    cluster: Cluster, excuse: str, is_up: bool
) -> None:
    """T21.1: "the command itself is the word that the other one is dead"; it may live."""
    _, mirror = at_home(cluster)
    line = mirror.line
    other = Mirror(mirror.facts, line, mirror.tube, 0, cluster.tubing.find, False)
    other.is_up, line.excuse, line.pause = is_up, excuse, PAUSE_IN
    cluster.tubing.mirrors["n1", b"t0"] = other
    judge_pause(cluster.tubing, mirror)


@excuse((0, False, []), (1, False, ["tube-number"]), (0, True, ["tube-number"]))
def numbers_that_no_disk_and_no_node_knows_may_come_again(
    cluster: Cluster, old_disks: int, knows: bool
) -> None:
    """T21.3: "Numbers go on 1,000,000 above the highest known, so that none is given twice"."""
    _, mirror = at_home(cluster)
    line = mirror.line
    line.top_number, line.top_us = mirror.next_number, cluster.world.now_us
    for m in cluster.machines[old_disks:]:
        m.disk_since_us = line.top_us + 1
    shell = cluster.machines[1].shell
    t = None if shell is None else tubes_on(shell.n)
    assert t is not None and not t.by_name[b"t0"].is_mine
    t.by_name[b"t0"].next_number = line.top_number + int(knows)
    judge_forced(cluster, mirror, None)


@pytest.mark.parametrize(("back", "waits"), [("empty", True), ("disk", False)])
def test_a_new_disk_knows_nothing_from_before_its_node_started(back: str, *, waits: bool) -> None:
    """T21.3: "the highest known": what was told while the node was down, it does not know."""
    cluster = stopped(three_homes(1), 10)
    m = cluster.machines[1]
    m.die(how="kill", back=back, down_ms=60_000)
    gone_us = cluster.world.now_us
    cluster.world.now_us += 5_000_000
    m.start()
    assert m.shell is not None
    assert m.disk_since_us == (gone_us + 5_000_000 if waits else 0)


def test_a_session_of_the_last_home_ends_its_ttr_after_it_was_settled() -> None:
    """T20.5: "its client identifies itself at the new home within ttr"; tasks come later."""
    cluster = stopped(three_homes(1), 10)
    m, _ = at_home(cluster)
    shell = m.shell
    assert shell is not None
    t = tubes_on(shell.n)
    assert t is not None
    session = next(iter(t.sessions.values()))
    session.clients = {}
    cluster.tubing.closed.clear()
    note_sessions(cluster, m, shell)
    since_ms = int(shell.n.now_ms)
    shell.n.now_ms += 7
    note_sessions(cluster, m, shell)
    assert cluster.tubing.closed == {(m.name, int(session.number)): (since_ms, int(t.ttr_ms))}


@of_a_fresh_cluster(
    ("no", "cut", "T20.3"),
    ("no", "full", "T20.3"),
    ("no", "", ""),
    ("everysec", "cut", ""),
    ("everysec", "full", ""),
)
def a_disk_that_is_never_awaited_excuses_after_a_power_cut_or_a_fault(
    cluster: Cluster, policy: str, what: str
) -> object:
    """T20.3: "after a power failure, or a stop while the disk is full, two nodes may be RUNNING
    until they learn of each other"."""
    m = cluster.machines[0]
    m.settings.policy, m.had_power_cut, m.has_lost_memory = policy, what == "cut", True
    m.had_disk_fault = what == "full"
    return excuse_of(m, Line())


@excuse(
    ("no", True, False, ("T20.3", [])),
    ("no", True, True, ("", [])),  # it was told, and runs all the same: its own starts only
    ("no", False, False, ("", ["tube-twice"])),
    ("everysec", True, False, ("", ["tube-twice"])),
)
def who_gets_a_tube_of_a_home_that_forgot_an_epoch_is_excused_with_it(
    cluster: Cluster, policy: str, is_cut: bool, knows: bool
) -> object:
    """T20.3: "With `appendfsync no` the disk is never waited for"; epochs may come again."""
    m, mirror = at_home(cluster)
    line = mirror.line
    assert m.shell is not None and cluster.machines[1].shell is not None
    m.settings.policy, m.had_power_cut = policy, is_cut
    t = tubes_on(cluster.machines[1].shell.n)
    assert t is not None
    t.by_name[b"t0"].epoch += int(knows)
    line.state, line.epoch = None, 2
    judge_start(cluster, m, m.shell, mirror)
    return line.excuse, rules(cluster)


@excuse((1, "", []), (2, "", ["doubled takes"]), (2, "T21.1", ["doubled takes T21.1"]))
def takes_of_a_home_that_is_none_are_counted_by_what_allows_them(
    cluster: Cluster, epoch: int, excuse: str
) -> object:
    """T20.4: "Two nodes are never RUNNING for one tube", but where SPEC says so."""
    m, mirror = at_home(cluster)
    mirror.line.epoch, mirror.line.excuse = epoch, excuse
    count_takes(cluster, m, mirror, 3)
    counts = cluster.history.counts
    doubled = [what for what in counts if what.startswith("doubled")]
    assert all(counts[what] == 3 for what in doubled)
    return doubled


@of_a_fresh_cluster(
    (Exception("TUBEHOME it has no copy"), 7, 7),
    (Exception("TUBEHOME it has no copy"), 0, 0),
    (Exception("TUBEHOME it is moving"), 7, 9),
    ([b"t0"], 7, 9),
    (None, 0, 9),
)
def a_force_that_is_refused_leaves_the_one_that_is_on_its_way(
    cluster: Cluster, reply: object, earlier_us: int
) -> object:
    """A home that comes of the first FORCE is one by force, though a second one was refused."""
    facts, m = cluster.tubing.facts[b"t0"], cluster.machines[1]
    if earlier_us:
        facts.forced[m.name] = earlier_us
    forcer = TubeForcer(cluster, "f", {"tube": "t0", "node": 0, "for_ms": 1_000})
    cluster.world.now_us = 9
    force = forcer.force(m)
    next(force)
    assert facts.forced == {m.name: 9}
    with pytest.raises(StopIteration):
        force.send(reply)
    return facts.forced.get(m.name, 0)


@of_a_fresh_cluster(
    ("off", "disk", 3, 3),
    ("always", "empty", 3, 3),
    ("always", "old", 3, 3),
    ("always", "empty", 12, 9),  # another node has them, and tells of them
    ("always", "disk", 3, 9),
)
def tokens_go_back_as_far_as_nobody_knows_them(
    cluster: Cluster, policy: str, back: str, known: int
) -> object:
    """T5.1: "greater than any before on this node", if its disk, or another one, has them."""
    facts, lost, other, third = cluster.tubing.facts[b"t0"], *cluster.machines
    line = facts.lines[b"maker", 1] = Line()
    lost.settings.policy, lost.kept_tokens = policy, 20
    other.kept_token, third.kept_token, line.newest_token = known, 2, 9
    judge_tokens(cluster, lost, facts, back)
    newest = line.newest_token
    line.told_tokens["n0"] = 21
    judge_tokens(cluster, lost, facts, back)
    assert rules(cluster) == (["tube-fence"] if (policy, back) == ("always", "disk") else [])
    return newest


def test_a_disk_has_the_newest_token_of_a_follower() -> None:
    """T18.3: copies come with their tokens: who has one gives no smaller one (T5.1)."""
    seen: list[int] = []

    def end(cluster: Cluster) -> None:
        follower = cluster.machines[1]
        seen.append(follower.newest_token())
        follower.die(how="kill", back="disk", down_ms=5_000)
        assert follower.shell is None
        seen.append(follower.newest_token())

    stopped(three_homes(1), 10, end)
    assert seen[1] >= seen[0] > 0  # more: it reserves some when it starts


@pytest.mark.parametrize(
    ("policy", "back", "is_lost_now"),
    [
        ("always", "disk", False),
        ("no", "disk", False),
        ("off", "disk", True),
        ("always", "empty", True),
    ],
)
def test_a_node_without_a_journal_loses_what_a_disk_would_keep(
    policy: str, back: str, *, is_lost_now: bool
) -> None:
    """T19.4: "tells nothing of what it knew"; a node without a journal has nothing else."""
    plan = Plan(seed="no journal", nodes=2, policy=policy)

    def end(cluster: Cluster) -> None:
        cluster.machines[1].die(how="kill", back=back, down_ms=5_000)

    machines = stopped(plan, 3, end).machines
    assert [m.has_lost_disk for m in machines] == [False, is_lost_now]


def test_addjob_makes_a_plain_job_where_the_tube_could_not_be_made() -> None:
    """T19.5: "CREATE and all changes are refused there": ADDJOB needs no tube."""
    add = {"client": "p", "queue": "t0", "retry": 5, "ttl": 60, "repl": 1, "node": 0}
    tube = {"tube": "t0", "type": "fifo", "node": 0}
    plan = Plan(seed="plain", nodes=1, ops=[Op(0, "tube", tube), Op(200, "add", add)])
    cluster = stopped(plan, SETUP_MS / 1000 + 2)
    (job,), facts = cluster.history.adds.values(), cluster.tubing.facts[b"t0"]
    for id, is_plain, found in ((b"D-0", False, ["tube-number"]), (job.id, True, [])):
        cluster.history.findings.clear()
        cluster.tubing.on_put(facts, facts.new_put(0, {}), "n0", id)
        assert (facts.is_plain, rules(cluster)) == (is_plain, found)


@pytest.mark.parametrize(("situation", "row"), excuse.rows)
def test_a_judge_of_tubes_excuses_this_and_no_more(
    situation: Situation, row: tuple[object, ...]
) -> None:
    excuse.judge(situation, row)


@pytest.mark.parametrize(("situation", "row"), of_a_fresh_cluster.rows)
def test_a_judge_looks_before_anything_has_happened(
    situation: Situation, row: tuple[object, ...]
) -> None:
    of_a_fresh_cluster.judge(situation, row)
