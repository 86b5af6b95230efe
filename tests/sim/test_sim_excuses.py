"""What judges excuse, and that they excuse no more: beside each excuse the fault that is one.

A judge that expects what the spec does not promise gives false alarms; one that was mended too
widely lets real faults pass. Both are seen here with judges that look at one thing.
"""

from __future__ import annotations

import pytest

from sim.engine.history import OK, OLD_DISK, OPEN, Add, Ask
from sim.engine.network import Line as Wire
from sim.engine.plan import Op, Plan
from sim.flaws.homes import order, three_homes
from sim.judges.leasing import Commit, Held
from sim.machines.thread import STALL_US, SimThread
from sim.runs.cluster import HEAL_MS, SETUP_MS, SLOW_DISK_US, TRAVEL_US, Cluster
from stopped_seed import Situation, Table, rules, stopped
from tuque.core.model.job import QUEUED
from tuque.core.queues.procedures import memory_level

# One row for each situation and what is found in it.
excuse = Table(lambda: Cluster(Plan(seed="excuses", nodes=2)))


@excuse(
    (["kill"], 20 * 7_000, []),
    (["kill"], 20 * 7_000 + 1, ["after-ttl"]),
    (["slow"], TRAVEL_US, []),
    (["slow"], TRAVEL_US + 1, ["after-ttl"]),
    (["disk"], 20 * 7_000 + SLOW_DISK_US, []),
    (["disk"], 20 * 7_000 + SLOW_DISK_US + 1, ["after-ttl"]),
    (["cut", "disk"], TRAVEL_US + SLOW_DISK_US, []),
    (["cut", "disk"], TRAVEL_US + SLOW_DISK_US + 1, ["after-ttl"]),
)
def a_frame_that_was_late_carries_its_ttl(_: Cluster, faults: list[str], late_us: int) -> object:
    """B2.3: the end of a copy is counted from its arrival, however long it was on its way."""
    cluster = Cluster(Plan(seed="late", nodes=2, delay_us=7_000, faults=faults))
    add = cluster.history.new_add(b"q", 20, "n0")
    add.done_us, add.ttl_s = -60_000_000 - 60 * 2000 - 100_000 - late_us, 60
    cluster.history.judge_times(add, 0)
    return rules(cluster)


def test_no_single_frame_is_later_than_the_judge_allows() -> None:
    cluster = Cluster(Plan(seed="late", nodes=2, delay_us=7_000))
    wire = Wire(cluster.world.stream("wire"), cluster.plan.delay_us)
    latest_us = max(wire.draw_us() for _ in range(5_000))
    assert cluster.history.travel_slack_us // 2 < latest_us < cluster.history.travel_slack_us


def journals(cluster: Cluster) -> list[SimThread]:
    shells = [m.shell for m in cluster.machines]
    return [s.thread for s in shells if s is not None and s.thread is not None]


def test_a_disk_that_was_slow_is_not_in_the_calm() -> None:
    """A fault that would last longer ends with the others: all is well from then on."""
    plan = Plan(seed="slow disk", nodes=2, chaos_ms=2_000, policy="always", faults=["disk"])
    plan.ops.append(Op(500, "disk", {"node": 1, "what": "slow", "for_ms": 60_000}))
    seen: list[list[int]] = []

    def look(cluster: Cluster) -> None:
        seen.append([journal.sync_us for journal in journals(cluster)])

    heal_us = (SETUP_MS + plan.chaos_ms) * 1000

    def look_before(cluster: Cluster) -> None:
        cluster.world.at(heal_us - 1_000, lambda: look(cluster))

    stopped(order(plan), heal_us / 1e6 + 0.001, look, look_before)
    assert seen == [[2_000, 400_000], [2_000, 2_000]]


@pytest.mark.parametrize(("sync_us", "most_us"), [(2_000, 60_000), (400_000, STALL_US)])
def test_an_fsync_that_is_begun_ends_before_the_calm_does(sync_us: int, most_us: int) -> None:
    """One of fifty takes far longer than most, but not as long as the cluster has to heal."""
    cluster = stopped(three_homes(1), 3)
    journal = journals(cluster)[0]
    journal.sync_us, journal.stall_us = sync_us, 0
    for _ in range(2_000):
        journal.draw_us()
    assert sync_us * 2 < journal.stall_us <= most_us < HEAL_MS * 1000


@excuse(
    (Exception("MISCONF The journal cannot be written"), []),
    (Exception("OOM memory"), ["commit"]),
    (Exception("FENCED by epoch 2"), ["commit"]),
    (0, []),
    (1, ["commit"]),
    (None, []),
)
def a_commit_that_is_said_again_is_done_unless_no_write_is(cluster: Cluster, reply: object) -> None:
    """J6.1: a write that the disk does not take is refused, whatever it would have done."""
    judge, lease = cluster.leasing, ("n0", b"g", 1)
    judge.held[lease], judge.epochs[lease[:2]] = Held(10_000_000, 1), 1
    again = Commit(lease, 1, False)
    again.was_committed = True
    judge.on_committed(again, reply)


