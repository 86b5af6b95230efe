"""`tuque cluster status` about nodes that vote about leaders of tubes (SPEC T23)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from console_node import Run

from tuque.clusterview.health import (
    Row,
    homeless,
    new_leaders,
    voting,
)
from world import World
from world_wires import Wire

TIMEOUT_MS = 1_000
TuqueIn = Callable[[World, int], Run]
Ask = Callable[..., Any]


@pytest.fixture
def voting_world(make_world: Callable[..., World]) -> World:
    """Three nodes, all of which vote."""
    world = make_world(3, cluster_node_timeout=TIMEOUT_MS)
    for wire in askers(world):
        world.until(lambda wire=wire: len(voters_at(wire)["voters"]) == 3)
    return world


def ask(wire: Wire, *words: str | bytes) -> Any:
    """Sends a command, and waits for the reply."""
    wire.send(*words)
    return wire.read()


def askers(world: World) -> list[Ask]:
    """For each node: sends it a command, and waits for the reply."""
    return [partial(ask, world.wire(i)) for i in world.numbers()]


def voters_at(wire: Ask) -> dict[str, Any]:
    """CLUSTER VOTERS."""
    flat = wire("CLUSTER", "VOTERS")
    return dict(zip([name.decode() for name in flat[::2]], flat[1::2], strict=True))


def test_who_can_vote() -> None:
    """A line of `tuque cluster status`, if there is a list of voters."""
    rows = [Row(str(i), "h", i, "up") for i in range(3)]
    assert voting(rows) == []
    for row in rows:
        row.voters, row.votes = 3, True
    assert voting(rows) == ["3 of 3 voters can vote"]
    rows[1].votes = False
    assert voting(rows) == ["2 of 3 voters can vote: see CLUSTER VOTERS"]
    rows[2].voters, rows[2].votes = 0, False
    rows[0].homeless = ["t"]
    (line,) = homeless(rows, {})
    assert "unreachable; if it does not fail over automatically and that is lost" in line
    (said,) = homeless(rows, {"t": False})
    assert "unreachable; if that is lost for good: tuque tubes home t NODE --force" in said
    (said,) = homeless(rows, {"t": True})
    assert said.endswith("; a majority of the voters chooses another one: see CLUSTER VOTERS")
    rows[0].homeless_count = rows[2].homeless_count = 1
    assert homeless(rows, {}) == [line], "it is named"
    rows[2].homeless_count = 129
    assert homeless(rows, {}) == [line, "and 128 more: see `tuque tubes`"]
    rows[0].homeless = []  # names are not for this user
    assert homeless(rows, {}) == ["129 tubes whose leader is unreachable: see `tuque tubes`"]
    wanted = "1 of 3 voters can vote: tubes have no leader until a majority of them is back"
    assert voting(rows) == [wanted]
    for row in rows:
        row.voters, row.votes = 2, True
    assert voting(rows) == [
        "the nodes go by different lists of voters: see origin in CLUSTER VOTERS"
    ]


def test_why_leaders_changed() -> None:
    """T11.5 `tuque cluster status` sums them up by reason"""
    rows = [Row(str(i), "h", i, "up") for i in range(3)]
    assert new_leaders(rows) == []
    rows[0].led = {"silent": 1}
    head = "tubes got another leader"
    once = f"{head} once since the nodes began: 1 the leader was silent"
    assert new_leaders(rows) == [once]
    rows[1].led = {"silent": 2, "command": 1, "given": 0}
    assert new_leaders(rows) == [
        f"{head} 4 times since the nodes began: 3 the leader was silent, 1 by command, without the "
        "leader"
    ]


def test_new_leaders(voting_world: World, tuque_in: TuqueIn) -> None:
    """T11.5 So elections won and these two are all changes of leaders (E1.8)"""
    world = voting_world
    wires = askers(world)
    assert wires[0]("TUBE", "CREATE", "t", "fifo") == b"OK"
    assert wires[0]("TUBE", "CREATE", "own", "fifo", "TEMPORARY") == b"OK"
    second = wires[1]("CLUSTER", "MYID")
    for name in ("t", "own"):
        assert wires[0]("TUBE", "HOME", name, second) == b"OK"
        world.until(lambda name=name: wires[1]("TUBE", "STATE", name) == b"RUNNING")
    for line in (b"tubes_elections_given:1\r", b"tubes_homes_given:1\r"):
        assert line in wires[1]("INFO", "tubes")
    assert b"tubes_homes_moved:2\r" in wires[0]("INFO", "tubes")
    tuque = tuque_in(world, 0)
    said = tuque("cluster", "status").stdout
    assert b"2 times since the nodes began: 2 the leader gave it away" in said
    world.kill(1)
    world.until(
        lambda: any(b"tubes_elections_silent:1\r" in w("INFO", "tubes") for w in wires[::2])
    )
    first = wires[0]("CLUSTER", "MYID")
    assert isinstance(wires[0]("TUBE", "HOME", "own", first, "FORCE"), list)
    world.until(lambda: b"tubes_homes_by_command:1\r" in wires[0]("INFO", "tubes"))
    said = tuque("cluster", "status").stdout
    assert b"2 times since the nodes began" in said, "the node that is gone tells nothing"
    assert b": 1 the leader was silent, 1 by command, without the leader" in said
    told = json.loads(tuque("cluster", "status", "--json").stdout)
    led = {row["id"]: row["leader_changes"] for row in told}
    assert led[first.decode()]["command"] == 1 and led[second.decode()] is None


def test_a_lost_majority(voting_world: World, tuque_in: TuqueIn) -> None:
    """T27.10 One voter is the majority of its list"""
    world = voting_world
    wires = askers(world)
    assert wires[0]("TUBE", "CREATE", "t", "fifo") == b"OK"
    assert wires[0]("TUBE", "CREATE", "other", "fifo", "TEMPORARY") == b"OK"
    wires[0]("TUBE", "PUT", "t", "x")
    world.pass_ms(TIMEOUT_MS)
    ids = [wire("CLUSTER", "MYID") for wire in wires]
    tuque = tuque_in(world, 2)
    status = tuque("cluster", "status")
    assert (status.returncode, b"3 of 3 voters can vote" in status.stdout) == (0, True)
    world.kill(0)
    world.kill(1)
    world.until(lambda: b"tubes_homeless:2" in wires[2]("INFO", "tubes"))
    status = tuque("cluster", "status")
    assert status.returncode == 1
    wanted = b"tube t: its leader is unreachable; a majority of the voters chooses another"
    assert wanted in status.stdout
    assert b"tuque tubes home other NODE --force" in status.stdout
    assert b"1 of 3 voters can vote: " in status.stdout
    assert wires[2]("CLUSTER", "VOTERS", "FORCE", ids[2]) == b"OK"
    for node_id in ids[:2]:
        assert wires[2]("CLUSTER", "FORGET", node_id) == b"OK"
    world.until(lambda: wires[2]("TUBE", "STATE", "t") == b"RUNNING")
    world.kill(2)
    world.start(2)
    wire = partial(ask, world.wire(2))
    world.until(lambda: wire("TUBE", "STATE", "t") == b"RUNNING")
    assert wire("TUBE", "TAKE", "t", "0") is not None


def test_a_voter_without_its_right_is_told(voting_world: World, tuque_in: TuqueIn) -> None:
    """Exit status 1 unless all is well: all nodes are up, but a voter cannot vote."""
    world = voting_world
    wires = askers(world)
    assert wires[0]("CONFIG", "SET", "tube-failover", "no") == b"OK"
    first = wires[0]("CLUSTER", "MYID")
    assert wires[2]("CLUSTER", "VOTERS", "REMOVE", first) == b"OK"
    for wire in wires:
        world.until(lambda wire=wire: len(voters_at(wire)["voters"]) == 2)
    tuque = tuque_in(world, 2)
    status = tuque("cluster", "status")
    assert (status.returncode, b"2 of 2 voters can vote\n" in status.stdout) == (0, True)
    assert wires[1]("DEBUG", "FLUSHALL") == b"OK"
    world.until(
        lambda: sorted(row[3] for row in voters_at(wires[2])["voters"]) == [b"lost-right", b"votes"]
    )
    status = tuque("cluster", "status")
    assert (status.returncode, status.stdout.count(b" up ")) == (1, 3)
    assert b"1 of 2 voters can vote: " in status.stdout


def test_tubes_that_do_not_fail_over_are_named(
    make_world: Callable[..., World], tuque_in: TuqueIn
) -> None:
    """T23.8 In a cluster of three or more nodes the log warns."""
    world = make_world(3, journal="off")
    create = partial(ask, world.wire(0), "TUBE", "CREATE")
    for words in (["mail", "ALONE"], ["still", "IMPLICIT"], ["brief", "TEMPORARY"]):
        assert create(words[0], "fifottl", *words[1:]) == b"OK"
    said = [line for line in world.node(0).log if "does not fail over" in line]
    assert len(said) == 2
    assert "tube 'mail' does not fail over, now and later: there were no voters" in said[0]
    shown = tuque_in(world, 1)("tubes")
    assert shown.returncode == 0
    assert shown.stdout.decode().splitlines()[-1] == (
        "no failover: mail, still. Without its leader such a tube waits for it, or for "
        "`tuque tubes home TUBE NODE --force`"
    )


def test_tubes_that_fail_over_are_not_named(voting_world: World, tuque_in: TuqueIn) -> None:
    assert ask(voting_world.wire(0), "TUBE", "CREATE", "mail", "fifottl") == b"OK"
    assert not any("does not fail over" in line for line in voting_world.node(0).log)
    assert b"no failover" not in tuque_in(voting_world, 1)("tubes").stdout


def test_of_two_nodes_no_tube_is_named(make_world: Callable[..., World], tuque_in: TuqueIn) -> None:
    world = make_world(2)
    assert ask(world.wire(0), "TUBE", "CREATE", "mail", "fifottl", "ALONE") == b"OK"
    assert not any("does not fail over" in line for line in world.node(0).log)
    assert b"no failover" not in tuque_in(world, 1)("tubes").stdout
