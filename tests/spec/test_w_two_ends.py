"""SPEC W14.4: a job that ended in two ways on two sides of a cut has one outcome after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tuque.core.life.outcomes import on_done
from tuque.core.life.start import end_cancelled
from tuque.core.model.work import DONE, Outcome, run_of
from tuque.core.msgs.bus import SetAck
from tuque.core.queues.work_copies import packed_outcome
from world import World
from world_lives import add, at, known, life

Make = Callable[..., World]

FIRST, SECOND = run_of(1, 1, 7), run_of(2, 2, 7)
ORDERS: dict[str, list[int]] = {"at once": [], "who ended it first": [1], "the other first": [2]}


class Way(NamedTuple):
    """A way in which a job ends: at node 0, and at node 1."""

    here: tuple[str, int, bytes]
    there: tuple[str, int, bytes]
    stands: tuple[bytes, bytes | None, bytes]  # state, result, reason


WAYS = {
    "runs": Way(("done", FIRST, b"first"), ("done", SECOND, b"second"), (b"done", b"first", b"")),
    "results": Way(("done", FIRST, b"b"), ("done", FIRST, b"a"), (b"done", b"a", b"")),
    "cancel": Way(("cancel", 0, b"why"), ("done", FIRST, b"r"), (b"done", b"r", b"")),
    "reasons": Way(("cancel", 0, b"b"), ("cancel", 0, b"a"), (b"cancelled", None, b"a")),
    "letter": Way(("letter", 0, b"x"), ("cancel", 0, b"y"), (b"cancelled", None, b"y")),
}


def end(world: World, i: int, id: bytes, how: str, run: int, word: bytes) -> None:
    """The job ends at the node."""
    n = at(world, i)
    if how == "done":
        assert on_done(n, id, run, word)
    elif how == "cancel":
        life(world, i, id).cancel_reason = word
        end_cancelled(n, n.jobs[id], life(world, i, id))
    else:
        assert isinstance(world.at(i)("DEADLETTER", id, "other", "REASON", word), bytes)


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("is_swapped", [False, True], ids=["one better", "two better"])
@pytest.mark.parametrize("way", list(WAYS))
def test_both_sides_of_a_cut_keep_one_outcome(
    make_world: Make, way: str, is_swapped: bool, order: str
) -> None:
    """W14.4 Of two outcomes one wins: `done` over `cancelled` over `dead` over `gone`; of two
    `done` that of the lower token, then the lower result; of two others that with the lower
    reason.

    W14.16 A node whose outcome wins replies with its own SETACK, and not with GOTACK. Where an
    outcome loses, its confirmations are void, and each holder gets the one that wins.
    """
    ways = WAYS[way]
    here, there = (ways.there, ways.here) if is_swapped else (ways.here, ways.there)
    world = make_world(3, journal="off")
    id = add(world)
    world.isolate(0)
    end(world, 0, id, *here)
    end(world, 1, id, *there)
    world.settle()
    assert known(world, 1, id)["state"] == known(world, 2, id)["state"]
    for b in ORDERS[order]:
        world.link(0, b)
        world.pass_ms(200)
    world.link()
    world.pass_ms(2_000)
    for i in range(3):
        told = known(world, i, id)
        assert (told["state"], told["result"], told["reason"]) == ways.stands, i
    world.pass_ms(5_000)
    assert world.copies(id) == []


@pytest.mark.parametrize("is_away", [False, True])
def test_an_outcome_that_falls_late_falls_everywhere(make_world: Make, is_away: bool) -> None:
    """W14.17 A node that has only the outcome of a job, and gets one that wins over it, sends
    that to all reachable nodes, and to the other members when they are linked again, while it is
    kept and this node runs

    W14.17 A node that has only the outcome of a job, and gets one that wins over it, sends that
    to all reachable nodes, and to the other members when they are linked again, while it is kept
    and this node runs
    """
    world = make_world(4, journal="off")
    id = add(world)
    first, *_, away = holders = world.holders(id)
    assert on_done(at(world, first), id, SECOND, b"second")
    world.pass_ms(5_000)
    assert world.copies(id) == []
    (late,) = [i for i in range(4) if i not in holders]
    n = at(world, late)
    n.has_lives = True
    better = Outcome(id, DONE, n.now_ms + 600_000, n.now_ms)
    better.run, better.result = FIRST, b"first"
    n.life.keep(better, 1 << 20)
    if is_away:
        world.isolate(away)
    world.send(late, first, SetAck(id, 0, 60_000, packed_outcome(n, id)))
    world.settle()
    if is_away:
        world.kill(late)  # it does not ask the others
        assert known(world, away, id)["result"] == b"second"
        world.link(first, away)
        world.pass_ms(200)
    ups = [i for i in range(4) if world.node(i).is_up]
    assert [known(world, i, id)["result"] for i in ups] == [b"first"] * len(ups)
    if is_away:
        world.start(late)
        world.link()
    world.pass_ms(5_000)
    assert all(n.tombs.is_empty() and not n.tombs.behind for n in world.cores)