@excuse((0, ["commit"]), (1, []))
def a_commit_does_not_ack_what_another_one_was_told_to_ack_before_it(
    cluster: Cluster, others: int
) -> None:
    """Y7.5: "COMMIT of an expired batch acks its jobs wherever they are by then"; it may come
    before that of the node that leased them next, though this one was sent first."""
    judge, lease = cluster.leasing, ("n0", b"g", 1)
    judge.held[lease] = Held(10_000_000, 1)
    commit, add = Commit(lease, 1, False), Add(b"<1>", b"q", b"", "n0", 0)
    commit.is_first = True
    commit.sure = [(add, Ask("COMMIT", 0, "n0"))]
    add.asks = [commit.sure[0][1], *[Ask("COMMIT", 0, "n1")] * others]
    judge.on_committed(commit, 0)


@pytest.mark.parametrize(("situation", "row"), excuse.rows)
def test_a_judge_excuses_this_and_no_more(situation: Situation, row: tuple[object, ...]) -> None:
    excuse.judge(situation, row)


ADD: dict[str, object] = {"client": "p", "queue": "q", "retry": 30, "ttl": 60, "repl": 1, "node": 0}


def test_a_job_that_its_node_gave_to_others_is_not_looked_for_on_its_disk() -> None:
    """R6.1: "This node sends REPLJOB to n other nodes and is not a holder"."""
    plan = Plan(seed="no room", nodes=2, chaos_ms=3_000, policy="always", faults=["memory"])
    plan.ops = [Op(200, "add", ADD), Op(500, "add", ADD)]

    def fill(cluster: Cluster) -> None:
        shell = cluster.machines[0].shell
        assert shell is not None
        shell.n.limits.memory_bytes = shell.n.used_bytes() * 5 // 4
        assert memory_level(shell.n) == 1

    def begin(cluster: Cluster) -> None:
        cluster.world.at((SETUP_MS + 400) * 1000, lambda: fill(cluster))

    cluster = stopped(order(plan), SETUP_MS / 1000 + 2, begin=begin)
    own, given = cluster.history.adds.values()
    assert (own.outcome, own.is_external) == (OK, False)
    assert (given.outcome, given.is_external) == (OK, True)
    for add, m, found in (
        (given, cluster.machines[1], []),
        (own, cluster.machines[0], ["not-on-disk"]),
    ):
        assert m.shell is not None
        add.node = m.name  # the other one's copy comes to where it was added, and is lost there
        cluster.watcher.lose_copy(m, m.shell, add, m.shell.n.jobs[add.id], "disk", True)
        assert rules(cluster) == found


def test_a_copy_that_came_again_is_younger_than_its_job() -> None:
    """Under `everysec` "at most the last second" is lost; a copy that a repair made later than
    the ADDJOB was answered may be in it."""
    plan = Plan(seed="again", nodes=2, chaos_ms=4_000, policy="everysec", faults=["power"])
    plan.ops = [Op(200, "add", ADD), Op(400, "add", ADD)]
    cluster = stopped(order(plan), SETUP_MS / 1000 + 3)
    first, second = cluster.history.adds.values()
    m = cluster.machines[0]
    assert m.shell is not None
    first.lost_by.add(m.name)  # it went with an earlier life, soon after its answer
    for add, found in ((first, []), (second, ["window"])):
        assert add.outcome == OK
        cluster.watcher.lose_copy(m, m.shell, add, m.shell.n.jobs[add.id], "disk", False)
        assert rules(cluster) == found
    assert second.lost_by == {m.name}


def test_nothing_is_synced_while_a_process_stands_still() -> None:
    """Under `everysec` "at most the last second" is lost, of the time in which the node ran."""
    plan = Plan(seed="still", nodes=2, chaos_ms=4_000, policy="everysec", faults=["power"])
    plan.ops = [Op(400, "add", ADD)]
    cluster = stopped(order(plan), SETUP_MS / 1000 + 3)
    (add,), m = cluster.history.adds.values(), cluster.machines[0]
    assert m.shell is not None and add.outcome == OK
    m.shell.is_paused = True
    for paused_us, found in ((add.done_us, []), (cluster.world.now_us, ["window"])):
        m.shell.paused_us = paused_us
        cluster.watcher.lose_copy(m, m.shell, add, m.shell.n.jobs[add.id], "disk", False)
        assert rules(cluster) == found
        add.lost_by.clear()


