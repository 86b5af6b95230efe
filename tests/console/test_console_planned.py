"""Restarts by plan, and nodes that left, as the manifest and the docs say (SPEC K7, K9)."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from console_node import Run

from tuque import errors
from world import World

TuqueIn = Callable[[World, int], Run]
MakeWorld = Callable[..., World]
MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "tuque.yaml"


def hook() -> list[str]:
    """The command that the manifest runs before a node stops, without the program's name."""
    yaml = pytest.importorskip("yaml")
    found = [
        one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "StatefulSet"
    ]
    (node,) = found[0]["spec"]["template"]["spec"]["containers"]
    program, *words = node["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "tuque"
    return list(words)


def states(world: World) -> list[str]:
    """What CLUSTER LEAVING and CLUSTER STOPPING say at each node."""
    words = ("LEAVING", "STOPPING")
    return [world.wire(i)("CLUSTER", word).decode() for i in world.numbers() for word in words]


def test_a_rolling_update_leaves_no_node_leaving(make_world: MakeWorld, tuque_in: TuqueIn) -> None:
    """K9.1 CLUSTER STOPPING yes: the node is about to stop, and to come back. Nothing of that is
    kept: a restart ends it.
    """
    world = make_world(3, journal="always")
    wire = world.wire(0)
    assert wire("TUBE", "CREATE", "t", "fifo", "SYNC", "majority") == b"OK"
    ids = [wire.add("q", replicate=2) for _ in range(50)]
    ids += [wire("ADDJOB", "t", "x", "0") for _ in range(20)]
    for i in (2, 1, 0):
        done = tuque_in(world, i)(*hook())
        assert (done.returncode, done.stderr) == (0, b"")
        assert world.leader("t") != i
        world.stop(i)
        world.start(i)
        world.until(world.is_whole)
    assert states(world) == ["no"] * 6
    assert tuque_in(world, 0)("cluster", "status").returncode == 0
    leader = world.until(lambda: world.leader("t") is not None and [world.leader("t")])[0]
    world.wire(0).add("q", replicate=3)
    assert world.wire(leader)("ADDJOB", "t", "y", "0").startswith(b"D-")
    assert len(set(ids)) == 70


def test_who_waits_is_sent_elsewhere_and_the_jobs_stay(
    make_world: MakeWorld, tuque_in: TuqueIn
) -> None:
    """K9.1 Clients that wait get `-LEAVING`, as of a leaving node (V7.1, V1.5), `/readyz` says that
    it stops, and it asks for no jobs; its jobs stay, and it takes more.
    """
    world = make_world(3)
    wire, waiting = world.wire(0), world.wire(0)
    kept = wire.add("other", replicate=1)
    waiting.send("GETJOB", "FROM", "q")
    done = tuque_in(world, 0)("node", "stop", "--prepare")
    assert done.stdout == b"10.0.0.1:7711 may be stopped\n"
    assert waiting.read().startswith("LEAVING ")
    assert str(wire("GETJOB", "FROM", "q")).startswith("LEAVING ")
    assert wire("GETJOB", "NOHANG", "FROM", "other")[0][1] == kept
    assert wire.add("q", replicate=3).startswith(b"D-")
    assert tuque_in(world, 0)("node", "stop", "--cancel").stdout == b"10.0.0.1:7711 goes on\n"
    assert wire("CLUSTER", "STOPPING") == b"no"


def test_a_stop_waits_for_nodes_that_are_away(make_world: MakeWorld, tuque_in: TuqueIn) -> None:
    """K9.2 `cluster_stop_left` is the sum of the jobs to repair here (K5.5), the tubes led here
    that another node keeps and may lead, and the other nodes that are not there.
    """
    world = make_world(3)
    world.kill(1)
    late = tuque_in(world, 0)("node", "stop", "--timeout", "3")
    assert late.returncode == 1
    assert b"the time is up, 10.0.0.1:7711 goes on: 1 other node not there" in late.stderr
    assert world.wire(0)("CLUSTER", "STOPPING") == b"no"
    world.start(1)
    world.until(world.is_whole)
    done = tuque_in(world, 0)("node", "stop")
    assert (done.returncode, done.stdout) == (0, b"10.0.0.1:7711 has stopped\n")
    assert not world.node(0).is_up


def test_who_left_and_is_met_again_stays(make_world: MakeWorld, tuque_in: TuqueIn) -> None:
    """K7.8 A node that was forgotten and is met again leaves no more."""
    world = make_world(3)
    node_id = world.wire(2)("CLUSTER", "MYID").decode()
    assert tuque_in(world, 2)("cluster", "drain").returncode == 0
    world.stop(2)
    assert tuque_in(world, 0)("cluster", "forget", node_id).returncode == 0
    world.start(2, disk="lost")
    met = tuque_in(world, 0)("cluster", "meet", "10.0.0.3:7711")
    assert met.returncode == 0, met.stderr
    world.until(world.is_whole)
    assert states(world) == ["no"] * 6
    assert tuque_in(world, 0)("cluster", "status").returncode == 0
    world.pass_ms(3_000)
    world.stop(2)
    world.start(2)
    assert world.wire(2)("CLUSTER", "LEAVING") == b"no"


def test_a_node_that_comes_back_leaving_says_so(make_world: MakeWorld, tuque_in: TuqueIn) -> None:
    """K7.7 LEAVING is kept over restarts: the log says so at each start, and `tuque cluster status`
    has a line with what to do and exit status 1.
    """
    world = make_world(3)
    assert tuque_in(world, 2)("cluster", "drain").returncode == 0
    world.stop(2)
    world.start(2)
    assert any(
        "is leaving its cluster since before it started" in line for line in world.node(2).log
    )
    world.until(lambda: b"safe to stop" in tuque_in(world, 0)("cluster", "status").stdout)
    shown = tuque_in(world, 0)("cluster", "status")
    assert shown.returncode == 1
    words = "tuque cluster drain --cancel -h 10.0.0.3 -p 7711"
    assert (
        f"10.0.0.3:7711 is leaving the cluster: it takes no jobs and no votes; to keep it: {words}"
        in (shown.stdout.decode())
    )
    assert tuque_in(world, 0)(*shlex.split(words)[1:]).returncode == 0
    world.until(world.is_whole)
    assert tuque_in(world, 0)("cluster", "status").returncode == 0


def test_a_node_without_room_is_said(make_world: MakeWorld, tuque_in: TuqueIn) -> None:
    """J6.9 `tuque cluster status` has a line for each node that takes no jobs for want of disk
    or memory (M2).
    """
    world = make_world(3, disk_free_min="1mb")
    assert tuque_in(world, 0)("cluster", "status").returncode == 0
    world.disk(1).full(1000)
    world.pass_ms(2_000)
    world.node(2).core.limits.memory_bytes = 1
    said = tuque_in(world, 0)("cluster", "status")
    assert said.returncode == 1
    until = "it takes no jobs until some have ended, or it has more room\n"
    assert f"10.0.0.2:7711: its disk is nearly full: {until}" in said.stdout.decode()
    assert f"10.0.0.3:7711: its memory is used up: {until}" in said.stdout.decode()


@pytest.mark.parametrize("lacks", ["disk", "memory"])
def test_the_tubes_of_a_node_without_room_are_moved(
    make_world: MakeWorld, tuque_in: TuqueIn, lacks: str
) -> None:
    """J6.9 what moves the tubes that it leads to a node with room."""
    world = make_world(3, disk_free_min="1mb")
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "3")
    for name in ("mail", "bills"):
        assert world.wire(0)("TUBE", "CREATE", name, "tasks") == b"OK"
    with world.client(0, others=True) as client:
        client.addjob("mail", "before")
        if lacks == "disk":
            world.disk(0).full(500_000)
            world.pass_ms(2_000)
        else:
            world.node(0).core.limits.memory_bytes = 1
        with pytest.raises(errors.Error):
            client.addjob("mail", "refused")
        said = tuque_in(world, 1)("cluster", "status").stdout.decode()
        words = "tuque tubes home TUBE NODE"
        assert (
            "or it has more room; the 2 tubes that it leads take none either: "
            f"`{words}` moves one to a node with room\n"
        ) in said
        moves = shlex.split(words.replace("TUBE", "mail").replace("NODE", "10.0.0.2:7711"))
        assert tuque_in(world, 2)(*moves[1:]).returncode == 0
        client.addjob("mail", "after")
    said = tuque_in(world, 1)("cluster", "status").stdout.decode()
    assert "or it has more room; the tube that it leads takes none either: " in said


def test_a_meeting_that_clashes_ends_at_once(make_world: MakeWorld, tuque_in: TuqueIn) -> None:
    """K3.4 `tuque cluster meet` ends with that reason at once."""
    world = make_world(2, start=False)
    for machine in world.machines:
        machine.conf = b""
        machine.start()
    for i in (0, 1):
        assert world.wire(i)("TUBE", "CREATE", "t", "fifo") == b"OK"
    began_ms = world.now_ms
    said = tuque_in(world, 0)("cluster", "meet", "10.0.0.2:7711")
    assert said.returncode == 1
    assert b"10.0.0.2:7711 cannot join: each of the two clusters has a tube" in said.stderr
    assert world.now_ms - began_ms < 5_000
