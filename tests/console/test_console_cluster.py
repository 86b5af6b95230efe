"""`tuque cluster` against real nodes: what it prints, when it succeeds, and how dev ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec
import pytest
from console_node import DEADLINE_S, Run

from in_world import within
from lab import RealCluster, RealServer
from tuque.cli.cluster import place_of
from tuque.cli.programs import free_port
from tuque.client.transport.conn import ErrorReply, Status
from tuque.client.transport.raw_link import Link, LinkError, Target
from tuque.clusterview.health import Row, rows_of, uneven
from tuque.clusterview.view import ANSWER_S, NodesInReach, asked
from tuque.nodeoptions import NodeOptions
from until import until
from world import World
from world_clients import url_of

IDS = re.compile(r"^([0-9a-f]{8})", re.M)
TuqueIn = Callable[[World, int], Run]
AWAY_MS = 3_600_000
NOBODY = "10.0.0.9:7711"  # no machine of a world


class Dev:
    """A running `tuque cluster dev`."""

    def __init__(self, place: Path, *options: str) -> None:
        self.place = place
        self.out = place / "dev.out"
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuque", "cluster", "dev", *options],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.out.read_text()

    def ready(self) -> Dev:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.text()
            return "stop     Ctrl-C" in self.text()

        until(is_ready, self.text)
        return self

    def ports(self) -> list[int]:
        return [
            int(port)
            for port in re.findall(r"^node-\d +tuque://127.0.0.1:(\d+)", self.text(), re.M)
        ]

    def link(self, number: int = 0) -> Link:
        return Link(Target(port=self.ports()[number]))

    def pid(self, number: int) -> int:
        """The process of a node."""
        link = self.link(number)
        told = link.call([b"INFO", b"server"])
        link.close()
        assert isinstance(told, bytes)
        return int(re.findall(rb"process_id:(\d+)", told)[0])

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.wait()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Three nodes for tests that leave them as they are."""
    one = Dev(tmp_path_factory.mktemp("dev"))
    try:
        yield one.ready()
    finally:
        one.end()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    """Clusters of one test."""
    made: list[Dev] = []

    def make(*options: str) -> Dev:
        made.append(Dev(tmp_path, *options))
        return made[-1].ready()

    yield make
    for one in made:
        one.end()


def add(link: Link, queue: str, count: int, *options: str) -> None:
    for number in range(count):
        words = ["ADDJOB", queue, str(number), "5000", *options]
        said = link.call([word.encode() for word in words])
        assert isinstance(said, Status), said


class TestDev:
    """`tuque cluster dev`: a cluster in one command."""

    def test_it_says_where_the_nodes_are(self, dev: Dev) -> None:
        ports = dev.ports()
        assert len(set(ports)) == 3
        assert f"tuque://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}," in dev.text()
        assert f"tuque cluster status -p {ports[0]}" in dev.text()
        assert sorted(p.name for p in (dev.place / "cluster-dev").iterdir() if p.is_dir()) == [
            "node-1",
            "node-2",
            "node-3",
        ]

    @pytest.mark.parametrize(
        "number",
        [
            signal.SIGINT,
            signal.SIGHUP,
            # the next test ends its nodes so
            pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        ],
    )
    def test_it_ends_its_nodes(self, own: Callable[..., Dev], number: int) -> None:
        dev = own("--nodes", "2", "--dir", "here", "--set", "appendonly=yes")
        pids = [dev.pid(0), dev.pid(1)]
        add(dev.link(), "q", 3)
        dev.process.send_signal(number)
        assert dev.wait() == 0, dev.text()
        assert dev.text().endswith("stopping ...\nstopped\n")
        assert [pid for pid in pids if is_there(pid)] == []
        first, second, *_ = (dev.place / "here" / "node-1.log").read_text().splitlines()
        assert re.search(r" I Tuque \d\S*, \w+, node [0-9a-f]{40}$", first)
        assert f" I listens on 127.0.0.1:{dev.ports()[0]}" in second
        for name in ("node-1", "node-2"):
            assert " I stopped\n" in (dev.place / "here" / f"{name}.log").read_text()

    def test_a_node_that_dies_leaves_the_others(self, own: Callable[..., Dev]) -> None:
        """It is said, with the command that brings it back into the cluster."""
        dev = own("--nodes", "3", "--set", "appendonly=yes")
        pids = [dev.pid(i) for i in range(3)]
        add(dev.link(1), "q", 1)
        os.kill(pids[1], signal.SIGKILL)
        line = "node-2 was killed by signal 9; again: tuque "
        until(lambda: line in dev.text(), dev.text)
        words = shlex.split(dev.text().partition(line)[2].splitlines()[0])
        with (dev.place / "again.log").open("wb") as log:
            again = subprocess.Popen(
                [sys.executable, "-m", "tuque", *words], cwd=dev.place, stdout=log, stderr=log
            )
        try:
            until(lambda: reaches(dev, 1) == 2, dev.text)
            assert dev.process.poll() is None
            dev.end()
            assert [pid for pid in pids if is_there(pid)] == []
            assert " I stopped\n" in (dev.place / "cluster-dev" / "node-1.log").read_text()
        finally:
            again.terminate()
            again.wait(DEADLINE_S)

    def test_when_no_node_is_left_it_ends(self, own: Callable[..., Dev]) -> None:
        dev = own("--nodes", "1")
        os.kill(dev.pid(0), signal.SIGKILL)
        assert dev.wait() == 1
        assert dev.text().endswith("stopping ...\nError: no node is left\n")

    def test_an_option_that_is_wrong_is_told(self, tmp_path: Path, tuque: Run) -> None:
        done = tuque("cluster", "dev", "--dir", tmp_path / "x", "--set", "hz=none")
        assert done.returncode == 1
        assert re.search(rb"^Error: node-\d ended with exit code 1:$", done.stderr, re.M)
        assert b"hz: 'none' is not allowed" in done.stderr


