"""Dead letters: what is there and why, and back into their queues once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sink_lab import bodies, empty

from lab import RealCluster, RealServer
from raw_resp import Wire
from until import until

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from tuque.spark.cli.deadletters import replay, triage
from tuque.worker.app.codec import Envelope, encode


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A node that writes its events."""
    running = RealServer(tmp_path_factory.mktemp("telling"), "--events", "yes").start()
    yield running
    running.end()


@pytest.fixture
def server(telling: RealServer) -> RealServer:
    """That node, empty."""
    empty(telling)
    return telling


def die(server: RealServer, queue: str, task: str, reason: str) -> None:
    wire = server.wire()
    body = encode(Envelope(task, [reason]), "json") if task else b"\xff"
    job = wire.add(queue, body)
    wire("DEADLETTER", job, f"{queue}.dead", "REASON", reason)


def run(server: RealServer, command: str, *words: str) -> tuple[int, str]:
    url = f"tuque://127.0.0.1:{server.port}"
    commands = {"triage": triage, "replay": replay}
    done = CliRunner().invoke(commands[command], [*words, "--url", url])
    return done.exit_code, done.output


def fill(server: RealServer) -> None:
    for _ in range(3):
        die(server, "mail", "send", "TimeoutError: slow")
    die(server, "mail", "send", "ValueError: no")
    die(server, "pay", "", "rejected: the body is not a task call")


def test_what_letters_say_commands_no_terminal(server: RealServer) -> None:
    die(server, "mail\x1b[2J", "send\x07", "boom \x1b]0;owned\x07")
    events = str(server.directory / "events")

    def table() -> str:
        code, output = run(server, "triage", "--events", events)
        return output if code == 0 and "boom" in output else ""

    until(table, "no reason in the table")
    assert "\x1b" not in table() and "\x07" not in table()
    (line,) = [line for line in table().splitlines() if "boom" in line]
    assert line.split("  ")[-1] == r"boom \x1b]0;owned\x07"
    code, output = run(server, "replay", "--dry-run")
    assert (code, output.splitlines()[0]) == (0, r"1 from mail\x1b[2J.dead to mail\x1b[2J")


@pytest.mark.parametrize("has_events", [True, False])
def test_a_queue_whose_name_is_not_utf_8(server: RealServer, has_events: bool) -> None:
    r"""H2.5 A name that is not UTF-8 is shown with `\xff` for a byte that is none, in events,
    tables, the report, rows of Spark, `--where`, and in what all commands print. A replay adds to
    the queue itself."""
    wire = server.wire()
    for queue in (b"mail", b"\xffbin"):
        wire("DEADLETTER", wire.add(queue, b"x"), queue + b".dead", "REASON", "moved")
    events = ["--events", str(server.directory / "events")] if has_events else []

    def table() -> str:
        code, output = run(server, "triage", *events)
        assert code == 0, output
        return output if output.count("moved") == 2 or not has_events else ""

    found = until(table, "no reasons in the table")
    assert [line.split()[1] for line in found.splitlines()[1:]] == [r"\xffbin.dead", "mail.dead"]
    code, output = run(server, "triage", "--json", "--where", r"queue = '\xffbin.dead'", *events)
    assert [row["queue"] for row in json.loads(output)] == [r"\xffbin.dead"]
    code, output = run(server, "replay", *events)
    assert (code, output.splitlines()[-1]) == (0, "2 of 2 letters replayed")
    assert r"1 from \xffbin.dead to \xffbin" in output
    assert [wire("QLEN", queue) for queue in (b"mail", b"\xffbin", rb"\xffbin")] == [1, 1, 0]


def test_two_queues_that_are_shown_alike(server: RealServer) -> None:
    wire = server.wire()
    for queue in (rb"\xffbin", b"\xffbin"):
        wire("DEADLETTER", wire.add(queue, b"x"), queue + b".dead", "REASON", "moved")
    code, output = run(server, "replay")
    assert code == 1
    assert "choose one with --queue" in output
    code, output = run(server, "replay", "--queue", "\udcffbin.dead")
    assert (code, output.splitlines()[-1]) == (0, "1 of 1 letters replayed")
    assert [wire("QLEN", queue) for queue in (b"\xffbin", rb"\xffbin")] == [1, 0]


def test_letters_by_queue_task_and_reason(server: RealServer) -> None:
    fill(server)
    code, output = run(server, "triage", "--json")
    assert code == 0, output
    found = [(row["letters"], row["queue"], row["task"]) for row in json.loads(output)]
    assert found == [(4, "mail.dead", "send"), (1, "pay.dead", "(no task call)")]
    events = str(server.directory / "events")

    def reasons() -> list[tuple[int, str, str]]:
        code, output = run(server, "triage", "--events", events, "--json")
        rows = json.loads(output) if code == 0 else []
        return [(row["letters"], row["queue"], row["reason"]) for row in rows]

    wanted = [
        (3, "mail.dead", "TimeoutError: slow"),
        (1, "mail.dead", "ValueError: no"),
        (1, "pay.dead", "rejected: the body is not a task call"),
    ]
    until(lambda: reasons() == wanted, lambda: f"{reasons()}")
    code, output = run(server, "triage", "--events", events, "--where", "reason LIKE 'Value%'")
    assert output.splitlines()[1].split()[:3] == ["1", "mail.dead", "send"]
    assert output.endswith("ValueError: no\n")


