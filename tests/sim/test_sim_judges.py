"""Each judge of the simulator sees what it is there to see: every promise is broken once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from sim.engine.history import OK, OPEN, REFUSED, Delivery
from sim.engine.plan import Op, Plan
from sim.judges.checkers import transits_over
from sim.judges.leasing import Held, Pass
from sim.judges.verdicts import Verdicts
from sim.machines import shell
from sim.runs.cluster import Cluster
from sim.runs.seeds import run_plan
from tuque.core.model import stats
from tuque.core.model.job import ACTIVE, DELIVERED, QUEUED, Job
from tuque.core.msgs.bus import GotJob
from tuque.core.node.node import Node
from tuque.core.node.peers import say
from tuque.core.queues.procedures import enqueue, register, remove
from tuque.store.writer import Journal

Sabotage = Callable[[Cluster], None]


def quiet_plan(**settings: object) -> Plan:
    """Two nodes, a few jobs of each kind, consumers that come late."""
    plan = msgspec.structs.replace(Plan(seed="judges", nodes=2, chaos_ms=12_000), **settings)
    for i in range(12):
        args = {"client": "p", "node": i % 2, "queue": "q", "retry": [0, 2, 3][i % 3], "ttl": 60}
        args |= {"repl": 1 if i % 3 == 0 else 2, "delay": 6 if i == 1 else 0}
        plan.ops.append(Op(100 + 10 * i, "add", args))
    worker: dict[str, object] = {
        "client": "w",
        "node": 0,
        "queues": ["q"],
        "for_ms": 6_000,
        "work_ms": 50,
    }
    worker["p_drop"] = 1.0
    plan.ops.append(Op(5_000, "worker", worker))
    return plan


def nodes(cluster: Cluster) -> list[Node]:
    return [m.shell.n for m in cluster.machines if m.shell is not None]


def later(cluster: Cluster, at_s: float, what: Sabotage) -> None:
    cluster.world.at(int(at_s * 1e6), lambda: what(cluster))


def drop_a_job(cluster: Cluster) -> None:
    """All copies of a job expire long before their time."""
    id = next(a.id for a in cluster.history.adds.values() if a.retry_s > 0 and not a.delay_s)
    for n in nodes(cluster):
        if id in n.jobs:
            remove(n, n.jobs[id], stats.EXPIRED)


def miscount(cluster: Cluster) -> None:
    """A node counts a job that never came."""
    nodes(cluster)[0].ledger.created += 1


def hand_out_again(cluster: Cluster) -> None:
    """A job that may be handed out once goes back into its queue."""
    for n in nodes(cluster):
        for job in n.jobs.values():
            if job.retry_s == 0 and job.flags & DELIVERED and job.state == ACTIVE:
                job.flags &= 0xFF ^ DELIVERED
                enqueue(n, job)
                return


def bring_back(cluster: Cluster) -> None:
    """A job comes to life that was acked."""
    add = next(a for a in cluster.history.adds.values() if a.acked_us() and a.retry_s > 0)
    n = nodes(cluster)[0]
    job = Job(add.id, add.queue, add.body, n.next_ctime_ns(), n.now_ms + 30_000, 9, 0, 1)
    if add.id not in n.jobs:
        register(n, job, stats.IMPORTED)
        enqueue(n, job)


def hurry(cluster: Cluster) -> None:
    """A delayed job is queued early."""
    for n in nodes(cluster):
        for job in n.jobs.values():
            if job.delay_s and job.state == ACTIVE:
                enqueue(n, job)


def outlive(cluster: Cluster) -> None:
    """A job does not die in time."""
    for n in nodes(cluster):
        for job in n.jobs.values():
            job.expire_ms += 1_000_000
    for add in cluster.history.adds.values():
        add.ttl_s = 3


def bury_alive(cluster: Cluster) -> None:
    """A node sends that a job is over, and it waits."""
    n = nodes(cluster)[0]
    for job in nodes(cluster)[1].jobs.values():
        if job.state == QUEUED:
            n.tombs.bury(job.id, job.expire_ms, 2, n.round + 1_000_000)
            return


def never_rest(cluster: Cluster) -> None:
    """A node sends messages all the time."""
    say(nodes(cluster)[0], 1, GotJob([b"x" * 40]))
    cluster.machines[0].shell.wake()  # type: ignore[union-attr] # it lives
    cluster.world.after(20_000, lambda: never_rest(cluster))


SABOTAGE: dict[str, tuple[float, Sabotage]] = {
    "lost": (10.0, drop_a_job),
    "ledger": (10.0, miscount),
    "twice": (14.0, hand_out_again),
    "came-back": (45.0, bring_back),
    "before-delay": (11.0, hurry),
    "after-ttl": (11.0, outlive),
    "unsafe-end": (11.0, bury_alive),
    "restless": (11.0, never_rest),
}


@pytest.mark.parametrize("rule", SABOTAGE)
def test_a_broken_promise_is_seen(rule: str) -> None:
    at_s, what = SABOTAGE[rule]
    assert rule not in run_plan(quiet_plan()).rules()
    found = run_plan(quiet_plan(), tweak=lambda cluster: later(cluster, at_s, what)).rules()
    assert rule in found


def test_what_was_promised_and_is_not_on_the_disk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = quiet_plan(policy="always", is_faultless=False)
    crash = {"node": 0, "how": "power", "back": "disk", "down_ms": 500}
    plan.ops.append(Op(500, "crash", crash))  # before the mark that a silent journal gets (J3.2)
    assert run_plan(plan).rules() == []

    def sync(self: Journal) -> bool:
        self.synced_seq = self.seq
        return True

    monkeypatch.setattr(Journal, "sync", sync)
    assert "not-on-disk" in run_plan(plan).rules()


def clock_plan(how: str) -> Plan:
    """A node is down for a while, and its wall clock is set meanwhile."""
    plan = quiet_plan(policy="always", is_faultless=False)
    plan.ops.append(Op(2_000, "crash", {"node": 1, "how": how, "back": "disk", "down_ms": 1_000}))
    plan.ops.append(Op(2_500, "clock", {"node": 1, "jump_ms": 5_000}))
    return plan


def test_a_clock_that_is_set_while_the_machine_is_off_passes_for_time() -> None:
    """J5.8 Time that the machine was off counts, as its clock tells it when it is on again; nobody
    can tell then whether the clock was set meanwhile."""
    clusters: list[Cluster] = []
    assert run_plan(clock_plan("power"), tweak=clusters.append).rules() == []
    assert clusters[0].history.are_times_off
    early = [
        add for add in clusters[0].history.adds.values()
        if add.delay_s and add.deliveries[0].at_us < add.asked_us + add.delay_s * 1_000_000
    ]  # fmt: skip
    assert len(early) == 1  # which is what a finding would have been made of


def test_a_clock_that_is_set_while_only_the_process_is_down_excuses_nothing() -> None:
    clusters: list[Cluster] = []
    assert run_plan(clock_plan("kill"), tweak=clusters.append).rules() == []
    assert not clusters[0].history.are_times_off
    assert clusters[0].history.counts["delays checked"] == 1


def moving_plan() -> Plan:
    """A job that may be handed out once arrives at n1; n0 hears of that while it loads."""
    plan = Plan(seed="moving", nodes=2, chaos_ms=8_000, policy="always", load_us=100_000)
    plan.is_faultless, plan.opens_early = False, True
    once = {"client": "p", "node": 0, "queue": "q", "retry": 0, "ttl": 60, "repl": 1}
    for i in range(40):  # so that the load takes more than one turn
        plan.ops.append(Op(100 + i, "add", {**once, "queue": "other"}))
    worker = {"client": "w", "node": 1, "queues": ["q"], "for_ms": 6_000, "work_ms": 3_000}
    plan.ops += [
        Op(500, "worker", {**worker, "timeout": 5_000}),
        Op(1_000, "cut", {"a": [1], "b": [0], "one_way": True, "for_ms": 700}),
        Op(1_100, "add", once),
        Op(1_500, "crash", {"node": 0, "how": "kill", "back": "disk", "down_ms": 300}),
    ]
    return plan


def test_a_job_that_went_on_at_the_end_of_the_load_was_on_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F3.5 While this node loads, it neither refuses an AMO job nor answers GOTJOBS: the same job
    may be in its journal. Both are processed when the load is done;"""
    found: list[dict[bytes, bool]] = []

    def note(n: Node) -> dict[bytes, bool]:
        found.append(transits_over(n))
        return found[-1]

    monkeypatch.setattr(shell, "transits_over", note)
    assert run_plan(moving_plan()).rules() == []
    assert [len(arrived) for arrived in found].count(1) == 1
    monkeypatch.setattr(shell, "transits_over", lambda _: {})
    assert "not-on-disk" in run_plan(moving_plan()).rules()


