"""SPEC A3.4, A5.3, A7.2: acks of jobs that are not known where they are said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import ack, say, sent, spread

from told_events import Told
from tuque.core.copies.ack import on_ackjob, on_deljob, on_fastack
from tuque.core.copies.ack_gc import STRAYS_MAX, on_unknown_ack, on_unknown_fastack
from tuque.core.copies.replicate import copy_of
from tuque.core.model.job import ACKED, ACTIVE, BODYLESS, QUEUED
from tuque.core.msgs.bus import DelJob, GotAck, SetAck
from tuque.core.queues.views import job_matches, show
from world import World

Make = Callable[..., World]


def stray_ack(world: World, i: int, id: bytes, client: int = 1) -> None:
    """ACKJOB at a node that does not have the job, and all that follows."""
    n = world.node(i).core
    n.now_ms = world.now_ms
    assert not on_ackjob(n, id)
    on_unknown_ack(n, client, id)
    world.settle()


def test_an_ack_anywhere_ends_the_job(make_world: Make) -> None:
    """A5.3 A record without a body is unregistered as soon as one holder has taken over, or all
    nodes have replied to the same question.
    """
    world = make_world(4, journal="off")
    id = spread(world, 2, retry=1)
    stray_ack(world, 3, id)
    assert world.holders(id) == []
    assert all(not n.strays and not n.stray_counts for n in world.cores)
    world.pass_ms(5_000)
    assert all(world.at(i).get() == [] for i in range(4))


def test_a_holder_that_is_away_hears_of_it(make_world: Make) -> None:
    """A3.4 (cluster) An unknown id whose keyed code is right: the node
    makes a record without a body in state acked, at most 1000 at a time for one client. It sends
    SETACK without holders to all nodes.
    """
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    world.isolate(2)
    stray_ack(world, 2, id)
    record = world.node(2).core.jobs[id]
    assert record.state == ACKED
    assert record.flags & BODYLESS
    world.link()
    assert world.holders(id) == []
    assert (2, 0) in sent(world, SetAck)


@pytest.mark.parametrize("kind", ["forged", "alone", "buried"])
def test_ids_that_are_worth_no_record(make_world: Make, kind: str) -> None:
    """A3.3 An unknown id does not count. On a node that is alone nothing else happens."""
    world = make_world(1 if kind == "alone" else 3, journal="off")
    n = world.node(0).core
    used_bytes = n.used_bytes()
    id = n.ids.make(3600, 1)
    if kind == "forged":
        id = id[:30] + (b"A" if id[30:31] != b"A" else b"B") + id[31:]
    elif kind == "buried":
        n.tombs.keep(id, world.now_ms + 60_000)
    stray_ack(world, 0, id)
    assert sent(world, SetAck) == []
    assert world.holders(id) == []
    assert n.used_bytes() - used_bytes <= 200


def test_a_client_has_so_many_records(make_world: Make) -> None:
    """A3.4 at most 1000 at a time for one client"""
    world = make_world(3, journal="off")
    world.isolate(2)
    n = world.node(0).core
    ids = [n.ids.make(60, 1) for _ in range(STRAYS_MAX + 50)]
    for id in ids:
        on_unknown_ack(n, 1, id)
    assert len(n.strays) == STRAYS_MAX
    on_unknown_ack(n, 2, ids[-1])
    assert len(n.strays) == STRAYS_MAX + 1
    world.settle()
    world.link()
    world.settle()  # now all nodes have said that they do not know them
    assert n.strays == {}
    assert n.stray_counts == {}
    on_unknown_ack(n, 1, ids[-2])
    assert len(n.strays) == 1


def test_the_record_ends_with_the_ttl_of_the_id(make_world: Make) -> None:
    """A3.4 It ends at the latest 2 minutes after the time that the TTL field gives."""
    world = make_world(2, journal="off")
    world.isolate(1)
    id = world.node(0).core.ids.make(600, 1)
    stray_ack(world, 0, id)
    world.pass_ms(590_000)
    assert id in world.node(0).core.jobs
    world.pass_ms(730_000 - 590_000)
    assert id not in world.node(0).core.jobs
    assert world.node(0).core.ledger.expired == 0


def test_all_must_answer_the_same_question(make_world: Make) -> None:
    """A5.3 A record without a body is unregistered as soon as one holder has taken over, or all
    nodes have replied to the same question.
    """
    world = make_world(3, journal="off")
    id = world.node(0).core.ids.make(600, 1)
    world.isolate(2)
    stray_ack(world, 0, id)
    assert id in world.node(0).core.jobs
    world.pass_ms(5_000)
    assert world.node(0).core.jobs[id].confirmed == 1 | 1 << world.slot(0, 1)
    world.hold(1, 0)
    world.link(0, 2)
    assert id in world.node(0).core.jobs  # node 1 answered before, node 2 now
    world.release(1, 0)
    assert world.holders(id) == []
    assert world.node(0).core.ledger.gc_acked == 1


def test_a_record_without_a_job_is_no_copy(make_world: Make) -> None:
    """A5.3 A node that has only such a record counts as unknown; for it, a holder that sends
    SETACK has taken over.
    """
    world = make_world(4, journal="off")
    world.isolate(3)
    id = world.node(0).core.ids.make(600, 1)
    stray_ack(world, 0, id)
    world.beat()
    world.forget_heard()
    stray_ack(world, 1, id)
    answers = [m.known for a, _, m in world.heard(GotAck) if a == 0]
    assert answers == [False]
    world = make_world(4, journal="off")
    id = spread(world, 2)
    world.hold(3, 0)
    world.hold(3, 1)
    stray_ack(world, 3, id)
    world.node(0).core.jobs[id].holders |= 1 << world.slot(0, 3)
    assert id in world.node(3).core.jobs
    assert ack(world, 0, id)
    assert id not in world.node(3).core.jobs
    assert world.node(3).core.tombs.has(id)  # for the copy that is believed to come
    world.release(3, 0)
    world.release(3, 1)
    assert world.holders(id) == []


def test_a_copy_does_not_come_to_a_record(make_world: Make) -> None:
    """R2.2 Tombstone or acked record: the reply is SETACK with its holder set (none for a
    tombstone). Nothing is stored; this is no copy.
    """
    world = make_world(3, journal="off")
    id = spread(world, 1)
    world.hold(2, 0)
    world.hold(2, 1)
    stray_ack(world, 2, id)
    late = copy_of(world.node(0).core, world.slot(0, 2), world.node(0).core.jobs[id], 0)
    say(world, 0, 2, late)
    assert world.states(id)[2] == ACKED
    world.release(2, 0)
    world.release(2, 1)
    assert world.holders(id) == []


@pytest.mark.parametrize("why", ["leaving", "memory"])
def test_who_forwards(make_world: Make, why: str) -> None:
    """A3.4 At memory level 2 the node only forwards the SETACK and makes no record; its reply 0
    promises nothing.
    """
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    n = world.node(2).core
    if why == "leaving":
        n.is_leaving = True
    else:
        n.limits.memory_bytes = 100
        n.base_bytes = 97
    stray_ack(world, 2, id)
    assert n.strays == {}, "that of a leaving node has ended: the others have answered"
    assert world.holders(id) == []
    world.pass_ms(5_000)
    assert world.at(0).get() == []
    assert world.at(1).get() == []


def test_tombstones_of_questions_do_not_stay(make_world: Make) -> None:
    """A4.1 If the sender named no holders, it stays until all linked nodes have replied to a
    heartbeat.
    """
    world = make_world(4, journal="off")
    n = world.node(0).core
    world.isolate(3)
    for _ in range(50):
        stray_ack(world, 0, n.ids.make(86_400, 1))
    assert world.node(1).core.tombs.count() == 50
    world.beat()
    assert [o.tombs.count() for o in world.cores[1:3]] == [0, 0]


def test_fastack_of_an_unknown_job(make_world: Make) -> None:
    """A7.2 Unknown: does not count. (cluster) If its keyed code is right, DELJOB goes to all nodes,
    once.
    """
    world = make_world(4, journal="off")
    id = spread(world, 2)
    n = world.node(3).core
    assert not on_fastack(n, id)
    on_unknown_fastack(n, id)
    world.settle()
    assert world.holders(id) == []
    assert {b for a, b in sent(world, DelJob) if a == 3} == {0, 1, 2}
    world.forget_heard()
    world.pass_ms(200_000)
    assert sent(world, DelJob) == []
    forged = id[:30] + (b"A" if id[30:31] != b"A" else b"B") + id[31:]
    on_unknown_fastack(n, forged)
    world.settle()
    assert sent(world, DelJob) == []


def test_fastack_after_ack_of_an_unknown_job(make_world: Make) -> None:
    """A7.1 If this node is spreading the ack of an unknown job (A3.4), that continues."""
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    holders = world.holders(id)
    there = next(i for i in range(3) if i not in holders)
    world.isolate(there)
    stray_ack(world, there, id)
    assert not on_fastack(world.node(there).core, id)
    world.settle()
    world.link()
    assert world.holders(id) == []


def test_an_ack_of_an_unknown_job_survives_its_node(make_world: Make) -> None:
    """A3.4 The record is in the journal before the reply, and survives a restart."""
    for is_rewritten in (False, True):
        world = make_world(3, journal="always")
        id = spread(world, 2, retry=1)
        there = next(i for i in range(3) if i not in world.holders(id))
        world.isolate(there)
        stray_ack(world, there, id)
        if is_rewritten:
            world.at(there)("BGREWRITEAOF")
        world.restart(there)
        assert world.node(there).core.jobs[id].flags & BODYLESS
        world.link()
        world.pass_ms(100)
        assert world.holders(id) == []
        world.restart(there)  # what is over does not come back
        assert id not in world.node(there).core.jobs and not world.node(there).core.strays


def test_records_without_a_job_are_not_shown(make_world: Make) -> None:
    """S5.1 Records without a body are not shown."""
    world = make_world(2, journal="off")
    world.isolate(1)
    id = world.node(0).core.ids.make(60, 1)
    stray_ack(world, 0, id)
    job = world.node(0).core.jobs[id]
    assert not job_matches(job, None, [])
    assert not job_matches(job, None, [b"acked"])
    fields = show(world.node(0).core, job)
    assert fields["queue"] is None
    assert fields["body"] is None
    assert (fields["repl"], fields["retry"], fields["delay"]) == (0, 0, 0)  # S1.2


def test_deleting_a_record_without_a_job(make_world: Make) -> None:
    """A9.1 Each known job is unregistered here with cause deleted, whatever its state."""
    world = make_world(2, journal="off")
    world.isolate(1)
    id = world.node(0).core.ids.make(60, 1)
    stray_ack(world, 0, id)
    assert on_deljob(world.node(0).core, id)
    world.settle()
    assert world.node(0).core.strays == {}
    assert world.node(0).core.ledger.admin_deleted == 1


def test_who_never_had_it_is_no_reason_to_forget(make_world: Make) -> None:
    """A5.3 A record without a body is unregistered as soon as one holder has taken over, or all
    nodes have replied to the same question.
    """
    world = make_world(3, journal="off")
    id = spread(world, 1, retry=1)
    world.hold(0, 2)
    stray_ack(world, 2, id)
    assert world.states(id) == [ACKED, -1, ACKED] or world.states(id) == [-1, -1, ACKED]
    world.cut(0, 2)
    world.link()
    assert world.holders(id) == []
    assert QUEUED not in world.states(id)
    assert ACTIVE not in world.states(id)


def test_a_link_without_room_is_asked_again_soon(make_world: Make) -> None:
    """A6.3 If a link has no room for a SETACK, it is sent as soon as there is room. The question
    about an unknown job (A3.4) then starts again, after 200 to 400 ms.
    """
    world = make_world(3, journal="off", bus_buffer_limit="1mb")
    id = world.at(0).add(replicate=1, retry=100)
    world.fill(2, 0)
    stray_ack(world, 2, id)
    world.pass_ms(4_000)  # the next step of A6 is far away
    assert world.holders(id) == [0, 2]
    world.release(2, 0)
    world.pass_ms(450)
    assert world.holders(id) == []


def test_a_question_that_could_not_be_sent_is_no_try(make_world: Make) -> None:
    """A6.3 The question about an unknown job (A3.4) then starts again, after 200 to 400 ms."""
    world = make_world(3, journal="off", bus_buffer_limit="1mb")
    id = world.at(0).add(replicate=1, retry=100)
    world.fill(2, 0)
    stray_ack(world, 2, id)
    world.pass_ms(10_000)
    world.hold(0, 2)  # its reply does not come
    world.release(2, 0)
    world.forget_heard()
    world.pass_ms(6_000)
    asked = [m for a, b, m in world.heard() if (a, b) == (2, 0) and isinstance(m, SetAck)]
    assert len(asked) >= 2, "tries become rare with those that were sent"
    world.release(0, 2)
    world.pass_ms(10_000)
    assert world.holders(id) == []


def test_a_link_without_room_is_waited_for(make_world: Make) -> None:
    """A6.3 If a link has no room for a SETACK, it is sent as soon as there is room."""
    world = make_world(2, journal="off", bus_buffer_limit="1mb")
    ids = [spread(world, 2, retry=100) for _ in range(3)]
    world.fill(0, 1)
    for id in ids:
        assert on_ackjob(world.node(0).core, id)
    world.settle()
    world.pass_ms(4_000)  # the next step of A6 is far away
    assert all(id in world.node(1).core.jobs for id in ids)
    world.release(0, 1)
    world.pass_ms(100)
    assert [world.holders(id) for id in ids] == [[], [], []]


def acked_at(world: World, id: bytes) -> list[int]:
    """The nodes that wrote the event acked of the job, once for each row."""
    return [i for i in world.numbers() for kind in world.node(i).kinds(id) if kind == "acked"]


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DONE"])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_one_event_of_an_ack_at_any_node(make_world: Make, copies: int, command: str) -> None:
    """E1.13 (cluster) If the node that got ACKJOB, FASTACK or DONE has no copy of the job (A3.4,
    A7.2), a holder writes acked, and counts the ack: the origin of the job if it is a holder and
    reachable, else the first reachable one by node id.
    """
    world = make_world(4, events=True)
    for at in world.numbers():
        id = spread(world, copies, retry=60)
        assert world.at(0).get() == [id]
        run = ["-"] if command == "DONE" else []
        for _ in range(2):  # a client may repeat it
            world.at(at)(command, id, *run)
            world.settle()
        assert world.holders(id) == []
        assert acked_at(world, id) == ([at] if at < copies else [0])
    assert sum(int(n.book.total.acked) for n in world.cores) == len(world.nodes)
    told = [told for n in world.cores if n.events for told in map(Told, n.events.full)]
    assert {size for one in told for size in one.size} == {len(b"body")}, "the body is still there"


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK"])
def test_the_event_does_not_depend_on_which_message_is_first(
    make_world: Make, command: str
) -> None:
    """E1.13 The messages that spread such an ack ask for the event; a holder that does not write
    it passes that on to a holder that does, until it confirms.
    """
    world = make_world(4, events=True)
    id = spread(world, 3, retry=60)
    world.hold(3, 0)  # what the other holders say arrives before
    world.at(3)(command, id)
    world.settle()
    assert acked_at(world, id) == [0]
    world.release(3, 0)
    world.settle()
    assert world.holders(id) == []
    assert acked_at(world, id) == [0]


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK"])
def test_the_event_where_the_origin_is_down(make_world: Make, command: str) -> None:
    """E1.13 else the first reachable one by node id."""
    world = make_world(4, events=True)
    id = spread(world, 3, retry=60)
    first = min((1, 2), key=lambda i: world.node(i).core.node_id)
    world.kill(0)
    world.settle()
    world.at(3)(command, id)
    world.settle()
    world.start(0)
    world.until(lambda: world.holders(id) == [])
    assert acked_at(world, id) == [first]


def test_a_holder_that_was_lost_writes_the_event_when_it_is_back(make_world: Make) -> None:
    """E1.13 A holder that is lost in that moment writes it when it is back, if the holder that
    passed it on has not restarted since.
    """
    world = make_world(3, events=True)
    id = spread(world, 2, retry=60)
    world.hold(2, 0)
    world.hold(1, 0)  # they do not see yet that it is lost
    world.at(2)("ACKJOB", id)
    world.settle()
    assert acked_at(world, id) == []
    world.kill(0)
    world.settle()
    world.release(2, 0)
    world.release(1, 0)
    world.start(0)
    world.link()
    world.until(lambda: world.holders(id) == [])
    assert acked_at(world, id) == [0]


def started(world: World, id: bytes) -> bytes:
    """The run that a worker at node 0 begins, of which the holders have heard."""
    assert world.at(0).get() == [id]
    ((run, *_),) = world.at(0)("START", "WORKER", "w1", id)
    world.pass_ms(100)
    assert isinstance(run, bytes)
    return run


def done_at(world: World, id: bytes) -> list[tuple[int, list[str]]]:
    """The nodes that wrote of the end of the job, and what."""
    told = [(i, world.node(i).kinds(id)) for i in world.numbers()]
    ends = [(i, [kind for kind in kinds if kind in ("run-done", "acked")]) for i, kinds in told]
    return [one for one in ends if one[1]]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_the_run_of_a_done_at_any_node(make_world: Make, copies: int) -> None:
    """E1.13 Before an acked after DONE with a run it writes run-done (E1.7), as a node with a copy
    does.
    """
    world = make_world(4, events=True)
    for at in world.numbers():
        id = spread(world, copies, retry=60)
        run = started(world, id)
        for _ in range(2):
            world.at(at)("DONE", id, run)
            world.settle()
        assert world.holders(id) == []
        assert done_at(world, id) == [(at if at < copies else 0, ["run-done", "acked"])]
    told = [told for n in world.cores if n.events for told in map(Told, n.events.full)]
    workers = [reason for one in told for reason in one.reason]
    assert workers.count(b"w1") == 2 * len(world.nodes)  # run-started, run-done


@pytest.mark.parametrize("command", ["DONE", "ACKJOB"])
def test_a_run_that_another_holder_passes_on(make_world: Make, command: str) -> None:
    """E1.13 Before an acked after DONE with a run it writes run-done (E1.7), as a node with a copy
    does.

    So with what another holder passes on. ACKJOB names no run, though one lasts.
    """
    world = make_world(4, events=True)
    id = spread(world, 3, retry=60)
    run = started(world, id)
    world.hold(3, 0)  # what the other holders say arrives before
    world.at(3)(command, id, *([run] if command == "DONE" else []))
    world.settle()
    kinds = ["run-done", "acked"] if command == "DONE" else ["acked"]
    assert done_at(world, id) == [(0, kinds)]
    world.release(3, 0)
    world.settle()
    assert world.holders(id) == []
    assert done_at(world, id) == [(0, kinds)]