def fail(wire: Wire, queue: str, reason: str, *options: str) -> str:
    """A job of the queue uses up its only attempt; the letter keeps its id (W6.5)."""
    id = wire.add(queue, "x", "ATTEMPTS", "1", *options)
    assert wire("GETJOB", "NOHANG", "FROM", queue)
    assert wire("FAIL", id, wire("START", "WORKER", "w", id)[0][0], "REASON", reason)[0] == b"dead"
    return id


@pytest.mark.parametrize("has_events", [True, False])
def test_letters_that_used_up_their_attempts(server: RealServer, has_events: bool) -> None:
    """Their node knows the reason, the queue and the time; no file needs to."""
    wire = server.wire()
    for queue in ("orders", "pays"):
        fail(wire, queue, "card declined", "DEAD", "letters.dead")
    fail(wire, "mails", "bounced", "DEAD", "letters")
    events = ["--events", str(server.directory / "events")] if has_events else []
    wanted = [(1, "letters", "bounced"), (2, "letters.dead", "card declined")]
    where = ["--queue", "letters*", *events]

    def found() -> list[tuple[int, str, str]]:
        code, output = run(server, "triage", "--json", *where)
        rows = json.loads(output) if code == 0 else []
        return sorted((row["letters"], row["queue"], row["reason"]) for row in rows)

    until(lambda: found() == wanted, lambda: f"{found()}")
    code, output = run(server, "replay", *where, "--where", "from_queue <> 'pays'")
    assert (code, output.splitlines()) == (
        0,
        [
            "1 from letters to mails",
            "1 from letters.dead to orders",
            "2 of 2 letters replayed",
        ],
    )
    assert [wire("QLEN", queue) for queue in ("orders", "mails", "letters.dead")] == [1, 1, 1]


def test_a_letter_that_died_again(server: RealServer) -> None:
    """Its last death counts; beside it is one of which only the events tell."""
    wire = server.wire()
    id = fail(wire, "orders", "no card")
    assert wire("DEAD", "REPLAY", "orders.dead", "IDS", id)[1] == 1
    assert wire("GETJOB", "NOHANG", "FROM", "orders")
    assert wire("FAIL", id, wire("START", "WORKER", "w", id)[0][0], "REASON", "no money")
    other = wire.add("b", "x")
    letter = wire("DEADLETTER", other, "orders.dead", "REASON", "moved").decode()
    events = ["--events", str(server.directory / "events")]

    def found() -> list[tuple[str, str]]:
        code, output = run(server, "triage", "--json", *events)
        rows = json.loads(output) if code == 0 else []
        return sorted((row["example"], row["reason"]) for row in rows)

    wanted = sorted([(id, "no money"), (letter, "moved")])
    until(lambda: found() == wanted, lambda: f"{found()}")


def test_a_letter_whose_queue_is_not_known(broker: RealServer) -> None:
    wire = broker.wire()
    letter = wire("DEADLETTER", wire.add("q", "x"), "letters").decode()
    code, output = run(broker, "replay", "--queue", "letters")
    assert code == 1 and "1 from letters stay: the queue it came from is not known" in output
    assert (
        f"refused: {letter}: the queue it came from is not known: give --events, or --to" in output
    )
    assert [wire("QLEN", queue) for queue in ("q", "letters")] == [0, 1]


def test_a_replay_is_done_once(broker: RealServer) -> None:
    fill(broker)
    code, output = run(broker, "replay", "--dry-run")
    assert "4 from mail.dead to mail\n1 from pay.dead to pay\n5 letters would be" in output
    assert sum(bodies(broker, "mail.dead").values()) == 4
    for _ in range(2):
        code, output = run(broker, "replay", "--queue", "mail.*", "--keep")
        assert (code, output.splitlines()[-1]) == (0, "4 of 4 letters replayed")
        assert sum(bodies(broker, "mail").values()) == 4
    code, output = run(broker, "replay", "--queue", "mail.*")
    assert code == 0
    assert sum(bodies(broker, "mail").values()) == 4
    assert not bodies(broker, "mail.dead")
    assert sum(bodies(broker, "pay.dead").values()) == 1
    code, output = run(broker, "replay", "--queue", "mail.*")
    assert output == "0 of 0 letters replayed\n"