@pytest.mark.parametrize(("outcome", "count"), [(OK, 1), (OPEN, 0), (REFUSED, 0)])
def test_a_job_whose_adding_may_fail_may_leave_its_batch(outcome: str, count: int) -> None:
    """R5.2 DELJOB goes to every holder; an unlinked holder gets it when it is linked again. The
    record is unregistered with cause add-failed.
    """
    cluster = Cluster(Plan(seed="commit", nodes=1))
    judge, m = cluster.leasing, cluster.machines[0]
    add = cluster.history.new_add(b"q", 20, m.name)
    add.id, add.outcome, add.ttl_s = b"D-1", outcome, 60
    cluster.history.by_id[add.id] = add
    held = judge.held[m.name, b"g", 1] = Held(10_000_000, 1)
    judge.epochs[m.name, b"g"] = 1
    held.known[1] = {add.id: None}
    held.passes[1, 0] = Pass(m.name, b"g", 1, 1, 0, 1, False)
    held.passes[1, 0].rows[add.id] = (add.queue, add.body, 1)
    assert len(judge.on_commit_asked(m, b"g", 1, 1).sure) == count


def forgetful_plan(*, is_set: bool) -> Plan:
    """n0 alone knows of an ack when its power goes; n1 comes back with the job."""
    plan = Plan(seed="acks", nodes=2, chaos_ms=12_000, policy="always", is_faultless=False)
    add = {"client": "p", "node": 1, "queue": "q", "retry": 1, "ttl": 60, "repl": 2}
    plan.ops = [
        Op(100, "add", add),
        Op(1_000, "crash", {"node": 1, "how": "kill", "back": "disk", "down_ms": 4_000}),
        Op(
            1_500,
            "worker",
            {"client": "w", "node": 0, "queues": ["q"], "for_ms": 2_500, "work_ms": 50},
        ),
        Op(4_500, "crash", {"node": 0, "how": "power", "back": "disk", "down_ms": 3_000}),
    ]
    if is_set:
        plan.ops.append(Op(500, "clock", {"node": 0, "jump_ms": 3_600_000}))
    return plan


