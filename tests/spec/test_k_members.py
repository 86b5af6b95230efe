"""SPEC K1-K4, K6, K8: who belongs to the cluster and who answers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

import pytest

from tuque.cluster.member import FAILING, Member
from tuque.cluster.members import Members
from tuque.cluster.nodes_conf import BadNodes, parse_nodes_conf
from tuque.core.copies.add import settle
from tuque.core.model.job import AddSpec
from tuque.core.msgs.bus import Heartbeat, Slots
from tuque.core.node.peers import (
    introduce,
    journal_fails,
    slots_of,
    translate,
)
from world import World
from world_machines import conf_of

Make = Callable[..., World]
TIMEOUT_MS = 1000


def strangers(make_world: Make, count: int, spare: int = 0, **options: object) -> World:
    """That many nodes that know nobody, and so many machines on which none runs."""
    world = make_world(count + spare, start=False, cluster_node_timeout=TIMEOUT_MS, **options)
    for i, machine in enumerate(world.machines):
        machine.conf = conf_of(machine, [])
        if i < count:
            world.start(i)
    return world


def met(make_world: Make, count: int, spare: int = 0, **options: object) -> World:
    """That many nodes that have met through the first."""
    world = strangers(make_world, count, spare, **options)
    for other in range(1, count):
        meet(world, 0, other)
    world.pass_ms(4000)
    assert reach(world) == [count - 1] * count + [-1] * spare
    return world


def meet(world: World, a: int, b: int) -> None:
    """CLUSTER MEET at a."""
    assert world.at(a)("CLUSTER", "MEET", f"10.0.0.{b + 1}", 7711) == b"OK"


def members(world: World, i: int) -> Members:
    """The cluster as node i knows it."""
    return world.node(i).server.members


def member(world: World, at: int, of: int) -> Member:
    """A node as another one knows it."""
    return members(world, at).by_id[world.machines[of].node_id]


def reach(world: World) -> list[int]:
    """The number of others that each node reaches, -1 for one that is down."""
    return [int(node.core.reachable_count) if node.is_up else -1 for node in world.nodes]


def dials(world: World) -> int:
    """How often nodes that are up have dialled."""
    found = 0
    for node in world.up():
        assert node.server.bus is not None
        found += int(node.server.bus.figures.dialed)
    return found


def unlink(world: World, a: int, b: int) -> None:
    """Both ends lose the link; nothing is cut."""
    world.sever(a, b)
    for line in world.lines(a, b):
        line.is_cut = False
    world.settle()


def test_the_incarnation_is_kept_before_the_bus_opens(make_world: Make) -> None:
    """K1.1 A node id is made at the first start and stored. The incarnation is a stored start
    counter and 64 random bits; it is stored before the bus opens."""
    world = strangers(make_world, 1, 1)
    world.machines[1].start()  # and no turn has run
    assert parse_nodes_conf(world.machines[1].conf).life == members(world, 1).life == 1
    meet(world, 0, 1)
    world.pass_ms(4000)
    kept = parse_nodes_conf(world.machines[0].conf)
    assert kept.node_id == world.n.node_id
    assert kept.life == members(world, 0).life
    assert [(node.host, node.port, node.bus_port) for node in kept.nodes] == [
        ("10.0.0.2", 7711, 17_711)
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x", "line 2 has 1 words"),
        ("z" * 40 + " h:1 noflags 0 0 connected", "line 2 does not begin with a node id"),
        (
            "a" * 20 + "G" + "a" * 19 + " h:1 noflags 0 0 connected",
            "line 2 does not begin with a node id",
        ),
        ("a" * 39 + " h:1 noflags 0 0 connected", "line 2 does not begin with a node id"),
        ("b" * 40 + " h:1 brave 0 0 connected", "unknown flag 'brave'"),
        ("b" * 40 + " h:x noflags 0 0 connected", "'x' is no number"),
        ("b" * 40 + " h:70000 noflags 0 0 connected", "70000 is no port"),
        ("b" * 40 + " h:1 noflags 0 0 connected bus:70000", "70000 is no port"),
        ("b" * 40 + " h:1 myself 0 0 connected", "second line with the flag 'myself'"),
    ],
)
def test_a_bad_file_says_which_line(line: str, text: str) -> None:
    """A file that is not valid is refused with the line and the reason (K1.1)."""
    with pytest.raises(BadNodes, match=text):
        parse_nodes_conf(("a" * 40 + " :7711 myself 0 0 connected\n" + line + "\n").encode())


def expected(world: World, at: int) -> list[int]:
    """The nodes that a node expects."""
    n = world.node(at).core
    ids = [machine.node_id for machine in world.machines]
    return [i for i, id in enumerate(ids) if n.expected >> n.slot_of.get(id, 0) & 1]


def test_who_is_expected(make_world: Make) -> None:
    """K4.4 A restarting node is expected until it was silent for `cluster-node-timeout`, one
    never heard from as long after this node learned of it, a loading one while it sends
    heartbeats.
    """
    world = met(make_world, 3)
    assert expected(world, 0) == [1, 2]
    world.kill(2)
    world.pass_ms(TIMEOUT_MS - 200)
    assert reach(world)[0] == 1
    assert expected(world, 0) == [1, 2]
    world.pass_ms(300)
    assert expected(world, 0) == [1]
    world.start(2)
    world.node(2).core.is_loading = True
    assert expected(world, 2) == [0, 1]
    world.pass_ms(3 * TIMEOUT_MS)
    assert reach(world)[0] == 1
    assert expected(world, 0) == [1, 2]
    world.node(2).core.is_loading = False
    world.leave(2)
    world.pass_ms(300)
    assert expected(world, 0) == [1]
    world.leave(2, False)
    world.pass_ms(300)
    assert expected(world, 0) == [1, 2]
    assert members(world, 0).forget(world.machines[2].node_id)
    assert expected(world, 0) == [1]
    for number in (1, 2, 0):
        world.kill(number)
    world.start(0)
    assert expected(world, 0) == [1]
    world.pass_ms(TIMEOUT_MS + 300)
    assert expected(world, 0) == []
    members(world, 0).forget_all()
    assert expected(world, 0) == []


def test_a_higher_incarnation_replaces_a_lower_one(make_world: Make) -> None:
    """K1.2 A higher incarnation of a known id replaces the lower one."""
    world = met(make_world, 3)
    world.kill(2)
    world.pass_ms(200)
    world.start(2)
    world.pass_ms(4000)
    assert reach(world) == [2, 2, 2]
    assert member(world, 0, 2).life == 2


def test_an_old_disk_waits_for_the_newer_life_to_be_silent(make_world: Make) -> None:
    """K1.2 A lower one, as of a node restored from an old disk, is refused until the higher one
    was silent for `cluster-node-timeout`, then replaces it.
    """
    world = met(make_world, 2, spare=1)
    for _ in range(2):
        old, conf = conf_of(world.machines[1], []), world.machines[1].conf
        world.kill(1)
        world.start(1)
    world.pass_ms(3000)
    assert member(world, 0, 1).life == 3
    assert parse_nodes_conf(conf).life == 2
    world.machines[2].node_id = world.machines[1].node_id
    world.machines[2].conf = old.replace(b"vars life 0", b"vars life 1")
    world.start(2)
    assert members(world, 2).life == 2
    meet(world, 0, 2)
    world.pass_ms(1000)
    assert member(world, 0, 1).life == 3
    is_refused = "a newer incarnation of this node is alive: it is at 10.0.0.2:7711"
    assert is_refused in "\n".join(world.node(0).log)
    world.kill(1)
    meet(world, 0, 2)
    world.pass_ms(3000)
    assert member(world, 0, 1).life == 2


def test_slots_are_told_before_they_are_used(make_world: Make) -> None:
    """K2.1 In memory a node is a slot number, and a set of nodes is a bit set.

    K2.2 Before a message names a set, SLOTS names the node and incarnation of each number."""
    world = met(make_world, 3)
    a, b = world.node(0).core, world.node(1).core
    mine = world.slot(0, 1)
    a.peers[mine].told = 0
    mask = 1 | 1 << world.slot(0, 2)
    introduce(a, mine, mask)
    said = a.peers[mine].outbox[-1]
    assert isinstance(said, Slots)
    world.settle()
    assert slots_of(translate(b, world.slot(1, 0), mask)) == sorted(
        [world.slot(1, 0), world.slot(1, 2)]
    )


def test_meeting_one_is_meeting_all(make_world: Make) -> None:
    """K3.2 A node learns of the others from the heartbeats of the node that it met; each dials
    each. Of two links between two nodes, the one dialled by the lower id stays."""
    world = met(make_world, 5)
    for a, b in permutations(range(5), 2):
        assert member(world, a, b).is_linked and member(world, a, b).by_lower
    world = strangers(make_world, 4)
    meet(world, 0, 1)
    meet(world, 1, 2)
    meet(world, 2, 3)
    world.pass_ms(5000)
    assert reach(world) == [3, 3, 3, 3]


def test_a_meeting_shows_how_it_goes(make_world: Make) -> None:
    """K3.1 `CLUSTER MEET host port` accepts names and addresses. The reply comes at once; `CLUSTER
    NODES` shows the handshake and why it failed."""
    world = strangers(make_world, 1, spare=1)
    meet(world, 0, 1)
    one = members(world, 0)
    assert "handshake" in one.lines()
    world.pass_ms(500)
    assert "Connection refused" in one.lines()
    world.pass_ms(9_000)
    assert "Connection refused" in one.lines()
    before = dials(world)
    world.pass_ms(5_000)
    assert dials(world) <= before + 2
    world.pass_ms(60_000)
    assert one.lines() == ""


def test_dials_back_off(make_world: Make) -> None:
    """K3.2 A dial that fails is repeated after 100, 200, 400 ms and so on, at most every 5 s."""
    world = met(make_world, 2)
    world.kill(1)
    at, before = [], dials(world)
    for _ in range(1200):
        world.pass_ms(50)
        at += [world.now_ms] * (dials(world) - before)
        before = dials(world)
    gaps = [b - a for a, b in pairwise(at)]
    assert gaps[0] <= 300
    assert max(gaps) <= 5_300
    assert 14 <= len(gaps) <= 25


def test_links_that_end_at_once_back_off_too(make_world: Make) -> None:
    """K3.2 A link that ends within a second counts as a failed dial."""
    world = met(make_world, 2)
    unlink(world, 0, 1)
    world.pass_ms(200)
    assert reach(world) == [1, 1]  # one that was steady is there again at once
    before = dials(world)
    for _ in range(600):
        unlink(world, 0, 1)  # as a node does that hears who called
        world.pass_ms(100)
    assert 12 <= dials(world) - before <= 40


def test_silence_is_suspected_and_a_majority_calls_it_failed(make_world: Make) -> None:
    """K4.1 A node that was silent for `cluster-node-timeout` is suspected. It has failed when more
    than half of all nodes, this one among them, have suspected it within twice that time. Its next
    heartbeat ends both."""
    world = met(make_world, 3)
    world.kill(2)
    world.pass_ms(TIMEOUT_MS // 2)
    assert not member(world, 0, 2).is_suspected
    assert reach(world) == [1, 1, -1]  # without a link it is not reachable at once
    world.pass_ms(TIMEOUT_MS + 500)
    assert member(world, 0, 2).is_suspected
    assert member(world, 0, 2).is_failed
    assert member(world, 1, 2).is_failed
    world.start(2)
    world.pass_ms(6000)
    assert reach(world) == [2, 2, 2]
    assert not member(world, 0, 2).is_failed


def test_one_of_two_is_never_failed(make_world: Make) -> None:
    """In a cluster of two no other node can say so (K4.1)."""
    world = met(make_world, 2)
    world.kill(1)
    world.pass_ms(10_000)
    assert member(world, 0, 1).is_suspected
    assert not member(world, 0, 1).is_failed


def test_a_silent_link_is_closed(make_world: Make) -> None:
    """K4.1 A link that was silent for twice the time is closed."""
    world = met(make_world, 2)
    world.hold(1, 0)
    world.pass_ms(int(1.5 * TIMEOUT_MS))
    assert reach(world)[0] == 0
    assert member(world, 0, 1).is_linked
    world.pass_ms(TIMEOUT_MS)
    assert not member(world, 0, 1).is_linked and not member(world, 1, 0).is_linked
    assert any("silent for too long" in line for line in world.node(0).log)
    world.release(1, 0)
    world.pass_ms(7000)
    assert reach(world) == [1, 1]


def fails(world: World, a: int, b: int) -> bool:
    """Whether node a knows that the journal of node b fails."""
    return bool(journal_fails(world.node(a).core, member(world, a, b).slot))


def break_disk(world: World, i: int) -> None:
    """The disk of node i is full, and it has just seen that."""
    world.disk(i).full()
    world.wire(i).send("ADDJOB", "q", "body", 0, "REPLICATE", 1)
    records = world.node(i).core.records
    world.until(lambda: records.is_failing)
    world.settle()


def test_a_journal_that_fails_is_told(make_world: Make) -> None:
    """K4.5 A heartbeat has whether the journal of its sender cannot be written (J6); a change is
    sent at once. It holds until the node reports that the journal works, or for twice
    `cluster-node-timeout`.
    """
    world = met(make_world, 3, journal="always")
    records = world.node(1).core.records
    world.pass_ms(500)
    assert not fails(world, 0, 1) and not fails(world, 2, 1)
    break_disk(world, 1)
    assert fails(world, 0, 1) and fails(world, 2, 1) and reach(world) == [2, 2, 2]
    world.disk(1).well()
    world.until(lambda: not records.is_failing)
    world.settle()
    assert not fails(world, 0, 1) and not fails(world, 2, 1)
    break_disk(world, 1)
    world.kill(1)
    world.pass_ms(2 * TIMEOUT_MS - 100)
    assert fails(world, 0, 1)
    world.pass_ms(200)
    assert not fails(world, 0, 1)


def test_who_only_says_that_its_journal_fails_is_silent(make_world: Make) -> None:
    """K4.5 It does not end the silence of its sender; a node that begins a link with it is
    suspected at once."""
    world = met(make_world, 2)
    one, other = members(world, 1), member(world, 1, 0)
    only = Heartbeat(0, 0, FAILING, 0, [])
    heard_ms, port = other.heard_ms, other.port
    world.hold(0, 1)
    for _ in range(3):
        world.pass_ms(TIMEOUT_MS // 4)
        one.on_heartbeat(other.slot, only)
        assert not other.is_suspected and fails(world, 1, 0)
    world.pass_ms(TIMEOUT_MS // 2)
    assert other.is_suspected and fails(world, 1, 0)
    assert (other.heard_ms, other.port) == (heard_ms, port)
    world.pass_ms(TIMEOUT_MS + 50)
    assert not other.is_linked
    world.let_go(0, 1)
    until_ms = world.now_ms + 5_000
    while not other.is_linked:  # the link is there again, and nothing has come over it
        if not world.step():
            world.jump_ms(1)
        assert world.now_ms < until_ms
    world.hold(0, 1)
    assert other.is_linked and not other.is_suspected and reach(world)[1] == 1
    one.on_heartbeat(other.slot, only)
    assert other.is_linked and other.is_suspected and reach(world)[1] == 0
    world.release(0, 1)
    world.pass_ms(TIMEOUT_MS)
    assert not other.is_suspected and not fails(world, 1, 0)


def test_who_is_reachable(make_world: Make) -> None:
    """K4.2 A node is reachable if it is linked and is not suspected, failed, leaving or loading.

    K4.3 The default of REPLICATE counts this node, unless it takes no copies (R1.5), and the
    reachable ones that are not late.
    """
    world = met(make_world, 3)
    world.leave(1)
    world.pass_ms(500)
    assert reach(world) == [1, 2, 1]
    world.leave(1, False)
    world.node(1).core.is_loading = True
    world.pass_ms(500)
    assert reach(world) == [1, 2, 1]
    assert settle(world.node(0).core, AddSpec()).replicate == 2
    world.leave(0)
    assert settle(world.node(0).core, AddSpec()).replicate == 1


def test_heartbeats_answer_each_other(make_world: Make) -> None:
    """K4.1 A heartbeat goes over each link ten times per `cluster-node-timeout`, the shortest of
    the linked nodes, every 100 ms to 1 s, with a rising number and the newest received from that
    peer."""
    world = met(make_world, 2)
    before = members(world, 0).sent
    world.pass_ms(2000)
    assert 18 <= members(world, 0).sent - before <= 21
    n = world.node(0).core
    assert n.round - 3 <= n.peers[world.slot(0, 1)].echoed_round <= n.round


def test_heartbeats_are_in_time_for_the_most_impatient(make_world: Make) -> None:
    """K4.1 A heartbeat goes over each link ten times per `cluster-node-timeout`, the shortest of
    the linked nodes, every 100 ms to 1 s, with a rising number and the newest received from that
    peer."""
    world = met(make_world, 2)
    for number, timeout_ms in ((0, 10_000), (1, 800)):
        members(world, number).timeout_ms = timeout_ms
    world.pass_ms(2_000)
    for _ in range(30):
        world.pass_ms(100)
        assert not member(world, 1, 0).is_suspected
    world.kill(1)
    before = members(world, 0).sent
    world.cut(0, 1)
    assert members(world, 0).beat_every_ms() == 1_000, "it is not linked any more"
    assert members(world, 0).sent == before


def test_forgetting_spreads_and_stays(make_world: Make) -> None:
    """K6.1 The node is removed under a number, odd for out and even for in, which spreads with the
    heartbeats. A lower number never brings the node back."""
    world = met(make_world, 4)
    world.kill(3)
    gone = world.machines[3].node_id
    assert members(world, 0).forget(gone)
    assert not members(world, 0).forget(gone)
    world.pass_ms(1000)
    for number in (0, 1, 2):
        one = member(world, number, 3)
        assert one.is_forgotten()
        assert world.node(number).core.forgotten >> one.slot & 1
        assert gone.decode() not in members(world, number).lines()
    world.start(3)
    world.pass_ms(5000)
    assert reach(world) == [2, 2, 2, 0]
    assert any("was forgotten" in line for line in world.node(3).log)


def test_a_forgotten_node_comes_back_empty_or_not_at_all(make_world: Make) -> None:
    """K6.3 A forgotten node joins with a higher number when it is met again, but only in a new
    incarnation that began without jobs: nobody could tell which of its jobs were acked.
    """
    world = met(make_world, 3)
    world.kill(2)
    members(world, 0).forget(world.machines[2].node_id)
    world.pass_ms(500)
    world.start(2)
    meet(world, 0, 2)
    world.pass_ms(3000)
    assert reach(world)[:2] == [1, 1]
    assert "may have jobs of before" in members(world, 0).lines()
    world.kill(2)
    world.start(2, "lost")
    meet(world, 0, 2)
    world.pass_ms(5000)
    assert reach(world) == [2, 2, 2]
    assert member(world, 1, 2).number == 2
    assert world.node(1).core.forgotten == 0


@pytest.mark.parametrize("meets", [(0, 2), (2, 0)])
def test_a_reset_node_is_alone_until_it_is_met(make_world: Make, meets: tuple[int, int]) -> None:
    """K6.3 A reset node (CLUSTER RESET) has a new incarnation too, and is no member before one
    is met. One MEET on either side is enough: the node that was met, or meets it, names its
    other members to the reset node.
    """
    world = met(make_world, 3)
    assert world.at(2)("CLUSTER", "RESET") == b"OK"
    world.pass_ms(8000)
    assert reach(world) == [1, 1, 0]
    assert members(world, 2).lines() == ""
    meet(world, *meets)
    world.pass_ms(8000)
    assert reach(world) == [2, 2, 2]


def test_priorities(make_world: Make) -> None:
    """K8.1 without a link 5; suspected 10; failed, leaving or in conflict (K1.3) 100. Nodes
    in handshake are not listed."""
    world = met(make_world, 3)
    one = member(world, 0, 2)
    assert one.priority() == 1
    world.leave(2)
    world.pass_ms(300)
    assert one.priority() == 100
    world.leave(2, False)
    world.pass_ms(300)
    world.cut(0, 2)
    assert one.priority() == 5
    world.pass_ms(1500)
    assert one.priority() == 10
    world.kill(2)
    world.pass_ms(2500)
    assert one.priority() == 100