def reaches(dev: Dev, number: int) -> int:
    """How many other nodes a node reaches; -1 while it does not answer, or loads its journal."""
    link = dev.link(number)
    try:
        told = link.call([b"CLUSTER", b"INFO"])
    except LinkError:
        return -1
    finally:
        link.close()
    if isinstance(told, ErrorReply):
        return -1
    assert isinstance(told, bytes)
    return int(re.findall(rb"cluster_reachable_nodes:(\d+)", told)[0])


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    return Path(f"/proc/{pid}").exists()


class TestStatus:
    """`tuque cluster status`: a row for each node, which speaks for itself."""

    def test_the_table(self, dev: Dev, tuque: Run) -> None:
        add(dev.link(1), "status", 5)
        done = tuque("cluster", "status", "-p", dev.ports()[1])
        assert (done.returncode, done.stderr) == (0, b"")
        head, *rows = done.stdout.decode().splitlines()
        assert head.split("  ")[0] == "NODE"
        assert (
            head.split()
            == "NODE ADDRESS STATE REACHES JOBS QUEUED CLIENTS MEMORY TO REPAIR".split()
        )
        assert len(rows) == 3
        assert {row.split()[1].rpartition(":")[2] for row in rows[1:]} | {
            rows[0].split()[2].rpartition(":")[2]
        } == set(map(str, dev.ports()))
        assert rows[0].split()[1] == "*"
        places = {row.index(" up ") for row in rows}
        assert len(places) == 1
        assert places == {head.index("STATE") - 1}
        assert "\x1b" not in done.stdout.decode()

    def test_json(self, dev: Dev, tuque: Run) -> None:
        add(dev.link(), "json", 1, "REPLICATE", "3")
        rows = json.loads(tuque("cluster", "status", "-p", dev.ports()[0], "--json").stdout)
        assert [row["state"] for row in rows] == ["up"] * 3
        assert {row["port"] for row in rows} == set(dev.ports())
        assert all(re.fullmatch("[0-9a-f]{40}", row["id"]) for row in rows)
        assert [row["asked"] for row in rows] == [True, False, False]
        assert all(row["memory_bytes"] > 1 << 20 and row["host"] == "127.0.0.1" for row in rows)
        assert all(row["answers"] and row["reason"] is None for row in rows)
        assert [row["reaches"] for row in rows] == [2] * 3
        assert all(row["jobs"] >= 1 and row["to_repair"] == 0 for row in rows)
        assert all(row["to_drain"] is None for row in rows)

    def test_a_node_that_is_not_there_is_seen(
        self, make_world: Callable[..., World], tuque_in: TuqueIn
    ) -> None:
        world = make_world(2)
        tuque = tuque_in(world, 0)
        world.stall(1, AWAY_MS)
        world.until(lambda: b"suspected" in tuque("cluster", "status").stdout)
        assert tuque("cluster", "status").returncode == 1

    def test_nobody_answers(self, tuque: Run) -> None:
        done = tuque("cluster", "status", "-p", free_port())
        assert done.returncode == 1
        assert done.stderr.startswith(b"Error: no node can be reached: cannot connect to ")
        assert b"Is the node running?" in done.stderr

    def test_a_cluster_of_one(self, port: int, tuque: Run) -> None:
        done = tuque("cluster", "status", "-p", port)
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == 2

    def test_a_node_that_knows_no_host_of_its_own(self, port: int) -> None:
        async def seen(nodes: NodesInReach) -> list[Row]:
            nodes.members = [msgspec.structs.replace(one, host="") for one in nodes.members]
            return await rows_of(nodes)

        rows = asked(NodeOptions("127.0.0.1", port, "", "", ""), seen)
        assert [row.address for row in rows] == [f"127.0.0.1:{port}"]