@pytest.mark.parametrize(("is_set", "times"), [(False, 1), (True, 2)])
def test_a_clock_that_was_set_may_end_the_record_of_an_ack(*, is_set: bool, times: int) -> None:
    """J5.8 Time that the machine was off counts, as its clock tells it when it is on again."""
    clusters: list[Cluster] = []
    assert run_plan(forgetful_plan(is_set=is_set), tweak=clusters.append).rules() == []
    add = clusters[0].history.adds[b"<0>"]
    assert len(add.deliveries) == times and add.acked_us()
    assert bool(add.ack_excuse) == is_set


@pytest.mark.parametrize(
    ("first", "second", "is_early"),
    [
        (("n0", 10_000, 10_300), ("n1", 10_100, 10_110), False),  # n1 could not know
        (("n0", 10_000, 10_050), ("n1", 10_100, 10_110), True),
        (("n0", 10_000, 10_300), ("n0", 10_100, 10_300), True),  # it knew itself
        (("n0", 10_000, 10_000), ("n1", 11_100, 11_100), False),
    ],
)
def test_a_delivery_is_early_where_the_one_before_was_known(
    first: tuple[str, int, int], second: tuple[str, int, int], *, is_early: bool
) -> None:
    """C8.3 (cluster) The same holds for frames to other nodes, also where only custody is synced
    (J4.4).
    """
    cluster = Cluster(Plan(seed="early", nodes=2, policy="always"))
    add = cluster.history.new_add(b"q", 20, "n0")
    add.retry_s = 1
    add.deliveries = [
        Delivery(at_ms * 1000, made_ms * 1000, node)
        for node, made_ms, at_ms in sorted((first, second), key=lambda one: one[2])
    ]
    Verdicts(cluster, cluster.watcher).judge_retry(add)
    assert [one.rule for one in cluster.history.findings] == ["early-retry"] * is_early
