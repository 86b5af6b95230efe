"""SPEC T60, T62: topics when there are other nodes, and in the journal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from journal_by_hand import Kept, kept

from cluster_lab import Lab
from refusals import words_of
from tuque.core.copies.add import settle
from tuque.core.model.job import QUEUED, AddSpec
from tuque.core.staged.publish import COPIES_MS
from tuque.core.tables.topics import GONE_MAX, Subscription
from tuque.core.topics import Share, add_all, subscribe, unheard_refusal, unsubscribe

__all__ = ["kept"]

TOPIC = b"orders"


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Three nodes that are linked, each with a journal."""
    yield Lab(3, has_journal=True)


def change(lab: Lab, i: int, queue: bytes, *filters: bytes, is_gone: bool = False) -> None:
    """SUBSCRIBE or UNSUBSCRIBE at node i; the messages stay in flight."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    if is_gone:
        assert unsubscribe(n, TOPIC, queue)
    else:
        assert subscribe(n, TOPIC, queue, list(filters)) == (True, None)


def known(lab: Lab, i: int) -> dict[bytes, list[bytes]]:
    """The queues that are subscribed at node i, with their filters."""
    return {one.queue: one.filters for one in lab.nodes[i].topics.of_topic(TOPIC)}


def add(lab: Lab, i: int, copies: int, timeout_ms: int = 0) -> list[bytes]:
    """TOPIC ADD at node i; its reply comes later if it needs copies."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    spec = AddSpec()
    spec.replicate = copies
    shares = [Share(one, settle(n, spec)) for one in n.topics.of_topic(TOPIC)]
    ids, _ = add_all(n, shares, b"body", 7, 0, timeout_ms)
    return ids


def test_all_nodes_learn_of_it(lab: Lab) -> None:
    """T60.4 (cluster) TOPICS sends each change of a subscription to all linked nodes, and all of
    them when a link opens. A node that learns of a change passes it on.
    """
    lab.cut(0, 2)
    change(lab, 0, b"mail", b"kind", b"a*")
    lab.run()
    assert known(lab, 2) == {b"mail": [b"kind", b"a*"]}, "over node 1"
    lab.isolate(2)
    change(lab, 1, b"audit")
    change(lab, 1, b"mail")
    lab.run()
    assert known(lab, 2) == {b"mail": [b"kind", b"a*"]}
    lab.heal()
    lab.run()
    assert [known(lab, i) for i in range(3)] == [{b"mail": [], b"audit": []}] * 3


def test_two_changes_at_once(lab: Lab) -> None:
    """T60.4 Each change has a version and the id of the node where it was made. The version is the
    time in ms, or one more than the version before if that is higher. The higher version wins; of
    the same version, the higher node id.
    """
    lab.isolate(0)
    change(lab, 0, b"mail", b"from", b"zero")
    change(lab, 1, b"mail", b"from", b"one")
    change(lab, 0, b"audit", b"from", b"zero")
    change(lab, 0, b"audit", b"from", b"zero again")
    change(lab, 2, b"audit", b"from", b"two")
    lab.heal()
    lab.run()
    assert lab.nodes[1].node_id > lab.nodes[0].node_id
    both = {b"mail": [b"from", b"one"], b"audit": [b"from", b"zero again"]}
    assert [known(lab, i) for i in range(3)] == [both] * 3


def test_a_removal_stays(lab: Lab) -> None:
    """T60.5 A removal is a change with a version as well, and is kept: a node that was away learns
    it, and does not bring the subscription back. Of removals the 10,000 latest are kept.
    """
    change(lab, 0, b"mail")
    lab.run()
    lab.isolate(2)
    change(lab, 1, b"mail", is_gone=True)
    lab.run()
    assert known(lab, 2) == {b"mail": []}
    lab.die(1)
    lab.revive(1)
    lab.heal()
    lab.run()
    assert [known(lab, i) for i in range(3)] == [{}] * 3
    assert [len(n.topics.gone) for n in lab.nodes] == [1] * 3
    assert GONE_MAX == 10_000


def test_the_latest_change_wins(lab: Lab) -> None:
    """T60.4 So of changes at nodes that were apart the latest wins, as far as the clocks of the
    nodes agree.
    """
    change(lab, 0, b"mail")
    lab.run()
    lab.isolate(2)
    for i in range(5):
        change(lab, 0, b"mail", b"kind", b"%d" % i)
    lab.pass_ms(100)
    change(lab, 2, b"mail", is_gone=True)
    lab.heal()
    lab.run()
    assert [known(lab, i) for i in range(3)] == [{}] * 3


def test_removals_are_bounded_after_a_load(kept: Kept) -> None:
    """T60.5 Of removals the 10,000 latest are kept, also after a load."""
    run = kept.box.run
    topics = kept.box.n.topics
    for i in range(GONE_MAX):
        topics.put(Subscription(b"t%d" % i, b"q", [], 1, kept.box.n.node_id, True))
    kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
    while kept.committer.is_rewriting():
        kept.turn()
    for i in range(3):
        run("TOPIC", "SUBSCRIBE", f"more{i}", "q")
        run("TOPIC", "UNSUBSCRIBE", f"more{i}", "q")
    for _ in range(2):
        kept.restart("stop")
        gone = list(kept.box.n.topics.gone)
        assert len(gone) == GONE_MAX
        assert gone[0] == (b"t3", b"q") and gone[-1] == (b"more2", b"q")


