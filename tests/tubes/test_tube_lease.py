"""Leases have a timeout of their own, shorter than `cluster-node-timeout` (SPEC T25 to T27)."""

from __future__ import annotations

import pytest
from tubes_world import VotesWorld

from raw_resp import encode
from tuque.cluster.nodes_conf import parse_nodes_conf
from tuque.core.msgs.bus import TubePulse
from tuque.tubes.election.lease import promise_ms
from tuque.tubes.election.voters import voters_open

LEASE_MS = 2_000
NODE_MS = 15_000


def leased(**options: object) -> VotesWorld:
    """Three nodes with the timeouts of the defaults, of which node 0 leads a tube."""
    options = {"cluster_node_timeout": NODE_MS, "tube_lease_timeout": LEASE_MS, **options}
    return VotesWorld(3, **options)


def pulses(world: VotesWorld, a: int, b: int, span_ms: int) -> int:
    """How many pulses of node a arrive at node b in that time."""
    world.forget_heard()
    world.pass_ms(span_ms)
    heard = world.lab.heard
    return sum((x, y) == (a, b) and isinstance(m, TubePulse) for _, x, y, m in heard)


def is_bound(world: VotesWorld, i: int, leader: int) -> bool:
    """Whether node i still promises that one, or may have, in a life before."""
    b = world.t(i).voter_state
    promised = int(b.promised.get(world.slot(i, leader), 0))
    return max(promised, int(b.bound_ms)) > world.now_ms


def kept_ms(world: VotesWorld, i: int) -> int:
    """How long the promises of node i last by its nodes.conf."""
    return int(parse_nodes_conf(world.machines[i].conf).lease_ms)


def set_timeout(world: VotesWorld, i: int, timeout_ms: int) -> None:
    """CONFIG SET at node i."""
    assert world.wire(i)("CONFIG", "SET", "tube-lease-timeout", str(timeout_ms)) == b"OK"


def test_pulses_do_not_wait_for_heartbeats() -> None:
    """T25.1 A node sends TUBE-PULSE to the others each eighth of T, each second if it knows no
    tube.
    """
    world = leased()
    assert pulses(world, 0, 1, 10_000) == pulses(world, 1, 0, 10_000) == 40
    world = VotesWorld(3, makes=False, tube_lease_timeout=LEASE_MS)
    world.pass_ms(2_000)
    assert pulses(world, 0, 1, 10_000) == 10


@pytest.mark.parametrize(
    "timeouts", [{0: 16_000}, {1: 16_000, 2: 16_000}, {0: 3_600_000, 1: 3_600_000}]
)
def test_a_tube_runs_while_the_voters_have_unequal_timeouts(timeouts: dict[int, int]) -> None:
    """T25.1 T is the shortest of the known voters, at first its own."""
    world = leased()
    for i, timeout_ms in timeouts.items():
        set_timeout(world, i, timeout_ms)
        for _ in range(40):
            world.pass_ms(100)
            world.put(0)
    for i in (0, 1, 2):
        told = world.wire(i)("CLUSTER", "VOTERS")
        at = told.index(b"lease-timeouts")
        assert told[at + 1] == [LEASE_MS, max(timeouts.values())]
    assert world.runs_at() == [0]
    assert world.tube(0).epoch == 1
    assert pulses(world, 0, 1, 2_000) == pulses(world, 1, 0, 2_000) == 8
    lines = [line for line in world.node(0).log if line.startswith("tube-lease-timeout is")]
    assert len(lines) == 1


def test_a_lost_leader_is_replaced_where_timeouts_are_unequal() -> None:
    """T25.1 Candidates (T27) wait by that T."""
    world = leased()
    set_timeout(world, 1, 40_000)
    set_timeout(world, 2, 40_000)
    world.pass_ms(1_000)
    world.end(0)
    world.pass_ms(40_000 - 1_000)  # they keep what they promised (T25.3)
    assert world.runs_at() == []
    world.until(world.runs_at, 2_000)


def test_a_leader_that_too_few_confirm_says_so() -> None:
    """T19.2 without a lease (T25.2) `... is led here, but too few voters confirm that now: try
    again soon`
    """
    world = leased()
    for i in (1, 2):
        world.hold(i, 0)
    world.pass_ms(LEASE_MS)
    told = str(world.wire(0)("TUBE", "PUT", "t", "x"))
    assert told == (
        "NOQUORUM Tube 't' is led here, but too few voters confirm that now: try again soon"
    )