def test_a_job_was_not_given_away_by_a_node_that_ends_before_its_answer_is_heard() -> None:
    """What the node had when it gave its answer counts, not what it has when that arrives."""
    plan = Plan(seed="late answer", nodes=2, chaos_ms=3_000, policy="always", delay_us=50_000)
    plan.faults, plan.ops = ["kill"], [Op(500, "add", ADD)]
    heard: list[str] = []

    def end_when_given(cluster: Cluster) -> None:
        shell = cluster.machines[0].shell
        assert shell is not None
        if shell.n.jobs and len(shell.pump.gate.held) == 0:
            heard.extend(add.outcome for add in cluster.history.adds.values())
            cluster.machines[0].die(how="kill", back="disk", down_ms=1_000)
        else:
            cluster.world.after(1_000, lambda: end_when_given(cluster))

    def begin(cluster: Cluster) -> None:
        cluster.world.at(SETUP_MS * 1000, lambda: end_when_given(cluster))

    cluster = stopped(order(plan), SETUP_MS / 1000 + 1.2, begin=begin)
    (add,) = cluster.history.adds.values()
    assert cluster.machines[0].shell is None and heard == [OPEN]
    assert (add.outcome, add.is_external) == (OK, False)


@pytest.mark.parametrize(
    ("fault", "words", "is_paused"),
    [
        ("clock", ["none", "bcast"], False),
        ("clock", ["none"], True),
        ("cut", ["none", "bcast"], True),
    ],
)
def test_a_pause_that_is_newer_by_a_clock_that_was_set_is_ended_again(
    fault: str, words: list[str], *, is_paused: bool
) -> None:
    """P3.2: of two PAUSE with BCAST the newer counts, by the clocks of those who were told."""
    plan = Plan(seed="late pause", nodes=2, chaos_ms=2_000, faults=[fault])
    pause = {"client": "boss", "node": 0, "queue": "q", "words": words}
    plan.ops = [Op(500, "add", ADD), Op(600, "queue_pause", pause)]

    def late(cluster: Cluster) -> None:
        for m in cluster.machines:
            cluster.person("late").session(m.name).ask([b"PAUSE", b"q", b"in"], lambda _: None)

    heal_ms = SETUP_MS + plan.chaos_ms

    def begin(cluster: Cluster) -> None:
        cluster.world.at((heal_ms + 1_000) * 1000, lambda: late(cluster))

    cluster = stopped(order(plan), (heal_ms + HEAL_MS / 2 + 1_000) / 1000, begin=begin)
    shells = [m.shell for m in cluster.machines]
    queues = [shell.n.queues.get(b"q") for shell in shells if shell is not None]
    assert [q is not None and q.pause != 0 for q in queues] == [is_paused] * 2


def test_an_ack_does_not_reach_a_node_that_was_forgotten() -> None:
    """A3.4: "SETACK that names no holders goes to all nodes"; one that was forgotten is none of
    them (K6.1)."""
    cluster = stopped(Plan(seed="apart", nodes=2, ops=[Op(200, "add", ADD)]), SETUP_MS / 1000 + 2)
    (add,), (owner, other) = cluster.history.adds.values(), cluster.machines
    assert other.shell is not None and owner.has_copy(add.id)
    n, person = other.shell.n, cluster.person("w")
    for forgotten in (0, 1 << n.slot_of[owner.node_id]):
        n.forgotten = forgotten
        person.on_answer(add, Ask("ACKJOB", cluster.world.now_us, other.name), 0)
        assert bool(add.ack_excuse) == bool(forgotten)


def test_who_else_has_a_job_may_be_lost_with_an_unsynced_record() -> None:
    """J4.2: "everysec: written each turn, synced once a second": an ack is told to fewer then."""
    plan = Plan(seed="unsynced", nodes=2, policy="everysec", is_faultless=False)
    plan.ops = [Op(200, "add", ADD | {"repl": 2})]
    cluster = stopped(plan, SETUP_MS / 1000 + 2)
    (add,), (m, other) = cluster.history.adds.values(), cluster.machines
    assert m.shell is not None
    m.kept = {add.id: True}
    for holders in ([other.node_id], []):
        m.kept_holders = {add.id: holders}
        cluster.watcher.on_death(m, m.shell, "power", "disk")
        assert bool(add.ack_excuse) == (not holders)


def test_holders_that_do_not_know_each_other_settle_nothing() -> None:
    """Q12: only holders that know each other can settle who serves a job; that they do (K5.6) takes
    more than the copy of an old disk, which names holders of that time.
    """
    plan = Plan(seed="strangers", nodes=2, ops=[Op(200, "add", ADD | {"repl": 2})])
    cluster = stopped(plan, SETUP_MS / 1000 + 4)
    (add,), machines = cluster.history.adds.values(), cluster.machines
    both = {add.id: {m.name for m in machines}}
    for holders in (3, 1):
        for m in machines:
            assert m.shell is not None
            m.shell.n.jobs[add.id].state = QUEUED
            m.shell.n.jobs[add.id].holders = holders
        assert cluster.again.look() == both
    add.excuse = OLD_DISK
    assert cluster.again.look() == {}
    machines[0].shell.n.jobs[add.id].holders = 3  # one knows the other
    assert cluster.again.look() == both
