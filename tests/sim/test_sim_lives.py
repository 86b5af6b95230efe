"""Clients of a job's work in the simulator, and the judges of what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.engine.plan import Op, Plan
from sim.flaws.lives import LIFE_FLAWS, LIFE_RULES
from sim.flaws.work import WORK_FLAWS, WORK_RULES, beginning, replaying, repricing
from sim.judges.life_rates import on_paced
from sim.judges.life_waits import on_waited
from sim.judges.lives import Living
from sim.plans.life_swarm import KINDS
from sim.plans.swarm import draw
from sim.runs.cluster import Cluster
from sim.runs.seeds import run_plan, run_seed
from tuque.core.life.dead_letters import letter_of, purge
from tuque.core.node.node import Node

PRODUCER: dict[str, Any] = {
    "attempts": [2, 3], "backoff": [0.1, 0.2, 0.5], "retry": [1], "keep": [90], "limit": [0],
    "ttl": [120, 0], "delay": [0], "idle_ms": 300,
}  # fmt: skip
WORKER: dict[str, Any] = {
    "work_ms": 50, "idle_ms": 20, "timeout": 500, "p_fail": 0.5, "p_final": 0.1, "p_release": 0.1,
    "p_silent": 0.4, "p_late": 1.0, "p_move": 0.3, "p_twice": 0.3, "p_beat": 0.3,
}  # fmt: skip
BOSS: dict[str, Any] = {"idle_ms": 100, "p_cancel": 0.1, "p_letters": 0.1, "p_wait": 0.1}


def at_work(seed: int, nodes: int = 3) -> Plan:
    """Producers, workers and a boss on each node; no faults."""
    plan = Plan(seed=f"lives {seed}", nodes=nodes, chaos_ms=12_000)
    plan.ops.append(Op(50, "add", {"client": "p", "node": 0, "queue": "q"}))
    for node in range(nodes):
        for kind, habits in zip(KINDS, (PRODUCER, WORKER, BOSS), strict=False):
            args = {"client": f"{kind} {node}", "node": node, "for_ms": 11_000, **habits}
            plan.ops.append(Op(100 + node, kind, args))
    return plan


@pytest.mark.parametrize("nodes", [1, 3])
def test_work_without_faults_breaks_no_promise(nodes: int) -> None:
    outcome = run_plan(at_work(1, nodes))
    assert outcome.findings == []
    for what in (
        "runs", "runs that speak late", "FAILs of old runs", "results read again", "looks at lives",
        "looks at letters", "ends of lives", "pairs of runs", "letters REPLAY",
    ):  # fmt: skip
        if nodes > 1 or what != "FAILs of old runs":  # one worker has no old run
            assert outcome.counts.get(what, 0) > 0, what


def test_drawing_without_them_leaves_the_rest_as_it_is() -> None:
    kinds: set[str] = set()
    bare = 0
    for seed in range(30):
        whole, plain = draw(seed, with_lives=True, with_edits=True), draw(seed)
        assert [op for op in whole.ops if op.kind not in KINDS] == plain.ops
        kinds |= {op.kind for op in whole.ops}
        bare += whole.ops == plain.ops
    assert set(KINDS) - {"life_replayer"} <= kinds
    assert 5 < bare < 28


def test_a_seed_without_them_is_what_it_was() -> None:
    assert not any(op.kind in KINDS for op in draw(3).ops)
    outcome = run_seed(3)
    assert "lives" not in outcome.counts


def miscount(n: Node, living: Living) -> None:
    """A node counts attempts that nobody began."""
    for life in n.life.by_id.values():
        life.failed += 40


def blame(n: Node, living: Living) -> None:
    """A dead letter has the reason of another failure."""
    for life in n.life.by_id.values():
        if life.is_dead and life.last is not None:
            life.last.reason = b"of 77.77.000000"


def forget(n: Node, living: Living) -> None:
    """A node deletes its dead letters, and nobody asked for that."""
    for id in list(n.life.by_id):
        letter = letter_of(n, id)
        if letter is not None:
            purge(n, letter)


def lie(n: Node, living: Living) -> None:
    """A node changes the results that it keeps."""
    for outcome in n.life.kept.values():
        if outcome.result is not None:
            outcome.result = b"by nobody"


def lose(n: Node, living: Living) -> None:
    """A node forgets the results that it keeps."""
    for id in list(n.life.kept):
        n.life.forget(id)


SABOTAGE = [
    ("life-attempts", miscount), ("life-reason", blame), ("life-outcome", forget),
    ("life-result", lie), ("life-result", lose),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        pytest.param(rule, what, marks=pytest.mark.slow if what in (lose, lie) else ())
        for rule, what in SABOTAGE
    ],
)
def test_a_broken_promise_is_seen(rule: str, what: Callable[[Node, Living], None]) -> None:
    def tweak(cluster: Cluster) -> None:
        def strike() -> None:
            for m in cluster.machines:
                if m.shell is not None:
                    what(m.shell.n, cluster.living)

        # results are lied about once many were read
        cluster.world.at(45_000_000 if rule == "life-result" else 17_500_000, strike)

    assert rule in run_plan(at_work(5), tweak=tweak, until=rule).rules()


WAITS: list[tuple[list[list[bytes]], str]] = [
    ([[b"j", b"done"]], ""),
    ([[b"j", b"gone"]], "was (b'done', b'42'), is b'gone'"),
    ([[b"j", b"cancelled"]], "nobody ended it so"),
    ([[b"j", b"waiting"]], "has the outcome"),
    ([[b"other", b"done"], [b"j", b"done"]], "is named by"),
    ([[b"j", b"done"], [b"j", b"done"]], "is named by"),
    ([], "does not name it"),
]


@pytest.mark.parametrize(("reply", "text"), WAITS)
def test_a_wait_names_what_ended(reply: list[list[bytes]], text: str) -> None:
    living = Cluster(at_work(1)).living
    living.disturbed_us = -10_000_000
    job = living.new_job({"repl": 1, "retry": 1, "ttl": 0, "attempts": 1, "keep": 90, "limit": 0})
    job.id, job.read, job.read_us = b"j", (b"done", b"42"), 1
    job.asked.add("DONE")
    job.is_added = True
    on_waited(living, [job], 2, reply)
    texts = [str(one) for one in living.history.findings]
    assert all("life-wait" in one for one in texts)
    assert any(text in one for one in texts) if text else texts == []


# Their judges find a quicker flaw, too: w13, w15, w12, w22, w10 and w23; `forget` above for w4.
LONG = ("w3", "w4", "w5", "w6", "w11", "w14", "w16", "w17", "w18", "w20", "w24", "w25")
FIRST = {
    "w3": 2,
    "w12": 3,
    "w27": 4,
    "w28": 1,
    "w29": 3,
    "w30": 17,
}  # the seed that finds it soonest, if seed 1 does not


@pytest.mark.sources
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in [*LIFE_RULES, *WORK_RULES]
    ],
)
def test_a_flaw_is_found_by_its_judge(name: str) -> None:
    rule = {**LIFE_RULES, **WORK_RULES}[name]
    assert rule in run_seed(FIRST.get(name, 1), name, until=rule).rules()


PLANS = [
    pytest.param(plan, marks=pytest.mark.slow)
    for plan in dict.fromkeys(flaw.bend for flaw in [*LIFE_FLAWS, *WORK_FLAWS])
    if plan not in (beginning, replaying, repricing)
]


@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_of_a_flaw_is_harmless_without_it(plan: Callable[[int], Plan]) -> None:
    assert run_plan(plan(1)).findings == []


WORDS = [
    (beginning, "runs begun with the delivery"),
    (replaying, "letters replayed in time"),
    (repricing, "pris given"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "what"), WORDS)
def test_clients_of_later_words_break_no_promise(plan: Callable[[int], Plan], what: str) -> None:
    outcome = run_plan(plan(1))
    assert outcome.findings == []
    assert outcome.counts.get(what, 0) > 5


def test_later_words_are_drawn_apart() -> None:
    kinds: set[str] = set()
    habits: set[float] = set()
    for seed in range(60):
        whole = draw(seed, with_lives=True, with_words=True)
        plain = draw(seed, with_lives=True)
        later = [
            op for op in whole.ops if op.kind == "life_replayer" or op.args.get("verbs") == ["PRI"]
        ]
        kinds |= {op.kind for op in later}
        for op in whole.ops:
            if op.kind == "life_worker":
                habits.add(op.args.pop("p_begin"))
        assert [op for op in whole.ops if op not in later] == plain.ops
    assert kinds == {"life_replayer", "tube_meddler"}
    assert habits == {0.0, 0.3, 1.0}


RATES = [(3, 1_000_000, [b"0", 4, 9], ""), (3, 1_000_000, [b"0", 5, 9], "RATE is 3"),
         (1_000, 1_000_000, [b"0", 10, 9], "that were seen"), (3, 0, [b"0", 1, 1], "")]  # fmt: skip


@pytest.mark.parametrize(("rate", "span_us", "reply", "text"), RATES)
def test_replays_keep_their_rate(rate: int, span_us: int, reply: list[object], text: str) -> None:
    living = Cluster(at_work(1)).living
    living.world.now_us = 10_000_000
    on_paced(living, rate, 10_000_000 - span_us, reply)
    texts = [str(one) for one in living.history.findings]
    assert any(text in one for one in texts) if text else texts == []