def test_a_lost_leader_is_replaced_within_three_seconds() -> None:
    """T27.1 A voter with a complete replica is a candidate when the node for which it votes is
    silent for T, or stepped down
    """
    world = leased()
    for dies in (True, False, True):
        gone = world.leads()
        world.put(gone)
        world.pass_ms(1_000)
        if dies:
            world.end(gone)
        else:
            others = [i for i in world.numbers() if i != gone]
            for i in others:
                world.hold(gone, i)
                world.hold(i, gone)
        world.pass_ms(LEASE_MS - LEASE_MS // 8 - 10)
        assert world.runs_at() == []
        (home,) = world.until(world.runs_at, 3_000 - LEASE_MS)
        assert world.t(home).voter_state.lease_ms > world.now_ms  # T25.8 looks at it from now on
        if dies:
            world.begin(gone)
            world.rejoin(gone)
        else:
            world.release_all()
        world.pass_ms(2 * LEASE_MS)


@pytest.mark.parametrize("nodes", [[0], [1], [0, 1, 2]])
def test_a_short_standstill_costs_no_election(nodes: list[int]) -> None:
    """T27.2 One that did nothing for T/4 waits as long again."""
    world = leased()
    world.pass_ms(1_000)
    span_ms = 3_000 if len(nodes) == 3 else 1_000
    for i in nodes:
        world.stall(i, span_ms)
    world.pass_ms(span_ms + 1_000)
    assert world.runs_at() == [0]
    assert world.tube(0).epoch == 1
    assert world.put(0).number == 0
    world.settle()
    if len(nodes) == 1:
        return
    world.restart(0)  # one that waited is a candidate all the same
    world.pass_ms(LEASE_MS + LEASE_MS // 2)
    assert world.leads() in (1, 2)


def test_a_turn_that_outlives_its_lease_replies_to_nobody() -> None:
    """T25.8 If a lease ended during a turn, its replies do not leave: their connections are
    closed.
    """
    world = leased()
    world.put(0)
    world.put(0)
    for late_ms, is_closed in ((1_000, False), (LEASE_MS, True)):
        wire = world.wire(0)
        world.pass_ms(1_000)
        shell = world.node(0).shell
        world.stand_still(0)
        wire.put(encode("TUBE", "TAKE", "t", "0"))
        world.settle()
        shell.pump.hear(shell.pump.poller.wait(0))
        shell.pump.step()
        shell.kernel.spent_us = late_ms * 1_000  # in the middle of a turn
        shell.pump.settle()
        shell.kernel.spent_us = 0
        world.go_on(0)
        world.settle()
        assert wire.is_closed == is_closed
        assert (wire.take() is None) == is_closed


def test_a_start_waits_for_what_was_promised_before() -> None:
    """T25.5 After a start a node votes for nobody else than before, for the longest T by which it
    may have promised: `nodes.conf` has that.
    """
    world = leased()
    wire = world.wire(2)
    assert wire("CONFIG", "SET", "tube-lease-timeout", str(NODE_MS)) == b"OK"
    for _ in range(2):  # another start changes nothing
        world.restart(2)
        world.pass_ms(1_000)
        assert kept_ms(world, 2) == NODE_MS
    world.pass_ms(NODE_MS - 1_100)
    assert is_bound(world, 2, 0)
    world.pass_ms(200)
    assert not is_bound(world, 2, 0)
    world.rejoin(2)
    world.pass_ms(2_000)
    assert kept_ms(world, 2) == LEASE_MS
    world.restart(2)
    world.pass_ms(LEASE_MS + 1)
    assert not is_bound(world, 2, 0)


def test_a_start_after_a_version_without_leases() -> None:
    """T25.5 for the longest T by which it may have promised"""
    world = leased()
    world.end(2)
    machine = world.machines[2]
    machine.conf = machine.conf.replace(b" lease %d" % LEASE_MS, b"")
    world.begin(2)
    world.pass_ms(NODE_MS - 1)
    assert is_bound(world, 2, 0)
    world.pass_ms(2)
    assert not is_bound(world, 2, 0)


def test_another_timeout_while_leaders_count_on_the_former_one() -> None:
    """T25.7 CONFIG SET: a longer T is in `nodes.conf` first, and extends the promises made; a
    shorter one ends none earlier.
    """
    world = leased()
    wire = world.wire(2)
    promised = int(world.t(2).voter_state.promised[world.slot(2, 0)])
    world.hold(0, 2)  # it promises no more
    assert wire("CONFIG", "SET", "tube-lease-timeout", "10000") == b"OK"
    assert kept_ms(world, 2) == 10_000
    assert int(world.t(2).voter_state.promised[world.slot(2, 0)]) == promised + 8_000
    assert int(world.t(0).voter_state.timeouts[world.slot(0, 2)]) == 10_000
    assert wire("CONFIG", "SET", "tube-lease-timeout", "1000") == b"OK"
    assert int(world.t(2).voter_state.promised[world.slot(2, 0)]) == promised + 8_000
    assert int(world.t(0).voter_state.timeouts[world.slot(0, 2)]) == 1_000
    assert kept_ms(world, 2) == 10_000
    world.release(0, 2)
    world.pass_ms(1_000)
    assert int(world.t(2).voter_state.promised[world.slot(2, 0)]) == promised + 8_000
    world.pass_ms(8_000)
    assert kept_ms(world, 2) == promise_ms(world.node(2).core, world.t(2).voter_state) == 10_000
    world.pass_ms(3_000)
    assert kept_ms(world, 2) == 1_000
    assert world.runs_at() == [0]
    assert world.tube(0).epoch == 1
    voters = world.t(0).voter_state.voters
    assert voters is not None and len(voters_open(world.node(0).core, world.t(0), voters)) == 2


def test_what_a_timeout_may_be() -> None:
    """T25.7 a longer T is in `nodes.conf` first"""
    world = leased()
    wire = world.wire(1)
    for word in ("499", "3600001", "soon"):
        assert str(wire("CONFIG", "SET", "tube-lease-timeout", word)).startswith("ERR")
    for word in ("500", "3600000"):
        assert wire("CONFIG", "SET", "tube-lease-timeout", word) == b"OK"
        assert kept_ms(world, 1) >= int(word)