def test_a_node_that_has_started_waits_for_the_others(lab: Lab) -> None:
    """T60.8 (cluster) For `cluster-node-timeout` after its start, or after its journal is loaded, a
    node that knows other nodes takes an ADD only when one node has sent it all that it knows, and
    so has each that is linked.
    """
    lab.die(2)
    change(lab, 0, b"mail")
    lab.run()
    lab.hold(0, 2)
    lab.hold(1, 2)
    lab.revive(2)
    lab.run()
    n = lab.nodes[2]
    n.now_ms = lab.now_ms
    assert unheard_refusal(n) is not None
    lab.release(0, 2)
    lab.run()
    assert known(lab, 2) == {b"mail": []}
    assert unheard_refusal(n) is not None, "node 1 may know more"
    lab.release(1, 2)
    lab.run()
    assert unheard_refusal(n) is None
    n.topics.heard = 0
    n.now_ms += n.limits.node_timeout_ms
    assert unheard_refusal(n) is None, "others may be away for long"


@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("how", ["stop", "process", "power"])
def test_the_journal_has_them(kept: Kept, how: str, has_snapshot: bool) -> None:
    """T60.6 Each change is a record `topic` in the journal: absolute (J2.2), binding (J4.2), and in
    snapshots, with removals. A load restores all of them.
    """
    run = kept.box.run
    first_ms = kept.box.n.now_ms
    run("TOPIC", "SUBSCRIBE", "orders", "mail", "FILTER", "kind", "a*")
    run("TOPIC", "SUBSCRIBE", "orders", "gone")
    run("TOPIC", "SUBSCRIBE", "orders", "audit")
    run("TOPIC", "UNSUBSCRIBE", "orders", "gone")
    run("TOPIC", "SUBSCRIBE", "orders", "mail", "FILTER", "kind", "b*")
    if has_snapshot:
        kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
        while kept.committer.is_rewriting():
            kept.turn()
    kept.restart(how)
    topics = kept.box.n.topics
    found = {one.queue: (one.filters, one.version - first_ms) for one in topics.of_topic(TOPIC)}
    assert found == {b"mail": ([b"kind", b"b*"], 1), b"audit": ([], 0)}
    gone = [(one.queue, one.version - first_ms) for one in topics.gone.values()]
    assert gone == [(b"gone", 1)]


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("how", ["process", "power"])
def test_all_or_none_after_a_crash(kept: Kept, how: str, is_written: bool) -> None:
    """T62.3 All jobs are added in one turn, and so in one frame of the journal (J3.1): after a
    crash this node has all or none.
    """
    run = kept.box.run
    for queue in ("a", "b", "c"):
        run("TOPIC", "SUBSCRIBE", "orders", queue)
    run("TOPIC", "ADD", "orders", "first", 0)
    seq = kept.committer.journal.seq
    kept.box.sessions[0]("TOPIC", "ADD", "orders", "second", 0)  # its turn does not end
    if is_written:
        assert kept.turn() == seq + 3
    kept.restart(how)
    lengths = [kept.box.run("QLEN", queue) for queue in ("a", "b", "c")]
    assert lengths == [1 + is_written] * 3


def test_copies(lab: Lab) -> None:
    """T62.5 (cluster) Jobs that need copies are added as those of a PUBLISH (Z3): each is queued
    when it has its copies, and the reply comes when all have them.
    """
    change(lab, 0, b"mail")
    change(lab, 0, b"audit")
    lab.run()
    ids = add(lab, 0, 3)
    assert lab.told[0] == []
    lab.run()
    (told,) = lab.told[0]
    assert (told.client, told.ids, told.error) == (7, ids, None)
    assert len(ids) == 2
    assert all(id in n.jobs for n in lab.nodes for id in ids)
    assert all(lab.nodes[0].jobs[id].state == QUEUED for id in ids)


@pytest.mark.parametrize("timeout_ms", [0, 300])
def test_too_few_copies(lab: Lab, timeout_ms: int) -> None:
    """T62.5 If that takes longer than ms-timeout, or Z3.3 applies, those that lack copies are
    queued without them.
    """
    change(lab, 0, b"mail")
    change(lab, 0, b"audit")
    lab.run()
    lab.hold(0, 2)
    ids = add(lab, 0, 3, timeout_ms)
    lab.pass_ms((timeout_ms or COPIES_MS) - 1)
    assert lab.told[0] == []
    lab.pass_ms(2)
    (told,) = lab.told[0]
    assert words_of(told.error) == (
        b"FEWCOPIES all jobs of the topic are added, 2 of 2 with fewer copies than asked for, "
        b"since nodes are unreachable: do not add them again"
    )
    assert all(lab.nodes[0].jobs[id].state == QUEUED for id in ids)
