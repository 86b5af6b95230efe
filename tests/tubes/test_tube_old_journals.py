"""Journals of before votes led each tube that is made under a list (SPEC T23.5, T22.4).

The file beside this one has the disks of clusters of two and of three nodes. Of three, which vote,
`claimed` was made with FAILOVER no, and `low` with SYNC 1: votes do not lead them.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

from tubes_world import VotesWorld

FILE = Path(__file__).with_name("journals-of-claims.txt")


def world_of(name: str, count: int) -> VotesWorld:
    """Nodes that have started on these disks, and have met again."""
    texts: dict[tuple[str, ...], str] = {}
    of: tuple[str, ...] = ()
    for line in FILE.read_text().splitlines():
        if line.startswith(" "):
            texts[of] += line.strip()
        else:
            texts[of := tuple(line.split())] = ""
    world = VotesWorld(count, makes=False)
    for i in range(count):
        world.kill(i)
        files = world.disk(i).files.empty()
        for (cluster, node, path), text in texts.items():
            data = zlib.decompress(base64.b85decode(text))
            if (cluster, node) == (name, str(i)) and path == "conf":
                world.machines[i].conf = data
            elif (cluster, node) == (name, str(i)):
                files.makedirs(path.rpartition("/")[0])
                files.write(files.open_append(path), data)
        world.machines[i].disk = files
    world.pass_ms(20_000)
    for i in range(count):
        world.begin(i)
    world.link()
    world.pass_ms(10_000)
    return world


def test_three_nodes_that_vote() -> None:
    """T23.5 for others T17 to T22 hold alone."""
    world = world_of("three", 3)
    assert all(world.in_force(i) for i in range(3))
    for name, home, body in (("voted", None, b"a"), ("claimed", 0, b"b"), ("low", 1, b"c")):
        tube = name.encode()
        assert world.tube(2, tube).led_by_votes is (home is None)
        at = world.leads(tube)
        assert home in (None, at)
        assert [one[2] for one in world.picture(at, tube).values()] == [body]
        assert world.wire(at)("TUBE", "PUT", name, "more")[1] == b"READY"


def test_two_nodes() -> None:
    """T22.4 The records of T22.1 are in every snapshot."""
    world = world_of("two", 2)
    assert not any(world.in_force(i) for i in range(2))
    for name, at, bodies in (("mail", 0, [b"a", b"b"]), ("other", 1, [b"c"])):
        assert world.runs_at(name.encode()) == [at]
        for i in range(2):
            assert [one[2] for one in world.picture(i, name.encode()).values()] == bodies
        assert world.wire(at)("TUBE", "PUT", name, "more")[1] == b"READY"
