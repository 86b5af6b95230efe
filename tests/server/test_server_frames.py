"""Frames to other nodes wait for the journal exactly as replies do (SPEC C8.3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.node.peers import journal_fails
from world import World
from world_strangers import SECRET

MakeWorld = Callable[..., World]
ADD = encode("ADDJOB", "q", "b", 0, "REPLICATE", 2)


def test_a_copy_is_confirmed_when_it_is_on_the_disk(make_world: MakeWorld) -> None:
    """R2.5: GOTJOB is sent when the record is as durable as the policy promises."""
    world = make_world(2, journal="always")
    world.disk(1).stick()
    client = world.wire()
    assert client.say(ADD) == b""
    world.pass_ms(200)
    assert client.bytes_now() == b""
    assert len(world.node(1).core.jobs) == 1, "the copy is there, and not on the disk"
    world.disk(1).well()
    assert client.bytes_now().startswith(b"+D-")


def test_a_copy_is_not_waited_for_where_nothing_is_promised(make_world: MakeWorld) -> None:
    world = make_world(2, journal="everysec")
    world.disk(1).stick()
    assert world.wire().say(ADD).startswith(b"+D-")


def test_a_job_at_most_once_moves_when_that_is_on_the_disk(make_world: MakeWorld) -> None:
    """J4.4: also under everysec: the record of giving away custody is on disk before the frame."""
    world = make_world(2, journal="everysec")
    world.add("once", "b", retry=0, replicate=1)
    world.disk(0).stick()
    worker = world.wire(1)
    assert worker("GETJOB", "FROM", "once") is None
    world.pass_ms(300)
    assert worker.bytes_now() == b""
    world.disk(0).well()
    world.until(lambda: worker.served())


@pytest.mark.parametrize("secret", ["", SECRET])
def test_who_cannot_write_says_so_past_what_waits(make_world: MakeWorld, secret: str) -> None:
    """K4.5 While messages wait for that journal (J6.6), a heartbeat without a number goes past them
    in each round, and says nothing else.

    J6.6 Only the heartbeats of K4.5 pass."""
    world = make_world(2, journal="always", cluster_secret=secret)
    n = world.n
    (member,) = world.server.members.alive()
    world.disk(1).full()
    client = world.wire()
    assert client.say(ADD) == b""
    world.until(lambda: journal_fails(n, member.slot))
    heard_ms, round = member.heard_ms, member.round
    assert member.is_reachable(), "it may work again soon"
    begun = n.round
    world.until(lambda: n.round >= begun + 2)
    assert (member.heard_ms, member.round) == (heard_ms, round)
    assert client.bytes_now() == b"", "the copy is not confirmed"
    world.disk(1).well()
    world.until(lambda: client.unread)
    assert client.bytes_now().startswith(b"+D-"), "what waited comes in its order"
    world.until(lambda: not journal_fails(n, member.slot))
    assert member.heard_ms > heard_ms
    assert world.bus.figures.joined == 1, "by the same link"
