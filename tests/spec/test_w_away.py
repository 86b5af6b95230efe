"""SPEC W15.5: a job that only a node knows which is not in reach."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_w_dropped import linked

from tuque.core.dispatch.messages import on_link_down, on_link_up, on_message
from tuque.core.life.cancel_update import ENDED
from tuque.core.life.lookup import CANCEL, LOOK
from tuque.core.life.outcomes import on_done
from tuque.core.model.job_id import IdMaker
from tuque.core.model.work import Terms, run_text
from tuque.core.msgs.bus import (
    DelJob,
    JobAsk,
    JobTold,
    SetAck,
)
from tuque.core.node.node import Node
from tuque.core.repair.node_loss import on_forget
from world import World
from world_lives import add, at, known, start, told

Make = Callable[..., World]

KEPT = Terms(0, 0, 0, 0, b"", 600_000, 0)
MAKER, OTHER = b"b" * 40, b"c" * 40
FIELDS = [0, 0, b"", b"", None, b"", b"", b"", 1]  # of RESULT, after the state
NOREACH = (
    "NOREACH Job is not known here, and may be at a node that did not answer: " + MAKER.decode()
)


def made_there(n: Node, seed: bytes = b"seed", maker: bytes = MAKER) -> bytes:
    """An id that the node MAKER, or another one, has made."""
    return IdMaker(maker, seed, n.ids.key).make(60, 1)


def unheard(make_world: Make) -> World:
    """Two nodes; the second one is asked, and what it answers is for the test to say."""
    world = make_world(2)
    world.hold(1, 0)
    return world


def asked(world: World, what: int = LOOK) -> list[bytes]:
    """The jobs that the second node was asked about since the last call, or `forget_heard`."""
    world.settle()
    found = [m.id for _, _, m in world.heard(JobAsk) if m.what == what]
    world.lab.heard = [one for one in world.lab.heard if getattr(one[3], "what", what) != what]
    return found


def test_a_job_of_a_node_that_is_away_is_not_gone(world: World) -> None:
    """W15.5 If no node that answers knows the job, but a member is not in reach or does not
    answer, the job is not `gone`. WAITJOB waits. The waits end when the node is back, or is
    forgotten (K6): then it counts as lost with its jobs. RESULT replies `-NOREACH Job is not
    known here, and may be at a node that did not answer: <id>[, <id>]`, with WAIT at the
    timeout; so does CANCEL for that id.

    WAITJOB waits. The waits end when the node is back
    """
    n = world.n
    maker = linked(world, MAKER)
    id = made_there(n)
    on_link_down(n, maker)
    assert str(world.run("RESULT", id)) == NOREACH
    assert [str(one) for one in world.run("CANCEL", id)] == [NOREACH]
    waiter, brief = world.wire(), world.wire()
    assert waiter("WAITJOB", 0, id) is None
    assert brief("RESULT", id, "WAIT", 2_000) is None
    world.pass_ms(1_900)
    assert brief.take() is None
    world.pass_ms(200)
    assert str(brief.take()) == NOREACH
    on_link_up(n, maker, True)
    world.settle()
    assert waiter.take() is None, "it is asked now"
    on_message(n, maker, JobTold(id, False, 0, False))
    world.settle()
    assert waiter.take() == [[id, b"gone"]]


def test_others_do_not_know_it(world: World) -> None:
    """W15.5 If no node that answers knows the job, but a member is not in reach or does not answer,
    the job is not `gone`
    """
    n = world.n
    maker, other = linked(world, MAKER), linked(world, OTHER)
    frozen = made_there(n)
    assert world.run("RESULT", frozen) is None
    on_message(n, other, JobTold(frozen, False, 0, False))
    world.pass_ms(1_100)
    assert str(world.run.take()) == NOREACH, "its maker is linked, and does not answer"
    on_link_down(n, maker)
    id = made_there(n, b"more")
    assert world.run("CANCEL", id, id) is None
    on_message(n, other, JobTold(id, False, 0, False))
    world.settle()
    assert [str(one) for one in world.run.take()] == [NOREACH] * 2
    waiter = world.wire()
    assert waiter("WAITJOB", 0, id) is None
    on_message(n, other, JobTold(id, False, 0, False))
    world.settle()
    assert waiter.take() is None
    on_link_up(n, maker, True)
    world.settle()
    assert waiter.take() is None
    on_message(n, other, JobTold(id, False, 0, False))
    fields = [b"running", 1, 0, b"w", b"", None, b"", b"", b"", 0]
    on_message(n, maker, JobTold(id, True, 0, False, fields))
    world.settle()
    assert waiter.take() is None, "it goes on"


def test_a_job_that_left_its_maker_is_not_gone(world: World) -> None:
    """W15.5 If no node that answers knows the job, but a member is not in reach or does not
    answer, the job is not `gone`.
    """
    n = world.n
    maker, holder = linked(world, MAKER), linked(world, OTHER)
    id = made_there(n)
    on_link_down(n, holder)
    cancel, waiter = world.wire(), world.wire()
    assert world.run("RESULT", id) is None
    on_message(n, maker, JobTold(id, False, 0, False))
    world.settle()
    assert str(world.run.take()) == NOREACH.replace(MAKER.decode(), OTHER.decode())
    assert cancel("CANCEL", id) is None
    on_message(n, maker, JobTold(id, False, 0, False))
    world.settle()
    assert [str(one) for one in cancel.take()] == [NOREACH.replace(MAKER.decode(), OTHER.decode())]
    assert waiter("WAITJOB", 0, id) is None
    mine = IdMaker(n.node_id, b"mine", n.ids.key).make(60, 1)
    assert world.run("RESULT", mine) is None
    on_message(n, maker, JobTold(mine, False, 0, False))
    world.settle()
    assert str(world.run.take()).startswith("NOREACH"), "this node made it, and gave it away"
    assert waiter.take() is None
    on_link_up(n, holder, True)
    world.pass_ms(1_000)
    for slot in (maker, holder):
        on_message(n, slot, JobTold(id, False, 0, False))
    world.settle()
    assert waiter.take() == [[id, b"gone"]], "all have answered"


def test_a_cancel_that_may_still_take_effect(world: World) -> None:
    """W15.8 A node that got the CANCEL and did not answer may still do it later. Then the reply
    is `-NOREACH Job is not known here, and may be at a node that did not answer: <id>; CANCEL
    may still take effect there`. Without the last words no such node got it. A later CANCEL of
    that job has them too, until the node is linked again.
    """
    n = world.n
    still, other = linked(world, MAKER), linked(world, OTHER)
    id = made_there(n)
    assert world.run("CANCEL", id) is None
    on_message(n, other, JobTold(id, False, 0, False))
    world.pass_ms(1_100)
    assert world.run.take() == [NOREACH + "; CANCEL may still take effect there"]
    assert not n.life.cancelling, "it is not sent again"
    on_link_down(n, still)
    assert cancelled(world, other, id) == NOREACH + "; CANCEL may still take effect there"
    assert cancelled(world, other, made_there(n, b"more")) == NOREACH
    on_link_up(n, still, True)
    assert not n.life.unanswered
    on_link_down(n, still)
    assert cancelled(world, other, id) == NOREACH, "it has come to itself, and did not cancel it"


def cancelled(world: World, other: int, id: bytes) -> str:
    """The reply to CANCEL, of which the other linked node says that it does not know the job."""
    assert world.run("CANCEL", id) is None
    on_message(world.n, other, JobTold(id, False, 0, False))
    world.settle()
    (reply,) = world.run.take()
    return str(reply)


def test_cancels_that_are_remembered(world: World) -> None:
    """W15.8 A later CANCEL of that job has them too, until the node is linked again. Of such
    jobs 1000 are remembered.
    """
    n = world.n
    still = linked(world, MAKER)
    ids = [made_there(n, b"%d" % i) for i in range(1_001)]
    for i in range(0, 1_001, 91):
        assert world.run("CANCEL", *ids[i : i + 91]) is None
        world.pass_ms(1_000)
        assert all(str(one).endswith("there") for one in world.run.take())
    assert len(n.life.unanswered) == 1_000
    on_link_down(n, still)
    first, second = world.run("CANCEL", ids[0], ids[1])
    assert (first, second) == (NOREACH, NOREACH + "; CANCEL may still take effect there")


def test_a_cancel_beside_those_who_wait(make_world: Make) -> None:
    """W15.9 The questions of CANCEL and of clients that wait for the same job do not disturb
    each other.
    """
    world = unheard(make_world)
    n, maker = world.n, world.machines[1].node_id
    holder = world.slot(0, 1)
    id = made_there(n, maker=maker)
    waiter, other = world.wire(), world.wire()
    assert waiter("WAITJOB", 0, id) is None
    assert world.run("CANCEL", id) is None
    assert other("CANCEL", id) is None
    on_message(n, holder, JobTold(id, True, 0, False, [b"waiting", *FIELDS]))
    world.settle()
    assert world.run.take() is None
    on_message(n, holder, JobTold(id, True, ENDED, False))
    world.settle()
    assert (world.run.take(), other.take()) == ([b"ended"], [b"ended"])
    world.forget_heard()
    assert waiter.take() is None
    world.pass_ms(1_000)
    assert [m.what for _, _, m in world.heard(JobAsk)] == [LOOK]
    on_message(n, holder, JobTold(id, True, 0, True, [b"cancelled", *FIELDS]))
    world.settle()
    assert waiter.take() == [[id, b"cancelled"]]


def test_an_end_that_was_told_stands(world: World) -> None:
    """W15.3 The client gets the first answer of a node that knows the job; for RESULT with WAIT and
    WAITJOB, the first by which the wait is over.
    """
    n = world.n
    holder, other = linked(world, MAKER), linked(world, OTHER)
    ended, open = made_there(n), made_there(n, b"more")
    assert world.run("WAITJOB", 0, ended, open) is None
    fields = [b"done", 1, 0, b"w", b"", b"42", b"", b"", b"", 1]
    on_message(n, holder, JobTold(ended, True, 0, True, fields))
    on_link_down(n, holder)
    world.pass_ms(1_000)
    on_message(n, other, JobTold(ended, False, 0, False))
    on_message(n, other, JobTold(open, True, 0, True, fields))
    world.settle()
    assert world.run.take() == [[ended, b"done"], [open, b"done"]]


def test_many_that_are_away(world: World) -> None:
    """W15.5 Of more than three nodes it names three, then ` and <n> more`."""
    slots = [linked(world, b"%02x" % i * 20) for i in range(20, 25)]
    for slot in slots:
        on_link_down(world.n, slot)
    names = ", ".join(["14" * 20, "15" * 20, "16" * 20]) + " and 2 more"
    assert str(world.run("RESULT", made_there(world.n))) == NOREACH.replace(MAKER.decode(), names)


def test_an_end_that_only_a_stranger_knows(world: World) -> None:
    """W15.6 Only a job that a holder has ended is known to have ended: its tombstone here is of
    DELJOB, or of SETACK that names holders. The end of one that was acked at a node without it
    (A3.4, W14.6) is open until a holder has heard of it.
    """
    n = world.n
    holder, other = linked(world, MAKER), linked(world, OTHER)
    id, named, deleted = (made_there(n, b"%d" % i) for i in range(3))
    on_link_down(n, holder)
    on_message(n, other, SetAck(id, 0, 60_000, b""))
    on_message(n, other, SetAck(named, 1, 60_000, b""))
    on_message(n, other, DelJob(deleted, 1, 60_000))
    assert all(n.tombs.has(one) for one in (id, named, deleted))
    for one, word in ((id, "NOREACH"), (named, "NOJOB"), (deleted, "NOJOB")):
        assert world.run("RESULT", one) is None
        on_message(n, other, JobTold(one, False, 0, False))
        world.settle()
        assert str(world.run.take()).startswith(word)


def test_done_here_of_a_job_that_is_not_in_reach(world: World) -> None:
    """W15.6 The end of one that was acked at a node without it (A3.4, W14.6) is open until a
    holder has heard of it.
    """
    n = world.n
    holder = linked(world, MAKER)
    id = made_there(n)
    on_link_down(n, holder)
    assert world.run("DONE", id, "-", "RESULT", "42") == 0
    waiter = world.wire()
    assert waiter("WAITJOB", 0, id) is None, "it is not done yet: another end may come first"
    assert str(world.run("RESULT", id)) == NOREACH
    on_link_up(n, holder, True)
    world.settle()
    fields = [b"cancelled", 1, 0, b"", b"", None, b"", b"", b"", 1]
    on_message(n, holder, JobTold(id, True, 0, True, fields))
    world.settle()
    assert waiter.take() == [[id, b"cancelled"]]


def test_done_here_with_a_result_that_is_too_large_to_wait(world: World) -> None:
    """W14.6 One that alone is larger is not kept: DONE replies the error of W7.4 while an
    unreachable member may be the only holder.
    """
    n = world.n
    world.run("CONFIG", "SET", "results-max-bytes", 1_000)
    maker, other = linked(world, MAKER), linked(world, OTHER)
    first, second, ended = (made_there(n, b"%d" % i) for i in range(3))
    large = "x" * 5_000
    assert world.run("DONE", first, "-", "RESULT", large) == 0, (
        "it is with all who may have the job"
    )
    on_message(n, other, DelJob(ended, 1, 60_000))
    on_link_down(n, maker)
    assert world.run("DONE", ended, "-", "RESULT", large) == 0
    error = "ERR the job is done, but its result of 5000 bytes is not kept here: "
    assert world.run("DONE", second, "-", "RESULT", large).startswith(error)
    assert world.run("DONE", made_there(n, b"less"), "-", "RESULT", "42") == 0
    assert b"results_too_large:1\r\n" in world.run("INFO", "jobs")


def test_a_node_that_loads_does_not_answer(world: World) -> None:
    """W15.7 A node that is loading its journal does not answer."""
    n = world.n
    slot = linked(world, MAKER)
    n.peers[slot].outbox = []
    n.is_loading = True
    on_message(n, slot, JobAsk(made_there(n), LOOK, b""))
    assert n.peers[slot].outbox == []
    n.is_loading = False
    on_message(n, slot, JobAsk(made_there(n), LOOK, b""))
    assert len(n.peers[slot].outbox) == 1


def test_a_forgotten_node_ends_the_wait(world: World) -> None:
    """W15.5 The waits end when the node is back, or is forgotten (K6): then it counts as lost with
    its jobs.
    """
    n = world.n
    maker = linked(world, MAKER)
    id = made_there(n)
    assert world.run("WAITJOB", 0, id) is None
    on_link_down(n, maker)
    world.pass_ms(3_000)
    assert world.run.take() is None
    on_forget(n, maker)
    world.pass_ms(1_000)
    assert world.run.take() == [[id, b"gone"]]


def test_what_is_known_to_be_over_is_gone(world: World) -> None:
    """W15.5 a member is not in reach or does not answer, the job is not `gone`

    Ids of strangers, of nodes that were forgotten, and of jobs that ended are.
    """
    n = world.n
    maker = linked(world, MAKER)
    on_link_down(n, maker)
    ended = made_there(n)
    n.tombs.bury(ended, n.now_ms + 60_000, 1 << maker, n.round)
    assert str(world.run("RESULT", ended)).startswith("NOJOB")
    id = made_there(n, b"more")
    forged = id[:27] + b"AAAAAAAA" + id[35:]
    assert str(world.run("RESULT", forged)).startswith("NOJOB")
    assert world.run("CANCEL", forged, ended) == [None, None]
    assert str(world.run("RESULT", id)) == NOREACH
    on_forget(n, maker)
    assert str(world.run("RESULT", id)).startswith("NOJOB")
    assert world.run("WAITJOB", 0, id) == [[id, b"gone"]]


@pytest.mark.long
@pytest.mark.parametrize("how", ["", "restart", "rewrite"])
def test_a_result_waits_for_a_holder_that_is_away(make_world: Make, how: str) -> None:
    """W14.6 The result waits there for an absent holder as long as the node asks (A3.4), within
    `results-max-bytes` (W7.4).

    W13.9 What DONE reported of a job that is not here (W14.6) is an outcome without end, while
    the node asks about the job.
    """
    world = make_world(3)
    id = add(world, 0, 600, KEPT, 7_200, replicate=1)
    assert world.holders(id) == [0]
    world.isolate(0)
    on_done(world.node(1).core, id, 0, b"42", 9)
    world.pass_ms(1_000)
    if how == "rewrite":
        world.at(1)("BGREWRITEAOF")
        world.until(lambda: any("journal rewritten" in line for line in world.node(1).log))
    if how:
        world.restart(1)
        world.link(1, 2)
    world.pass_ms(600_000)
    world.link()
    world.pass_ms(3_000)
    told = known(world, 0, id)
    assert (told["state"], told["result"]) == (b"done", b"42")
    world.pass_ms(100_000)
    assert not world.node(1).core.life.kept, "it is not kept here for longer than it must"
    world.restart(1)
    assert not world.node(1).core.life.kept


@pytest.mark.parametrize("is_told_twice", [False, True])
def test_a_run_of_an_at_most_once_job_ends_while_its_node_restarts(
    make_world: Make, is_told_twice: bool
) -> None:
    """A3.4 Of an AMO job, too: each node that has it learns that it is over, also after a
    restart, and its outcome (W14.6).
    """
    world = make_world(3)
    id = add(world, 0, 0, KEPT, 7_200, replicate=1)
    assert world.at(0).get() == [id]
    run = start(world, 0, id)
    world.stop(0)
    token = run_text(run)
    assert world.at(1)("DONE", id, token, "RESULT", "42") == 0
    if is_told_twice:
        assert world.at(2)("DONE", id, token, "RESULT", "42") == 0
        world.restart(1)
    world.pass_ms(60_000)
    world.start(0)
    world.link()
    world.pass_ms(3_000)
    for i in world.numbers():
        result = told(world, i, id)
        assert (result["state"], result["result"]) == (b"done", b"42"), i
    assert world.at(0).get() == []
    assert not at(world, 0).strays and not at(world, 1).strays and not at(world, 2).strays


def test_the_ack_of_an_at_most_once_job_waits_for_its_node(make_world: Make) -> None:
    """A3.4 Of an AMO job, too: each node that has it learns that it is over, also after a
    restart, and its outcome (W14.6).
    """
    world = make_world(2)
    id = add(world, 0, 0, KEPT, 7_200, replicate=1)
    assert world.at(0).get() == [id]
    world.stop(0)
    assert world.at(1)("ACKJOB", id) == 0
    world.start(0)
    world.link()
    world.pass_ms(3_000)
    assert [told(world, i, id)["state"] for i in (0, 1)] == [b"done", b"done"]


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_result_outlives_the_forgotten_holder(make_world: Make, nodes: int) -> None:
    """W14.6 If a node that did not answer is forgotten (K6), and no other one knows the job, the
    outcome is kept here until the TTL in the id is over.
    """
    world = make_world(nodes)
    id = add(world, 0, 600, KEPT, 180, replicate=1)
    assert world.holders(id) == [0]
    world.isolate(0)
    on_done(world.node(1).core, id, 0, b"42", 9)
    world.pass_ms(60_000)
    for i in range(1, nodes):
        world.forget(i, 0)
    world.pass_ms(100_000)
    for is_anew in (False, True):
        if is_anew:
            world.restart(1)
        told = known(world, 1, id)
        assert (told["state"], told["result"]) == (b"done", b"42")
    world.pass_ms(150_000)
    assert not world.node(1).core.life.kept


def test_a_result_does_not_outlive_the_holder_while_another_node_may_know_the_job(
    make_world: Make,
) -> None:
    """W14.6 If a node that did not answer is forgotten (K6), and no other one knows the job, the
    outcome is kept here until the TTL in the id is over.
    """
    world = make_world(4)
    id = add(world, 0, 600, KEPT, 7_200, replicate=1)
    mine = world.node(1).core
    on_done(mine, unknown := world.node(0).core.ids.make(60, 1), 0, b"41", 9)
    world.pass_ms(1_000)
    world.isolate(0)
    world.isolate(3)
    on_done(mine, id, 0, b"42", 9)
    world.pass_ms(3_000)
    for i in (1, 2):
        world.forget(i, 0)
    world.pass_ms(60_000)
    assert mine.life.known(id) is None, "node 3 may know another end"
    assert mine.life.known(unknown) is None
    world.link(1, 3)
    world.link(2, 3)
    world.pass_ms(60_000)
    kept = mine.life.known(id)
    assert kept is not None and kept.result == b"42"
    assert list(mine.life.kept) == [id], "all had denied the other one"


def test_more_jobs_than_can_be_asked_about_at_once(make_world: Make) -> None:
    """W15.1 It asks only about ids that a node of this cluster made (G6.5), about 1000 jobs at
    once at most; of more jobs it asks in turn, each second.
    """
    world = unheard(make_world)
    n, maker = world.n, world.machines[1].node_id
    slot = world.slot(0, 1)
    ids = [made_there(n, b"%d" % i, maker) for i in range(1_500)]
    waiters = [world.wire() for _ in range(3)]

    for i, waiter in enumerate(waiters):
        assert waiter("WAITJOB", 0, *ids[i * 500 : i * 500 + 500]) is None
    assert asked(world) == ids[:1_000]
    last = made_there(n, b"last", maker)
    cancel, brief = world.wire(), world.wire()
    world.pass_ms(100)
    assert cancel("CANCEL", last) is None
    assert brief("RESULT", last) is None
    world.pass_ms(899)
    assert all(one.hear() == b"" for one in (*waiters, cancel, brief)), "nobody was asked"
    world.pass_ms(1)
    assert asked(world, CANCEL) == [last]
    assert asked(world) == [*ids[1_000:], last, *ids[:498]], "new ones come first"
    on_message(n, slot, JobTold(last, True, ENDED, False))
    on_message(n, slot, JobTold(last, True, 0, True, [b"cancelled", *FIELDS]))
    world.settle()
    assert cancel.take() == [b"ended"]
    assert brief.take()[1] == b"cancelled"
    done = [b"done", *FIELDS]
    for id in ids[1_000:]:
        on_message(n, slot, JobTold(id, True, 0, True, done))
    world.settle()
    assert waiters[2].take() == [[id, b"done"] for id in ids[1_000:]]
    world.pass_ms(1_000)
    assert asked(world) == ids[498:1_000] + ids[:498]
    for id in ids[:1_000]:
        on_message(n, slot, JobTold(id, True, 0, True, done))
    world.settle()
    for i, waiter in enumerate(waiters[:2]):
        assert waiter.take() == [[id, b"done"] for id in ids[i * 500 : i * 500 + 500]]
    assert not n.life.asking and not n.life.cancelling


def test_jobs_that_others_know_at_once_wait_for_nothing(make_world: Make) -> None:
    """W15.1 about 1000 jobs at once at most"""
    world = unheard(make_world)
    n, maker = world.n, world.machines[1].node_id
    slot = world.slot(0, 1)
    for i in range(1_500):
        id = made_there(n, b"%d" % i, maker)
        assert world.run("RESULT", id) is None
        assert asked(world) == [id]
        on_message(n, slot, JobTold(id, True, 0, False, [b"running", *FIELDS]))
        world.settle()
        assert world.run.take()[1] == b"running"
