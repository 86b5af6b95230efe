"""SPEC T60, T62: topics when there are other nodes, and in the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.model.job import QUEUED
from tuque.core.staged.publish import COPIES_MS
from tuque.core.tables.topics import GONE_MAX, Subscription
from tuque.core.topics import subscribe, unheard_refusal, unsubscribe
from world import World

TOPIC = b"orders"


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Three nodes that are linked, each with a journal."""
    return make_world(3, journal="always")


@pytest.fixture
def lone(make_world: Callable[..., World]) -> World:
    """One node with a journal."""
    return make_world(journal="always")


def change(world: World, i: int, queue: bytes, *filters: bytes, is_gone: bool = False) -> None:
    """SUBSCRIBE or UNSUBSCRIBE at node i; the messages stay in flight."""
    n = world.node(i).core
    if is_gone:
        assert unsubscribe(n, TOPIC, queue)
    else:
        assert subscribe(n, TOPIC, queue, list(filters)) == (True, None)


def known(world: World, i: int) -> dict[bytes, list[bytes]]:
    """The queues that are subscribed at node i, with their filters."""
    return {one.queue: one.filters for one in world.node(i).core.topics.of_topic(TOPIC)}


def begin_add(world: World, copies: int, timeout_ms: int = 0) -> list[bytes]:
    """TOPIC ADD at node 0 by its first client, whose reply has not come; the ids of the jobs."""
    before = set(world.node(0).core.jobs)
    wire = world.at(0)
    wire.put(encode("TOPIC", "ADD", TOPIC, "body", timeout_ms, "REPLICATE", copies))
    while not (ids := [id for id in world.node(0).core.jobs if id not in before]):
        assert world.step()
    assert not wire.unread
    return ids


def test_all_nodes_learn_of_it(world: World) -> None:
    """T60.4 (cluster) TOPICS sends each change of a subscription to all linked nodes, and all of
    them when a link opens. A node that learns of a change passes it on.
    """
    world.cut(0, 2)
    change(world, 0, b"mail", b"kind", b"a*")
    world.settle()
    assert known(world, 2) == {b"mail": [b"kind", b"a*"]}, "over node 1"
    world.isolate(2)
    change(world, 1, b"audit")
    change(world, 1, b"mail")
    world.settle()
    assert known(world, 2) == {b"mail": [b"kind", b"a*"]}
    world.link()
    world.settle()
    assert [known(world, i) for i in range(3)] == [{b"mail": [], b"audit": []}] * 3


def test_two_changes_at_once(world: World) -> None:
    """T60.4 Each change has a version and the id of the node where it was made. The version is the
    time in ms, or one more than the version before if that is higher. The higher version wins; of
    the same version, the higher node id.
    """
    world.isolate(0)
    change(world, 0, b"mail", b"from", b"zero")
    change(world, 1, b"mail", b"from", b"one")
    change(world, 0, b"audit", b"from", b"zero")
    change(world, 0, b"audit", b"from", b"zero again")
    change(world, 2, b"audit", b"from", b"two")
    world.link()
    world.settle()
    assert world.node(1).core.node_id > world.node(0).core.node_id
    both = {b"mail": [b"from", b"one"], b"audit": [b"from", b"zero again"]}
    assert [known(world, i) for i in range(3)] == [both] * 3


def test_a_removal_stays(world: World) -> None:
    """T60.5 A removal is a change with a version as well, and is kept: a node that was away learns
    it, and does not bring the subscription back. Of removals the 10,000 latest are kept.
    """
    change(world, 0, b"mail")
    world.settle()
    world.isolate(2)
    change(world, 1, b"mail", is_gone=True)
    world.settle()
    assert known(world, 2) == {b"mail": []}
    world.restart(1)
    world.link()
    world.settle()
    assert [known(world, i) for i in range(3)] == [{}] * 3
    assert [len(n.topics.gone) for n in world.cores] == [1] * 3
    assert GONE_MAX == 10_000


def test_the_latest_change_wins(world: World) -> None:
    """T60.4 So of changes at nodes that were apart the latest wins, as far as the clocks of the
    nodes agree.
    """
    change(world, 0, b"mail")
    world.settle()
    world.isolate(2)
    for i in range(5):
        change(world, 0, b"mail", b"kind", b"%d" % i)
    world.pass_ms(100)
    change(world, 2, b"mail", is_gone=True)
    world.link()
    world.settle()
    assert [known(world, i) for i in range(3)] == [{}] * 3


def test_removals_are_bounded_after_a_load(lone: World) -> None:
    """T60.5 Of removals the 10,000 latest are kept, also after a load."""
    run = lone.run
    topics = lone.n.topics
    for i in range(GONE_MAX):
        topics.put(Subscription(b"t%d" % i, b"q", [], 1, lone.n.node_id, True))
    lone.rewrite()
    for i in range(3):
        run("TOPIC", "SUBSCRIBE", f"more{i}", "q")
        run("TOPIC", "UNSUBSCRIBE", f"more{i}", "q")
    for _ in range(2):
        lone.restart(how="stop")
        gone = list(lone.n.topics.gone)
        assert len(gone) == GONE_MAX
        assert gone[0] == (b"t3", b"q") and gone[-1] == (b"more2", b"q")


