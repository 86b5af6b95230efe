"""`tuque tubes`, and help for TUBE."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import hiredis
import pytest
from console_node import Run

import tuque.errors as tuque_errors
from lab import RealCluster
from tuque import Client, Retry
from tuque.cli.programs import free_port
from tuque.cli.tubes import (
    COLUMNS,
    WAITING,
    rate_words,
    rows_of,
    table,
)
from tuque.client.transport.conn import pack
from tuque.client.transport.raw_link import Link, Target
from tuque.clusterview.view import asked
from tuque.nodeoptions import NodeOptions
from until import until
from world import World


def test_a_node_without_tubes_then_with_some(
    world: World, tuque_in: Callable[[World, int], Run]
) -> None:
    tuque = tuque_in(world, 0)
    done = tuque("tubes")
    assert done.stdout == b"no tubes; `tuque cli TUBE CREATE name type` makes one\n"
    for words in (
        "CREATE urls utubettl TTR 30",
        "CREATE small limfifottl TEMPORARY CAPACITY 2",
        "PUT urls a UTUBE x",
        "PUT urls b DELAY 60",
        "TAKE urls",
    ):
        assert tuque("cli", "TUBE", *words.split()).returncode == 0
    done = tuque("tubes")
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert lines[0][:7] == ["TUBE", "TYPE", "LEADER", "STATE", "LAG", "READY", "TAKEN"]
    rows = json.loads(tuque("tubes", "--json").stdout)
    here = [rows[0]["home"][:8], "RUNNING", "-"]
    small = ["small", "limfifottl", "(temporary,", "capacity", "2)"]
    assert lines[1] == [*small, *here, "0", "0", "0", "0", "-", "-", "-"]
    assert lines[2] == ["urls", "utubettl", *here, "1", "0", "1", "0", "-", "-", "30", "s"]
    assert [(row["name"], row["delayed"]) for row in rows] == [("small", 0), ("urls", 1)]


def answer_together(listener: socket.socket, names: list[bytes]) -> None:
    """A node with these tubes, one of which goes; it answers when all that may come has come."""
    sock, _ = listener.accept()
    sock.settimeout(20)
    address = b"127.0.0.1:%d" % sock.getsockname()[1]
    assert b"HELLO" in sock.recv(1024)
    sock.sendall(b"-ERR unknown command\r\n")
    reader = hiredis.Reader()
    for count in (1, 200, 200, 50, 200, 200, 49, 1):
        commands: list[list[bytes]] = []
        while len(commands) < count:
            reader.feed(sock.recv(65536))
            while (command := reader.gets()) is not False:
                commands.append(command)
        for _, what, *name in commands:
            told = {
                b"LIST": names,
                b"HOME": [b"address", address, b"state", b"RUNNING"],
                b"INFO": [b"name", *name, b"temporary", b"1", b"state", b"RUNNING"],
            }[what]
            sock.sendall(b"-NOTUBE gone\r\n" if name == [b"t007"] else pack(told))
    sock.close()


def test_many_tubes_take_few_round_trips() -> None:
    names = [b"t%03d" % number for number in range(450)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = threading.Thread(target=answer_together, args=(listener, names), daemon=True)
        node.start()
        node_asked = NodeOptions("127.0.0.1", listener.getsockname()[1], "", "", "")
        rows = asked(node_asked, rows_of, is_here=True, answer_s=20)
        node.join(20)
    assert [row["name"] for row in rows] == [name.decode() for name in names if name != b"t007"]
    assert {row["state"] for row in rows} == {"RUNNING"}


def test_names_that_a_terminal_would_obey(port: int, tuque: Run) -> None:
    link, name = Link(Target(port=port)), b"!a\n\x1b[2J\xff \xc3\xa9"
    assert link.call([b"TUBE", b"CREATE", name, b"fifo"]) == "OK"
    shown = tuque("tubes", "-p", port).stdout.decode().splitlines()[1]
    assert shown.startswith("!a\\n\\x1b[2J\\xff \u00e9  fifo")
    row = json.loads(tuque("tubes", "-p", port, "--json").stdout)[0]
    assert row["name"] == "!a\n\x1b[2J\\xff \u00e9"
    assert link.call([b"TUBE", b"DROP", name]) == "OK"
    link.close()


def test_a_tube_that_gives_out_no_task() -> None:
    """T15.4: the table says why."""
    row: dict[str, object] = dict.fromkeys((*COLUMNS, *WAITING, "temporary", "capacity"), 0)
    row |= {"name": "t\n", "type": "lifo", "home": "ab", "state": "RUNNING", "lag": "-"}
    row |= {"ttl": "forever", "ttr": "forever", "stopped": "KeyError: 'oh'"}
    lines = table([row, {**row, "name": "u", "stopped": ""}]).splitlines()
    assert "RUNNING STOPPED" in lines[1] and "STOPPED" not in lines[2]
    assert lines[3:] == ["t\\n delivers no task: KeyError: 'oh'"]


def test_a_node_that_is_not_there(tuque: Run) -> None:
    done = tuque("tubes", "-p", free_port())
    assert done.returncode == 1
    assert b"Error: " in done.stderr
    assert b"99999 is not in the range" in tuque("tubes", "-p", 99999).stderr


def test_what_to_do_about_errors(port: int, tuque: Run) -> None:
    done = tuque("cli", "-p", port, "TUBE", "PUT", "urls")
    assert b"arguments: use TUBE PUT tube body [PRI n]" in done.stdout
    assert done.stderr == b""  # the node has said it
    done = tuque("cli", "-p", port, "TUBE", "CREATE", "urls", "fifo", "NIX")
    assert done.stdout.startswith(b"ERR syntax error at 'NIX': use TUBE CREATE tube type")
    assert done.stderr == b""
    for words in (["CREATE"], ["CREATE", "urls"]):
        done = tuque("cli", "-p", port, "TUBE", *words)
        assert b"arguments: use TUBE CREATE tube type" in done.stdout
        assert b"TUBE PUT" not in done.stdout and done.stderr == b""
    assert b"`help TUBE`" in tuque("cli", "-p", port, "TUBE").stderr
    assert b"TUBE PUT tube body" in tuque("cli", "-p", port, "help", "tube").stdout
    for type, hint in (("nix", b"`TUBE DRIVERS` lists"), ("fifo", b"IFNOTEXISTS takes the tube")):
        for _ in range(2):
            done = tuque("cli", "-p", port, "TUBE", "CREATE", "again", type)
        assert done.returncode == 1 and b"hint: " + hint in done.stderr
    assert tuque("cli", "-p", port, "ADDJOB", "plain", "body", 100).returncode == 0
    done = tuque("cli", "-p", port, "TUBE", "CREATE", "plain", "fifo", "IFNOTEXISTS")
    assert b"a queue that has jobs can only become one of type tasks" in done.stderr
    done = tuque("cli", "-p", port, "TUBE", "NIX")
    assert b"arguments: use TUBE CREATE, PUT, TAKE, " in done.stdout
    done = tuque("cli", "-p", port, "TUBE", "TAKE", "nowhere")
    assert b"hint: `TUBE LIST` shows" in done.stderr


def test_homes_in_a_cluster(tuque: Run, tmp_path: Path) -> None:
    """Rows come from the home, whichever node is asked; a tube moves, also by force."""
    cluster = RealCluster(tmp_path, 2, "--cluster-node-timeout", 500)
    cluster.start()
    try:
        first, second = cluster.nodes
        ports = [first.port, second.port]
        for words in ("CREATE mail fifo ALONE", "PUT mail a", "PUT mail b"):
            assert tuque("cli", "-p", ports[0], "TUBE", *words.split()).returncode == 0
        until(lambda: home(tuque, ports[0]).endswith(b": 0 behind, complete\n"))
        rows: list[list[dict[str, str]]] = []

        def are_same() -> bool:  # a node that stood still for 500 ms has been WAITING
            rows[:] = [json.loads(tuque("tubes", "-p", port, "--json").stdout) for port in ports]
            return rows[0] == rows[1] and rows[0][0]["state"] == "RUNNING"

        until(are_same)
        told = {name: rows[0][0][name] for name in ("state", "lag", "ready", "address")}
        at = [f"127.0.0.1:{port}" for port in ports]
        assert told == {"state": "RUNNING", "lag": "0", "ready": 2, "address": at[0]}
        said = home(tuque, ports[1])
        assert said.startswith(
            f"mail: leader {rows[0][0]['home'][:8]} at {at[0]}, RUNNING".encode()
        )
        moved = tuque("tubes", "home", "mail", at[1], "-p", ports[1])  # asked at the other one
        assert moved.stdout == f"the leader of mail is {at[1]}\n".encode(), moved.stderr
        assert b"at %s, RUNNING, epoch 2" % at[1].encode() in home(tuque, ports[0])
        until(lambda: "tube mail: its leader is this node now (epoch 2)" in second.log())
        refused = tuque("tubes", "home", "mail", at[0], "--force", "-p", ports[0])
        assert refused.returncode == 1
        assert b"is reachable" in refused.stderr
        told = tuque("cli", "-p", ports[0], "TUBE", "PUT", "mail", "c")
        assert told.stderr.startswith(
            b"hint: ask the leader: `tuque cli -h 127.0.0.1 -p %d`" % ports[1]
        )
        second.kill()
        until(lambda: b"fail" in tuque("cli", "-p", ports[0], "CLUSTER", "NODES").stdout)
        assert_home_is_lost(tuque, ports[0], at)
        forced = tuque("tubes", "home", "mail", at[0], "--force", "-p", ports[0])
        assert b"copy: complete" in forced.stdout, forced.stderr
        assert b"it runs after twice cluster-node-timeout" in forced.stdout
        until(lambda: b"RUNNING, epoch 3" in home(tuque, ports[0]))
        assert b"its leader is" not in tuque("cluster", "status", "-p", ports[0]).stdout
        row = json.loads(tuque("tubes", "-p", ports[0], "--json").stdout)[0]
        assert (row["ready"], row["next-id"]) == (2, 1_000_002)
    finally:
        cluster.end()


def assert_home_is_lost(tuque: Run, port: int, at: list[str]) -> None:
    """What the node at `port`, whose address is the first one, says when the second is gone."""
    assert b", no answer, epoch 2" in home(tuque, port)
    line = tuque("tubes", "-p", port).stdout.splitlines()[1].split()
    assert line[3:5] == [b"no", b"answer"] and line[5:] == [b"-"] * 8  # nobody knows figures
    lost = tuque("tubes", "home", "mail", at[0], "-p", port)
    assert lost.returncode == 1
    assert f"the leader of mail at {at[1]} cannot be reached; if it is lost".encode() in lost.stderr
    shown = tuque("cluster", "status", "-p", port)
    assert shown.returncode == 1
    assert b"tube mail: its leader is unreachable; if that is lost for good: " in shown.stdout
    client = Client(f"tuque://127.0.0.1:{port}", retry=Retry(attempts=2))
    with client, pytest.raises(tuque_errors.Error, match="tuque tubes home mail NODE --force"):
        client.tube("mail").put(b"x")
    vague = tuque("tubes", "home", "mail", "--force", "-p", port)
    assert vague.returncode == 2 and b"--force needs NODE" in vague.stderr


def home(tuque: Run, port: int) -> bytes:
    """What `tuque tubes home mail` says."""
    return tuque("tubes", "home", "mail", "-p", port).stdout


def test_waiting_calls_are_told_apart(port: int, tuque: Run) -> None:
    link = Link(Target(port=port))
    link.call([b"TUBE", b"CREATE", b"waited", b"fifo"])
    assert link.wire is not None
    link.wire.send(pack([b"TUBE", b"TAKE", b"waited"]), None)
    try:
        until(lambda: b"1 + 0" in tuque("tubes", "-p", port).stdout)
    finally:
        link.close()


def test_a_tube_that_there_is_not(port: int, tuque: Run) -> None:
    done = tuque("tubes", "home", "nix", "-p", port)
    assert done.returncode == 1
    assert b"NOTUBE Tube 'nix' not found" in done.stderr
    done = tuque("tubes", "home", "nix", "fff", "--force", "-p", port)
    assert b"no node is called 'fff'; `tuque cluster status` shows them" in done.stderr


@pytest.mark.parametrize(
    ("token_us", "words"),
    [(100_000, "10/s"), (1_000_000, "1/s"), (666_667, "1.5/s"), (40_000_000, "1.5/m"),
     (60_000_000, "1/m"), (720_000_000, "5/h"), (7_200_000_000, "0.5/h")],
)  # fmt: skip
def test_a_rate_in_the_words_of_its_declaration(token_us: int, words: str) -> None:
    assert rate_words(token_us) == words


def test_limits(port: int, tuque: Run) -> None:
    """`tuque tubes limits` at a real node (SPEC T47)."""
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("shops").create("tasks", ttr=30)
        for _ in range(3):
            client.addjob("shops", "b", limit=("one\x1b", 1))
            client.addjob("shops", "b", rate=("slow", "2/h"), group=("north", 3))
        assert len(client.getjob("shops", count=9)) == 2
        lines = tuque("tubes", "limits", "-p", port, "shops").stdout.decode().splitlines()
        assert "\x1b" not in lines[0] and lines[0].startswith("limit  one")
        assert "1 of 1 places used  2 wait  since " in lines[0]
        assert lines[1].startswith("rate  slow  2/h, 0 of 1 tokens  2 wait  since ")
        assert lines[2].startswith("group  north  weight 3 of 4  2 wait")
        listed = tuque("tubes", "limits", "-p", port, "shops", "--json", "--count", "1")
        assert json.loads(listed.stdout)["places"] == 1
        assert listed.stderr == b"there are more than 1: --count shows them\n"
        listed = tuque("tubes", "limits", "-p", port, "shops", "--count", "3")
        assert len(listed.stdout.splitlines()) == 3 and not listed.stderr
        assert tuque("tubes", "limits", "-p", port, "plain").returncode == 1
