"""SPEC A3.4, A5.3, A7.2: acks of jobs that are not known where they are said."""

from __future__ import annotations

import pytest
from test_a_cluster import ack, say, sent, spread

from cluster_lab import Lab
from tuque.core.copies.ack import on_ackjob, on_deljob, on_fastack
from tuque.core.copies.ack_gc import STRAYS_MAX, on_unknown_ack, on_unknown_fastack
from tuque.core.copies.replicate import copy_of
from tuque.core.model.job import ACKED, ACTIVE, BODYLESS, QUEUED
from tuque.core.msgs import DelJob, GotAck, SetAck
from tuque.core.queues.views import job_matches, show


def stray_ack(lab: Lab, i: int, id: bytes, client: int = 1) -> None:
    """ACKJOB at a node that does not have the job, and all that follows."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    assert not on_ackjob(n, id)
    on_unknown_ack(n, client, id)
    lab.run()


def test_an_ack_anywhere_ends_the_job() -> None:
    """A5.3 A record without a body is unregistered as soon as one holder has taken over, or all
    nodes have replied to the same question.
    """
    lab = Lab(4)
    id = spread(lab, 2, retry_s=1)
    stray_ack(lab, 3, id)
    assert lab.holders_of(id) == []
    assert all(not n.strays and not n.stray_counts for n in lab.nodes)
    lab.pass_ms(5_000)
    assert all(lab.get(i) == [] for i in range(4))


def test_a_holder_that_is_away_hears_of_it() -> None:
    """A3.4 (cluster) An unknown id whose TTL field says ALO and whose keyed code is right: the node
    makes a record without a body in state acked, at most 1000 at a time for one client. It sends
    SETACK without holders to all nodes.
    """
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    lab.isolate(2)
    stray_ack(lab, 2, id)
    record = lab.nodes[2].jobs[id]
    assert record.state == ACKED
    assert record.flags & BODYLESS
    lab.heal()
    lab.run()
    assert lab.holders_of(id) == []
    assert (2, 0) in sent(lab, SetAck)


@pytest.mark.parametrize("kind", ["amo", "forged", "alone", "buried"])
def test_ids_that_are_worth_no_record(kind: str) -> None:
    """A3.3 An unknown id does not count. On a node that is alone nothing else happens."""
    lab = Lab(1 if kind == "alone" else 3)
    n = lab.nodes[0]
    id = n.ids.make(3600, 0 if kind == "amo" else 1)
    if kind == "forged":
        id = id[:30] + (b"A" if id[30:31] != b"A" else b"B") + id[31:]
    elif kind == "buried":
        n.tombs.keep(id, lab.now_ms + 60_000)
    stray_ack(lab, 0, id)
    assert sent(lab, SetAck) == []
    assert lab.holders_of(id) == []
    assert n.used_bytes() <= 200


def test_a_client_has_so_many_records() -> None:
    """A3.4 at most 1000 at a time for one client"""
    lab = Lab(3)
    lab.isolate(2)
    n = lab.nodes[0]
    ids = [n.ids.make(60, 1) for _ in range(STRAYS_MAX + 50)]
    for id in ids:
        on_unknown_ack(n, 1, id)
    assert len(n.strays) == STRAYS_MAX
    on_unknown_ack(n, 2, ids[-1])
    assert len(n.strays) == STRAYS_MAX + 1
    lab.run()
    lab.heal()
    lab.run()  # now all nodes have said that they do not know them
    assert n.strays == {}
    assert n.stray_counts == {}
    on_unknown_ack(n, 1, ids[-2])
    assert len(n.strays) == 1


def test_the_record_ends_with_the_ttl_of_the_id() -> None:
    """A3.4 It ends at the latest 2 minutes after the time that the TTL field gives."""
    lab = Lab(2)
    lab.isolate(1)
    id = lab.nodes[0].ids.make(600, 1)
    stray_ack(lab, 0, id)
    lab.pass_ms(590_000)
    assert id in lab.nodes[0].jobs
    lab.pass_ms(730_000 - 590_000)
    assert id not in lab.nodes[0].jobs
    assert lab.nodes[0].ledger.expired == 0


def test_all_must_answer_the_same_question() -> None:
    """A5.3 A record without a body is unregistered as soon as one holder has taken over, or all
    nodes have replied to the same question.
    """
    lab = Lab(3)
    id = lab.nodes[0].ids.make(600, 1)
    lab.isolate(2)
    stray_ack(lab, 0, id)
    assert id in lab.nodes[0].jobs
    lab.pass_ms(5_000)
    assert lab.nodes[0].jobs[id].confirmed == 1 | 1 << lab.slot(0, 1)
    lab.hold(1, 0)
    lab.heal()
    lab.run()
    assert id in lab.nodes[0].jobs  # node 1 answered before, node 2 now
    lab.release(1, 0)
    lab.run()
    assert lab.holders_of(id) == []
    assert lab.nodes[0].ledger.gc_acked == 1


def test_a_record_without_a_job_is_no_copy() -> None:
    """A5.3 A node that itself has only such a record counts as unknown; for it, a holder that sends
    SETACK has taken over.
    """
    lab = Lab(4)
    lab.isolate(3)
    id = lab.nodes[0].ids.make(600, 1)
    stray_ack(lab, 0, id)
    lab.beat()
    lab.log.clear()
    stray_ack(lab, 1, id)
    answers = [m.known for a, _, m in lab.log if isinstance(m, GotAck) and a == 0]
    assert answers == [False]
    lab = Lab(4)
    id = spread(lab, 2)
    lab.hold(3, 0)
    lab.hold(3, 1)
    stray_ack(lab, 3, id)
    lab.nodes[0].jobs[id].holders |= 1 << lab.slot(0, 3)
    assert id in lab.nodes[3].jobs
    assert ack(lab, 0, id)
    assert id not in lab.nodes[3].jobs
    assert lab.nodes[3].tombs.has(id)  # for the copy that is believed to come
    lab.release(3, 0)
    lab.release(3, 1)
    lab.run()
    assert lab.holders_of(id) == []


def test_a_copy_does_not_come_to_a_record() -> None:
    """R2.2 This node has a tombstone or an acked record for the id: it replies with SETACK and the
    holder set that it knows (none for a tombstone). It stores nothing and does not count as a copy.
    """
    lab = Lab(3)
    id = spread(lab, 1)
    lab.hold(2, 0)
    lab.hold(2, 1)
    stray_ack(lab, 2, id)
    late = copy_of(lab.nodes[0], lab.slot(0, 2), lab.nodes[0].jobs[id], 0)
    say(lab, 0, 2, late)
    assert lab.states_of(id)[2] == ACKED
    lab.release(2, 0)
    lab.release(2, 1)
    lab.run()
    assert lab.holders_of(id) == []


@pytest.mark.parametrize("why", ["leaving", "memory"])
def test_who_forwards(why: str) -> None:
    """A3.4 At memory level 2 the node only forwards the SETACK and makes no record; its reply 0
    promises nothing.
    """
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    n = lab.nodes[2]
    if why == "leaving":
        n.is_leaving = True
    else:
        n.limits.memory_bytes = 100
        n.base_bytes = 97
    stray_ack(lab, 2, id)
    assert n.strays == {}, "that of a leaving node has ended: the others have answered"
    assert lab.holders_of(id) == []
    lab.pass_ms(5_000)
    assert lab.get(0) == []
    assert lab.get(1) == []


def test_tombstones_of_questions_do_not_stay() -> None:
    """A4.1 If the sender named no holders, it stays until all linked nodes have replied to a
    heartbeat.
    """
    lab = Lab(4)
    n = lab.nodes[0]
    lab.isolate(3)
    for _ in range(50):
        stray_ack(lab, 0, n.ids.make(86_400, 1))
    assert lab.nodes[1].tombs.count() == 50
    lab.beat()
    assert [o.tombs.count() for o in lab.nodes[1:3]] == [0, 0]


def test_fastack_of_an_unknown_job() -> None:
    """A7.2 Unknown: does not count. (cluster) If its keyed code is right, DELJOB goes to all nodes,
    once.
    """
    lab = Lab(4)
    id = spread(lab, 2)
    n = lab.nodes[3]
    assert not on_fastack(n, id)
    on_unknown_fastack(n, id)
    lab.run()
    assert lab.holders_of(id) == []
    assert {b for a, b in sent(lab, DelJob) if a == 3} == {0, 1, 2}
    lab.log.clear()
    lab.pass_ms(400_000)
    assert sent(lab, DelJob) == []
    forged = id[:30] + (b"A" if id[30:31] != b"A" else b"B") + id[31:]
    on_unknown_fastack(n, forged)
    lab.run()
    assert sent(lab, DelJob) == []


def test_fastack_after_ack_of_an_unknown_job() -> None:
    """A7.1 If this node is spreading the ack of an unknown job (A3.4), that continues."""
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    holders = lab.holders_of(id)
    there = next(i for i in range(3) if i not in holders)
    lab.isolate(there)
    stray_ack(lab, there, id)
    assert not on_fastack(lab.nodes[there], id)
    lab.run()
    lab.heal()
    lab.run()
    assert lab.holders_of(id) == []


def test_an_ack_of_an_unknown_job_survives_its_node() -> None:
    """A3.4 The record is in the journal before the reply, and survives a restart."""
    for is_rewritten in (False, True):
        lab = Lab(3, has_journal=True)
        id = spread(lab, 2, retry_s=1)
        there = next(i for i in range(3) if i not in lab.holders_of(id))
        lab.isolate(there)
        stray_ack(lab, there, id)
        if is_rewritten:
            lab.journals[there].rewrite(lab.nodes[there])
        lab.die(there)
        assert lab.nodes[there].jobs[id].flags & BODYLESS
        lab.heal()
        lab.pass_ms(100)
        assert lab.holders_of(id) == []
        lab.die(there)  # what is over does not come back
        assert id not in lab.nodes[there].jobs and not lab.nodes[there].strays


def test_records_without_a_job_are_not_shown() -> None:
    """S5.1 Records without a body are not shown."""
    lab = Lab(2)
    lab.isolate(1)
    id = lab.nodes[0].ids.make(60, 1)
    stray_ack(lab, 0, id)
    job = lab.nodes[0].jobs[id]
    assert not job_matches(job, None, [])
    assert not job_matches(job, None, [b"acked"])
    fields = show(lab.nodes[0], job)
    assert fields["queue"] is None
    assert fields["body"] is None
    assert (fields["repl"], fields["retry"], fields["delay"]) == (0, 0, 0)  # S1.2


def test_deleting_a_record_without_a_job() -> None:
    """A9.1 Each known job is unregistered here with cause deleted, whatever its state."""
    lab = Lab(2)
    lab.isolate(1)
    id = lab.nodes[0].ids.make(60, 1)
    stray_ack(lab, 0, id)
    assert on_deljob(lab.nodes[0], id)
    lab.run()
    assert lab.nodes[0].strays == {}
    assert lab.nodes[0].ledger.admin_deleted == 1


def test_who_never_had_it_is_no_reason_to_forget() -> None:
    """A5.3 A record without a body is unregistered as soon as one holder has taken over, or all
    nodes have replied to the same question.
    """
    lab = Lab(3)
    id = spread(lab, 1, retry_s=1)
    lab.hold(0, 2)
    stray_ack(lab, 2, id)
    assert lab.states_of(id) == [ACKED, -1, ACKED] or lab.states_of(id) == [-1, -1, ACKED]
    lab.cut(0, 2)
    lab.heal()
    lab.run()
    assert lab.holders_of(id) == []
    assert QUEUED not in lab.states_of(id)
    assert ACTIVE not in lab.states_of(id)


def test_a_link_without_room_is_asked_again_soon() -> None:
    """A6.3 If a link has no room for a SETACK, the message is sent as soon as there is room. For an
    ack of an unknown job (A3.4) the question then starts again, after 200 to 400 ms.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=1, retry_s=100)
    peer = lab.nodes[2].peers[lab.slot(2, 0)]
    peer.has_room = False
    stray_ack(lab, 2, id)
    lab.pass_ms(4_000)  # the next step of A6 is far away
    assert lab.holders_of(id) == [0, 2]
    peer.has_room = True
    lab.pass_ms(450)
    assert lab.holders_of(id) == []