def test_some_letters_to_another_queue(broker: RealServer) -> None:
    fill(broker)
    code, output = run(broker, "replay", "--where", "args LIKE '%Timeout%'", "--to", "slow")
    assert code == 0, output
    assert sum(bodies(broker, "slow").values()) == 3
    assert sum(bodies(broker, "mail.dead").values()) == 1


def test_mistakes(broker: RealServer, tmp_path: Path) -> None:
    assert run(broker, "triage") == (0, "no dead letters\n")
    fill(broker)
    code, output = run(broker, "triage", "--where", "nonsense = 1")
    assert code == 1
    assert "--where 'nonsense = 1': Binder Error" in output
    code, output = run(broker, "triage", "--events", str(tmp_path / "none"))
    assert code == 2
    broker.wire()("PAUSE", "mail", "in")
    code, output = run(broker, "replay")
    assert code == 1
    assert "4 letters were refused and stay" in output
    assert sum(bodies(broker, "mail.dead").values()) == 4
    assert sum(bodies(broker, "pay").values()) == 1


def die_in_tube(wire: Wire, tube: str, reason: str, *options: str) -> str:
    """A task of the tube fails for good."""
    body = encode(Envelope("send", [reason]), "json")
    id = wire.add(tube, body, "ATTEMPTS", "1", *options)
    assert [job[1] for job in wire("GETJOB", "NOHANG", "FROM", tube)] == [id.encode()]
    run = wire("START", "WORKER", "w", id)[0][0]
    assert wire("FAIL", id, run, "REASON", reason)[0] == b"dead"
    return id


def test_letters_in_tubes(broker: RealServer) -> None:
    wire = broker.wire()
    assert wire("TUBE", "CREATE", "exports", "tasks") == b"OK"
    fill(broker)
    ids = [die_in_tube(wire, "exports", reason) for reason in ("no card", "no money")]
    wire.add("exports", "waits", "ATTEMPTS", "1")
    code, output = run(broker, "triage", "--json", "--queue", "exports")
    assert code == 0, output
    found = [
        (row["letters"], row["queue"], row["task"], row["reason"]) for row in json.loads(output)
    ]
    assert found == [(1, "exports", "send", "no card"), (1, "exports", "send", "no money")]
    code, output = run(broker, "replay", "--dry-run")
    assert (
        "2 from exports to exports\n4 from mail.dead to mail\n" in output and "7 letters" in output
    )
    code, output = run(broker, "replay", "--keep")
    assert code == 1 and "a letter of the tube exports is the job itself" in output
    assert len(wire("DEAD", "LIST", "exports")[1]) == 2
    code, output = run(broker, "replay", "--where", "args LIKE '%card%'")
    assert (code, output.splitlines()) == (
        0,
        ["1 from exports to exports", "1 of 1 letters replayed"],
    )
    assert [row[0].decode() for row in wire("DEAD", "LIST", "exports")[1]] == ids[1:]
    assert ids[0].encode() in [
        job[1] for job in wire("GETJOB", "NOHANG", "COUNT", 9, "FROM", "exports")
    ]
    code, output = run(broker, "replay", "--queue", "exports", "--to", "slow")
    assert code == 0, output
    assert sum(bodies(broker, "slow").values()) == 1
    assert wire("DEAD", "LIST", "exports")[1] == []


def test_a_letter_whose_key_is_taken_stays(broker: RealServer) -> None:
    wire = broker.wire()
    assert wire("TUBE", "CREATE", "pay", "tasks") == b"OK"
    ids = [die_in_tube(wire, "pay", why, "UNIQUE", why) for why in ("a", "b")]
    wire.add("pay", "other", "UNIQUE", "a")
    code, output = run(broker, "replay", "--queue", "pay")
    assert code == 1 and "1 of 2 letters replayed" in output
    assert f"refused: {ids[0]}: it stays dead: another job has its UNIQUE key" in output
    assert [row[0].decode() for row in wire("DEAD", "LIST", "pay")[1]] == ids[:1]


def test_letters_of_a_tube_that_another_node_leads(tmp_path: Path) -> None:
    with RealCluster(tmp_path, 2) as cluster:
        wire, other = cluster.wire(0), cluster.wire(1)
        assert wire("TUBE", "CREATE", "pay", "tasks", "SYNC", "2", "ALONE") == b"OK"
        id = die_in_tube(wire, "pay", "no card")
        until(lambda: b"TUBEHOME" in repr(other("DEAD", "LIST", "pay")).encode(), "no other leader")
        away = cluster.nodes[1]
        code, output = run(away, "triage", "--where", "args LIKE '%card%'", "--json")
        assert (code, [row["queue"] for row in json.loads(output)]) == (0, ["pay"])
        code, output = run(away, "replay")
        assert (code, output.splitlines()[-1]) == (0, "1 of 1 letters replayed")
        assert [job[1] for job in wire("GETJOB", "NOHANG", "FROM", "pay")] == [id.encode()]