class TestNodesInReach:
    """What commands say of nodes that do not answer, and of one that refuses."""

    def test_nodes_that_hang_are_waited_for_together(
        self, make_world: Callable[..., World], tuque_in: TuqueIn
    ) -> None:
        world = make_world(3)
        world.stall(1, AWAY_MS)
        world.stall(2, AWAY_MS)
        begun_ms = world.now_ms
        done = tuque_in(world, 0)("queues")
        assert (done.returncode, done.stdout) == (0, b"no queues\n")
        places = [f"10.0.0.{number}:7711" for number in (2, 3)]
        why = "no node can be reached: no answer from {0} in time; its figures are left out"
        said = [f"{place}: {why.format(place)}" for place in places]
        assert done.stderr.decode().splitlines() == said
        assert world.now_ms - begun_ms < 2_000 * ANSWER_S

    def test_one_that_answers_again_is_asked_again(self, make_world: Callable[..., World]) -> None:
        world = make_world(2)
        world.wire(1).add("there")

        async def seen(nodes: NodesInReach) -> list[int]:
            counts = []
            world.stall(1, 4_000)  # it is not suspected yet
            for pause_s, took_s in ((0, ANSWER_S), (0, 0), (2, 0)):
                await asyncio.sleep(pause_s)
                begun_ms = world.now_ms
                rows, _ = await nodes.queues()
                assert 0 <= world.now_ms - begun_ms - 1_000 * took_s < 100
                counts.append(sum(row.ready for row in rows))
                assert list(nodes.silent) == ([] if counts[-1] else ["10.0.0.2:7711"])
                await nodes.look()
            return counts

        with within(world):
            assert asked(NodeOptions("", 0, url_of(0), "", ""), seen) == [0, 0, 1]

    def test_what_the_node_asked_refuses(self, world: World, tuque_in: TuqueIn) -> None:
        for words in ("queues", "workers", "top --once", "tubes", "dead list q.dead"):
            done = tuque_in(world, 0)(*words.split(), "-a", "wrong")
            assert (done.returncode, done.stdout) == (1, b"")
            assert done.stderr.startswith(b"Error: ERR Client sent AUTH, but no password is set")

    def test_a_question_that_a_node_refuses(self, make_world: Callable[..., World]) -> None:
        """The node asked ends the command; another one is left out."""
        world = make_world(2)
        node = NodeOptions("", 0, url_of(0), "", "")

        async def others(nodes: NodesInReach) -> tuple[bool, dict[str, str]]:
            first = nodes.first.client
            answers = await nodes.ask(
                lambda client: client.execute("PING" if client is first else "NOSUCH")
            )
            return list(answers) == [nodes.first.id], nodes.silent

        with within(world):
            is_first, silent = asked(node, others)
            assert is_first and "unknown command" in silent["10.0.0.2:7711"]
            with pytest.raises(click.ClickException, match="unknown command"):
                asked(node, lambda nodes: nodes.ask(lambda client: client.execute("NOSUCH")))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[int]]:
    """The ports of two nodes that do not know each other."""
    pair = RealCluster(tmp_path, 2)
    try:
        yield [node.start().port for node in pair.nodes]
    finally:
        pair.end()