def test_a_question_that_could_not_be_sent_is_no_try() -> None:
    """A6.3 For an ack of an unknown job (A3.4) the question then starts again"""
    lab = Lab(3)
    id = lab.add(0, replicate=1, retry_s=100)
    peer = lab.nodes[2].peers[lab.slot(2, 0)]
    peer.has_room = False
    stray_ack(lab, 2, id)
    lab.pass_ms(10_000)
    peer.has_room = True
    lab.hold(0, 2)  # its reply does not come
    lab.log.clear()
    lab.pass_ms(6_000)
    asked = [m for a, b, m in lab.log if (a, b) == (2, 0) and isinstance(m, SetAck)]
    assert len(asked) >= 2, "tries become rare with those that were sent"
    lab.release(0, 2)
    lab.pass_ms(10_000)
    assert lab.holders_of(id) == []


def test_a_link_without_room_is_waited_for() -> None:
    """A6.3 If a link has no room for a SETACK, the message is sent as soon as there is room."""
    lab = Lab(2)
    ids = [spread(lab, 2, retry_s=100) for _ in range(3)]
    peer = lab.nodes[0].peers[lab.slot(0, 1)]
    peer.has_room = False
    for id in ids:
        assert on_ackjob(lab.nodes[0], id)
    lab.run()
    lab.pass_ms(4_000)  # the next step of A6 is far away
    assert all(id in lab.nodes[1].jobs for id in ids)
    peer.has_room = True
    lab.pass_ms(100)
    assert [lab.holders_of(id) for id in ids] == [[], [], []]