def test_a_node_that_has_started_waits_for_the_others(world: World) -> None:
    """T60.8 (cluster) For `cluster-node-timeout` after its start, or after its journal is loaded, a
    node that knows other nodes takes an ADD only when one node has sent it all that it knows, and
    so has each that is linked.
    """
    world.restart(2)
    change(world, 0, b"mail")
    world.settle()
    n = world.node(2).core
    world.join(0, 2)
    world.hold(0, 2)
    world.join(1, 2)
    world.hold(1, 2)
    world.settle()
    assert unheard_refusal(n) is not None
    world.release(0, 2)
    world.settle()
    assert known(world, 2) == {b"mail": []}
    assert unheard_refusal(n) is not None, "node 1 may know more"
    world.release(1, 2)
    world.settle()
    assert unheard_refusal(n) is None
    n.topics.heard = 0
    n.now_ms += n.limits.node_timeout_ms
    assert unheard_refusal(n) is None, "others may be away for long"


@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_the_journal_has_them(lone: World, how: str, has_snapshot: bool) -> None:
    """T60.6 Each change is a record `topic` in the journal: absolute (J2.2), binding (J4.2), and in
    snapshots, with removals. A load restores all of them.
    """
    run = lone.run
    first_ms = lone.n.now_ms
    run("TOPIC", "SUBSCRIBE", "orders", "mail", "FILTER", "kind", "a*")
    run("TOPIC", "SUBSCRIBE", "orders", "gone")
    run("TOPIC", "SUBSCRIBE", "orders", "audit")
    run("TOPIC", "UNSUBSCRIBE", "orders", "gone")
    run("TOPIC", "SUBSCRIBE", "orders", "mail", "FILTER", "kind", "b*")
    if has_snapshot:
        lone.rewrite()
    lone.restart(how=how)
    topics = lone.n.topics
    found = {one.queue: (one.filters, one.version - first_ms) for one in topics.of_topic(TOPIC)}
    assert found == {b"mail": ([b"kind", b"b*"], 1), b"audit": ([], 0)}
    gone = [(one.queue, one.version - first_ms) for one in topics.gone.values()]
    assert gone == [(b"gone", 1)]


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_all_or_none_after_a_crash(lone: World, how: str, *, is_synced: bool) -> None:
    """T62.3 All jobs are added in one turn, and so in one frame of the journal (J3.1): after a
    crash this node has all or none.
    """
    for queue in ("a", "b", "c"):
        lone.run("TOPIC", "SUBSCRIBE", "orders", queue)
    lone.run("TOPIC", "ADD", "orders", "first", 0)
    if not is_synced:
        lone.disk().slow(1)  # the thread syncs, not the pump
        lone.disk().stick()
    lone.run.send("TOPIC", "ADD", "orders", "second", 0)
    lone.settle()
    assert (lone.run.take() is not None) == is_synced
    lone.kill(0) if how == "kill" else lone.cut_power(0)
    lone.disk().well()
    lone.start(0)
    lengths = [lone.qlen(queue) for queue in ("a", "b", "c")]
    assert lengths == [1 + (is_synced or how == "kill")] * 3


def test_all_or_none_of_a_frame_that_is_cut_off(lone: World) -> None:
    """T62.3 All jobs are added in one turn, and so in one frame of the journal (J3.1): after a
    crash this node has all or none.
    """
    for queue in ("a", "b", "c"):
        lone.run("TOPIC", "SUBSCRIBE", "orders", queue)
    disk, path = lone.disk(), lone.disk().segment()
    before = disk.files.size(path)
    lone.run("TOPIC", "ADD", "orders", "body", 0)
    lone.kill(0)
    disk.snapshot()
    whole = disk.files.size(path)
    found = set()
    for size in [*range(before, whole, 9), whole - 1, whole]:
        disk.restore()
        disk.files.truncate(path, size)
        lone.start(0)
        found.add((size == whole, *(lone.qlen(queue) for queue in ("a", "b", "c"))))
        lone.kill(0)
    assert found == {(False, 0, 0, 0), (True, 1, 1, 1)}


def test_copies(world: World) -> None:
    """T62.5 (cluster) Jobs that need copies are added as those of a PUBLISH (Z3): each is queued
    when it has its copies, and the reply comes when all have them.
    """
    change(world, 0, b"mail")
    change(world, 0, b"audit")
    world.settle()
    ids = begin_add(world, 3)
    assert world.at(0).take() == ids
    assert len(ids) == 2
    assert all(id in n.jobs for n in world.cores for id in ids)
    assert all(world.node(0).core.jobs[id].state == QUEUED for id in ids)


@pytest.mark.parametrize("timeout_ms", [0, 300])
def test_too_few_copies(world: World, timeout_ms: int) -> None:
    """T62.5 If that takes longer than ms-timeout, or Z3.3 applies, those that lack copies are
    queued without them.
    """
    change(world, 0, b"mail")
    change(world, 0, b"audit")
    world.settle()
    world.hold(0, 2)
    ids = begin_add(world, 3, timeout_ms)
    world.pass_ms((timeout_ms or COPIES_MS) - 1)
    assert world.at(0).take() is None
    world.pass_ms(2)
    assert world.at(0).take() == (
        "FEWCOPIES all jobs of the topic are added, 2 of 2 with fewer copies than asked for, "
        "since nodes are unreachable: do not add them again"
    )
    assert all(world.node(0).core.jobs[id].state == QUEUED for id in ids)