class TestMeetAndForget:
    """`tuque cluster meet|forget`: a node comes and goes."""

    def test_two_nodes_meet(self, pair: list[int], tuque: Run) -> None:
        a, b = pair
        done = tuque("cluster", "meet", "-p", a, "localhost", b)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == f"localhost:{b} is in the cluster of 127.0.0.1:{a}\n"
        assert len(tuque("cluster", "status", "-p", b).stdout.splitlines()) == 3
        again = tuque("cluster", "meet", "-p", a, f"127.0.0.1:{b}")
        assert (again.returncode, again.stderr) == (0, b"")

    @pytest.mark.parametrize(
        ("words", "place"),
        [
            ("h:7", ("h", [7])),
            ("h:7 8", ("h", [7, 8])),
            ("h 7", ("h", [7])),
            ("h 7 8", ("h", [7, 8])),
            ("[::1]:7", ("::1", [7])),
            ("::1 7", ("::1", [7])),
        ],
    )
    def test_forms_of_an_address(self, words: str, place: tuple[str, list[int]]) -> None:
        other, *ports = words.split()
        assert place_of(other, tuple(map(int, ports))) == place

    @pytest.mark.parametrize("words", ["h", ":7", "h:0", "h:x", "h:7:8", "h:7 8 9", "::1"])
    def test_what_is_no_address(self, words: str, tuque: Run) -> None:
        done = tuque("cluster", "meet", "-p", free_port(), *words.split())
        assert (done.returncode, done.stdout) == (2, b"")

    def test_a_node_meets_itself(self, pair: list[int], tuque: Run) -> None:
        done = tuque("cluster", "meet", "-p", pair[0], "localhost", pair[0])
        assert done.returncode == 1
        assert b"is the node asked itself; -h and -p name another" in done.stderr
        assert b"meeting" not in tuque("cluster", "status", "-p", pair[0]).stdout

    def test_nobody_is_there(self, make_world: Callable[..., World], tuque_in: TuqueIn) -> None:
        tuque = tuque_in(make_world(1), 0)
        done = tuque("cluster", "meet", "--wait", "1.5", NOBODY)
        assert done.returncode == 1
        assert f"{NOBODY} did not join within 1.5 s: " in done.stderr.decode()

    def test_the_reason_is_that_of_this_meeting(
        self, make_world: Callable[..., World], tuque_in: TuqueIn
    ) -> None:
        tuque = tuque_in(make_world(1), 0)
        tuque("cli", "CLUSTER", "MEET", "10.0.0.8", 7711)
        done = tuque("cluster", "meet", "--wait", "1.5", NOBODY)
        assert done.returncode == 1
        assert b"refused" in done.stderr and b"10.0.0.8" not in done.stderr

    def test_a_node_with_another_secret(self, pair: list[int], tuque: Run, tmp_path: Path) -> None:
        place = tmp_path / "secret"
        place.mkdir()
        with RealServer(
            place, "--cluster-secret", "Zp0aX9sLw8dKe7fJr6gHt5yGu4iFo3pDq2zSx1cVb_M"
        ) as node:
            done = tuque("cluster", "meet", "-p", pair[0], "--wait", "1.5", "127.0.0.1", node.port)
            assert done.returncode == 1
            assert b"secret" in done.stderr

    def test_a_node_is_forgotten(self, make_world: Callable[..., World], tuque_in: TuqueIn) -> None:
        world = make_world(3, journal="off")
        tuque = tuque_in(world, 0)
        gone = world.machines[2].node_id.decode()
        refused = tuque("cluster", "forget", gone)
        assert refused.returncode == 1 and b"runs and is linked" in refused.stderr  # K6.5
        done = tuque("cluster", "forget", "--force", gone)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode().startswith(gone)
        assert "is forgotten" in done.stdout.decode()
        for number in (0, 1):
            status = tuque_in(world, number)("cluster", "status").stdout
            assert len(status.splitlines()) == 3

    def test_an_id_that_nobody_has(self, dev: Dev, tuque: Run) -> None:
        done = tuque("cluster", "forget", "-p", dev.ports()[0], "zzz")
        assert done.returncode == 1
        assert b"no node of this cluster has an id that begins with zzz" in done.stderr
        done = tuque("cluster", "forget", "-p", dev.ports()[0], "")
        assert b"NODE_ID is empty: give a node's id, or its first characters" in done.stderr


class TestDrainAndRepair:
    """`tuque cluster drain|repair`: nodes may be stopped when these commands say so."""

    def test_a_drained_node_is_safe_to_stop(
        self, make_world: Callable[..., World], tuque_in: TuqueIn
    ) -> None:
        world = make_world(3)
        tuque, others, wire = tuque_in(world, 2), tuque_in(world, 0), world.wire(2)
        for _ in range(200):
            wire.add("drained", replicate=1)
        for _ in range(50):
            wire.add("drained", replicate=1, retry=0)
        done = tuque("cluster", "drain")
        assert (done.returncode, done.stderr) == (0, b"")
        place = "10.0.0.3:7711"
        assert done.stdout.decode() == f"{place} has given all its jobs away: safe to stop\n"
        rows = json.loads(others("cluster", "status", "--json").stdout)
        left = next(row for row in rows if row["host"] == "10.0.0.3")
        assert (left["state"], left["jobs"], left["to_drain"]) == ("safe to stop", 0, 0)
        assert sum(row["jobs"] for row in rows) >= 250
        shown = tuque("cluster", "status")
        assert shown.returncode == 1  # K7.7
        assert b"TO DRAIN" in shown.stdout
        stays = tuque("cluster", "drain", "--cancel")
        assert stays.stdout.decode() == f"{place} stays\n"
        world.until(lambda: tuque("cluster", "status").stdout.count(b" up ") == 3)

    def test_a_drain_that_nobody_can_help_with(self, port: int, tuque: Run) -> None:
        link = Link(Target(port=port))
        link.call([b"DEBUG", b"FLUSHALL"])  # what other tests left at the shared node
        add(link, "alone", 1)
        done = tuque("cluster", "drain", "-p", port, "--timeout", "0.5")
        assert done.returncode == 1
        assert b"the time is up: 1 job left to give away" in done.stderr
        link.call([b"CLUSTER", b"LEAVING", b"no"])
        link.call([b"DEBUG", b"FLUSHALL"])

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_drain_that_loses_results(self, port: int, tuque: Run, count: int) -> None:
        link = Link(Target(port=port))
        for _ in range(count):
            id = link.call([b"ADDJOB", b"alone", b"body", b"0", b"KEEP", b"100"])
            link.call([b"DONE", str(id).encode(), b"-", b"RESULT", b"42"])
        done = tuque("cluster", "drain", "-p", port)
        lost = "1 kept result is" if count == 1 else "2 kept results are"
        assert f"safe to stop; {lost} only here: no other node takes " in done.stdout.decode()
        link.call([b"CLUSTER", b"LEAVING", b"no"])
        link.call([b"DEBUG", b"FLUSHALL"])
        link.close()

    def test_repair_is_done(self, dev: Dev, tuque: Run) -> None:
        port = dev.ports()[0]
        done = tuque("cluster", "repair", "-p", port)
        assert (done.returncode, done.stderr) == (0, b"")
        *rows, total = done.stdout.decode().splitlines()
        assert total == "done"
        assert len(rows) == 3
        assert all(row.endswith("  done") for row in rows)
        told = json.loads(tuque("cluster", "repair", "-p", port, "--json").stdout)
        assert (told["left"], told["problems"], len(told["nodes"])) == (0, [], 3)

    def test_repair_waits_for_a_node_that_is_away(
        self, make_world: Callable[..., World], tuque_in: TuqueIn
    ) -> None:
        world = make_world(2, journal="off")
        for _ in range(100):
            world.add("two", replicate=2)
        world.kill(1)
        done = tuque_in(world, 0)("cluster", "repair", "--wait", "--timeout", "1")
        assert done.returncode == 1
        assert b"the time is up: " in done.stderr
        world.start(1)
        done = tuque_in(world, 1)("cluster", "repair", "--wait", "--timeout", "60")
        assert (done.returncode, done.stderr) == (0, b""), done.stdout
        assert world.node(1).info("jobs")["registered_jobs"] == "100"

    def test_a_rolling_restart_loses_nothing(
        self, make_world: Callable[..., World], tuque_in: TuqueIn
    ) -> None:
        """Three nodes without journals, one after the other: the loop of docs/cluster.md."""
        world = make_world(3, journal="off")
        wanted = set()
        for i in world.numbers():
            wire = world.wire(i)
            wanted |= {wire.add("rolling", replicate=2, retry=2) for _ in range(100)}
        for i in world.numbers():
            world.stop(i)
            world.start(i)
            done = tuque_in(world, i)("cluster", "repair", "--wait", "--timeout", "60")
            assert done.returncode == 0, done.stdout + done.stderr
        wire, taken = world.wire(0), set[bytes]()
        while taken < wanted:
            wire.send("GETJOB", "TIMEOUT", 10_000, "COUNT", 50, "FROM", "rolling")
            found = wire.read()
            assert isinstance(found, list), f"{len(wanted - taken)} did not come"
            for _, id, _ in found:
                taken.add(id)
                wire("ACKJOB", id)
        assert taken == wanted


def test_other_users_on_a_node_are_told() -> None:
    """N7.4: of nodes that say what users they have."""
    rows = [Row("a" * 40, "h", port, "up") for port in (1, 2, 3, 4)]
    rows[1].users, rows[2].users, rows[3].users = "x", "x", "y"
    assert uneven(rows) == ["h:4 has other users or rights than h:2: see ACL LIST of both"]
    rows[3].users = "x"
    assert uneven(rows) == []
