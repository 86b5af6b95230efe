"""CONFIG, CLUSTER, DEBUG, SLOWLOG, LATENCY, SHUTDOWN and their like (SPEC C7.6, S6, S7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raw_resp import encode
from tuque.server.config.kinds import Bool, Choice, Int, Memory, OutputLimit
from tuque.server.config.options import OPTIONS
from tuque.server.log.slowlog import LATENCY_SAMPLES, note_latency
from until import until
from world import World
from world_machines import name_of


def wrong(text: str) -> bytes:
    return b"-ERR " + text.encode() + b"\r\n"


def test_config_get(world: World) -> None:
    assert world("CONFIG GET timeout") == b"*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"
    assert world("CONFIG GET nosuch") == b"*0\r\n"
    assert world.value("CONFIG GET save appendonly") == [b"save", b"", b"appendonly", b"no"]
    assert world.value("CONFIG GET maxmemory hz maxmem*")[::2] == [
        b"maxmemory",
        b"hz",
        b"maxmemory-samples",
        b"maxmemory-policy",
        b"maxmemory-clients",
    ]
    world("HELLO 3")
    assert world("CONFIG GET timeout") == b"%1\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"


def extremes() -> list[tuple[str, str]]:
    """The smallest and the largest legal value of each option that has numbers, or its words."""
    found: list[tuple[str, str]] = []
    for opt in OPTIONS.values():
        if not opt.runtime or opt.hidden:
            continue
        if isinstance(opt.kind, Int | Memory):
            found += [(opt.name, str(opt.kind.low)), (opt.name, str(opt.kind.high))]
        elif isinstance(opt.kind, Choice):
            found += [(opt.name, word) for word in opt.kind.words]
        elif isinstance(opt.kind, OutputLimit):
            found += [(opt.name, "normal 1 1 1"), (opt.name, "normal 1 0 0")]
        elif isinstance(opt.kind, Bool):
            found += [(opt.name, "yes"), (opt.name, "no")]
    return found


def test_every_option_can_be_set_back(tmp_path: Path) -> None:
    """C7.9 A legal value that CONFIG SET has set can be changed again by CONFIG SET, on a new
    connection.
    """
    for name, value in extremes():
        world = World(1, dir=str(tmp_path))
        first = world.wire()
        before = first.ask("CONFIG", "GET", name)[1]
        reply = first.ask("CONFIG", "SET", name, value)
        is_too_much = name == "maxclients" and str(reply).startswith("ERR The operating system")
        assert reply == b"OK" or is_too_much, (name, value)
        world.pass_ms(3000)
        second = world.wire()
        assert second.ask("CONFIG", "SET", name, before) == b"OK", (name, value)
        assert isinstance(world.wire().ask("ADDJOB", "q", "body", 0), bytes), (name, value)


def test_config_set(world: World) -> None:
    assert world("CONFIG SET slowlog-log-slower-than 5") == b"+OK\r\n"
    assert world.server.slow_ns == 5000
    assert world("CONFIG SET maxmemory 2mb") == b"+OK\r\n"
    assert world.n.limits.memory_bytes == 2 << 20
    assert world("CONFIG SET timeout x") == wrong(
        "Invalid argument 'x' for CONFIG SET 'timeout'; allowed: 0..2147483648"
    )
    assert world("CONFIG SET nosuch 1") == wrong("Unsupported CONFIG parameter: nosuch")
    assert world("CONFIG SET port 1") == wrong("Unsupported CONFIG parameter: port")
    many = world("CONFIG SET maxclients 9999999")
    assert many.startswith(
        b"-ERR The operating system is not able to handle the specified number of clients, try with"
        b" maxclients "
    )
    for text in (str(2**63), "9" * 5_000):
        shown = text if len(text) < 20 else "9" * 256 + "... (5000 characters)"
        assert world("CONFIG SET maxclients " + text) == wrong(
            f"Invalid argument '{shown}' for CONFIG SET 'maxclients'; allowed: 1..10000000"
        )


def test_forms_of_config(world: World) -> None:
    for line in ("CONFIG GET", "CONFIG SET a", "CONFIG SET a b c", "CONFIG RESETSTAT x"):
        sub = line.split()[1]
        assert world(line) == wrong(f"Wrong number of arguments for CONFIG {sub}")
    assert world("CONFIG nosuch") == wrong(
        "CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"
    )
    assert world("CONFIG REWRITE") == wrong("The server is running without a config file")


def kept_job(world: World, body: str) -> bytes:
    """Add a job; the real thread of a journal writes its record, which the answer waits for."""
    wire = world.wire()
    wire.put(encode("ADDJOB", "q", body, 0))

    def answer() -> bytes:
        world.settle()
        world.pump.gate.on_wake()  # the world does not wait for the thread
        return bytes(wire.bytes_now())

    return until(answer, "answer")[1:].strip()


def test_config_switches_the_journal(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world(journal="off", dir=str(tmp_path))
    assert world("DEBUG LOADAOF") == wrong("there is no journal to load: appendonly is no")
    kept = world.add("q", "kept", "DELAY", "60")
    assert world("CONFIG SET appendonly yes") == b"+OK\r\n"
    assert world("CONFIG SET appendonly yes") == b"+OK\r\n"  # it is on: nothing to do
    queued = [kept_job(world, str(i)) for i in range(3)]
    world("ACKJOB", queued[1])
    assert world("DEBUG LOADAOF") == b"+OK\r\n"  # J6.5: a stop finishes the first snapshot
    fields = world.info("persistence")
    assert (fields["aof_state"], fields["aof_enabled"]) == ("on", "1")
    assert list(fields)[9:12] == ["aof_current_size", "aof_base_size", "aof_pending_rewrite"]
    assert world("DEBUG LOADAOF") == b"+OK\r\n"
    assert sorted(world.value("JSCAN")[1]) == sorted([kept, queued[0], queued[2]])
    assert world.value("QPEEK q 9") == [[b"q", queued[0], b"0"], [b"q", queued[2], b"2"]]
    assert world("BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
    assert world("CONFIG SET appendfsync always") == b"+OK\r\n"
    assert world("CONFIG SET appendonly no") == b"+OK\r\n"
    assert world.server.committer is None and world.n.records is None
    assert world("PING") == b"+PONG\r\n"
    assert world.pump.wait_ms(-1) > 1, "the rewrite is over, too"


def test_a_journal_that_cannot_be_begun(make_world: Callable[..., World], tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"a file in its place")
    world = make_world(journal="off", dir=str(tmp_path))
    assert world("CONFIG SET appendonly yes") == wrong("Unable to turn on AOF. Check server logs.")
    assert not world.cfg.appendonly
    assert world("ADDJOB q b 0").startswith(b"+D-")


def test_resetstat(world: World) -> None:
    world("PING")
    assert int(world.info("stats")["total_commands_processed"]) > 0
    world("CONFIG RESETSTAT")
    assert world.info("stats")["total_commands_processed"] == "1"  # RESETSTAT itself
    assert "cmdstat_ping" not in world.info("commandstats")


def test_cluster_of_one(world: World) -> None:
    line = name_of(0) + b" 10.0.0.1:7711 myself 0 0 connected\n"
    assert world.value("CLUSTER NODES") == line
    assert world.value("CLUSTER MYID") == name_of(0)
    assert world.value("CLUSTER INFO").split(b"\r\n")[:4] == [
        b"cluster_state:ok",
        b"cluster_known_nodes:1",
        b"cluster_reachable_nodes:0",
        b"cluster_size:1",
    ]
    assert world("CLUSTER SAVECONFIG") == b"+OK\r\n"
    other = "f" * 40
    assert world("CLUSTER FORGET x") == wrong("Invalid node identifier")
    assert world(f"CLUSTER FORGET {other}") == wrong(f"Unknown node {other}")
    assert world("CLUSTER FORGET", name_of(0)) == wrong("I tried hard but I can't forget myself...")
    said = "Wrong CLUSTER subcommand or number of arguments: use CLUSTER "
    assert world("CLUSTER NODES x") == wrong(said + "NODES")
    assert world("CLUSTER MEET 1.2.3.4") == wrong(said + "MEET host port [bus-port]")
    assert world("CLUSTER nosuch").decode().startswith(f"-ERR {said}NODES, ")


def test_meet_without_a_bus(make_world: Callable[..., World]) -> None:
    world = make_world(journal="off", cluster_enabled=False)
    assert world("CLUSTER MEET 1.2.3.4 x") == wrong("Invalid TCP port specified: x")
    assert world("CLUSTER MEET 1.2.3.4 7711 x") == wrong("Invalid TCP port specified: x")
    for address in ("n\xf6 7711", "1.2.3.4 0", "1.2.3.4 55536", f"{256 * 'h'} 7711"):
        ip, port = address.split()
        assert world(f"CLUSTER MEET {address}") == wrong(
            f"Invalid node address specified: {ip}:{port}"
        )
    assert world("CLUSTER MEET ::1 7711") == wrong("this node stays alone: cluster-enabled is no")


def test_leaving(world: World) -> None:
    waiting = world.wire()
    assert world("GETJOB FROM q", by=waiting) == b""
    assert world("CLUSTER LEAVING") == b"+no\r\n"
    assert world("CLUSTER LEAVING yes") == b"+OK\r\n"
    assert waiting.hear().startswith(b"-LEAVING This node is leaving the cluster")
    assert world("CLUSTER LEAVING") == b"+yes\r\n"
    assert b" myself,leaving " in world("CLUSTER NODES")
    assert world("CLUSTER LEAVING maybe") == wrong(
        "Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    )
    assert world("CLUSTER LEAVING no") == b"+OK\r\n"


def test_reset_of_the_cluster(world: World) -> None:
    waiting = world.wire()
    world("GETJOB FROM other", by=waiting)
    world.add()
    assert world("CLUSTER RESET nosuch").startswith(
        b"-ERR syntax error at 'NOSUCH': use CLUSTER RE"
    )
    assert world("QLEN q") == b":1\r\n"
    assert world("CLUSTER RESET") == b"+OK\r\n"
    assert waiting.hear() == b"*-1\r\n"
    assert world("QLEN q") == b":0\r\n"
    assert world.n.node_id == name_of(0)
    world("CLUSTER LEAVING yes")
    assert world("CLUSTER RESET HARD") == b"+OK\r\n"
    new_id = world.value("CLUSTER MYID")
    assert new_id != name_of(0) and len(new_id) == 40
    assert world("CLUSTER LEAVING") == b"+no\r\n"
    assert world.add()[2:10] == new_id[:8]


def test_flushall(world: World) -> None:
    waiting = world.wire()
    world("GETJOB FROM other", by=waiting)
    world.add()
    world("PAUSE r in")
    assert world("DEBUG FLUSHALL") == b"+OK\r\n"
    assert waiting.hear() == b"*-1\r\n"
    assert world.info("jobs")["registered_jobs"] == "0"
    assert world.info("queues")["registered_queues"] == "0"
    ledger = world.info("ledger")
    assert (ledger["admin_deleted"], ledger["balance"]) == ("1", "0")


def test_debug(world: World) -> None:
    assert world("DEBUG ERROR", "MY own\nerror") == b"-MY own error\r\n"
    started = time.monotonic()
    assert world("DEBUG SLEEP 0.01") == b"+OK\r\n"
    assert time.monotonic() - started >= 0.01
    for bad in ("x", "-1", "nan", "inf", "1e9"):
        assert world(f"DEBUG SLEEP {bad}") == wrong("value is not a valid float")
    assert world.value("DEBUG STRUCTSIZE").startswith(b"bits:64 job:")
    assert world("DEBUG CHECK") == b"+OK\r\n"
    world.n.job_bytes += 1
    assert world("DEBUG CHECK") == wrong("the tables disagree: bytes of jobs")
    for word in ("SEGFAULT", "ASSERT", "OOM", "CRASH-AND-RECOVER"):
        assert b"is refused" in world(f"DEBUG {word}")
    assert world("DEBUG nosuch") == wrong(
        "Unknown DEBUG subcommand or wrong number of arguments for 'nosuch'"
    )
    assert world("DEBUG LOADAOF") == wrong("there is no journal to load: appendonly is no")
    world.n.job_bytes -= 1


def test_who_may_debug(make_world: Callable[..., World]) -> None:
    local = make_world(journal="off")
    far = local.wire(address="192.0.2.7:999")
    assert local("DEBUG CHECK", by=far).startswith(b"-DENIED DEBUG is not allowed from here")
    assert local("DEBUG CHECK", by=local.wire(address="[::1]:9")).startswith(b"-DENIED")
    assert local("DEBUG CHECK", by=local.wire(address="::1:9")) == b"+OK\r\n"
    assert make_world(journal="off", enable_debug_command="no")("DEBUG CHECK").startswith(
        b"-DENIED"
    )
    everybody = make_world(journal="off", enable_debug_command="yes")
    assert everybody("DEBUG CHECK", by=everybody.wire(address="192.0.2.7:9")) == b"+OK\r\n"


@pytest.mark.parametrize("line", ["SHUTDOWN", "SHUTDOWN REWRITE-AOF"])
def test_shutdown(make_world: Callable[..., World], tmp_path: Path, line: str) -> None:
    world = make_world(journal="off", dir=str(tmp_path))
    assert world("SHUTDOWN x").startswith(b"-ERR syntax error at 'x': use SHUTDOWN [REWRITE")
    assert world("SHUTDOWN SAVE x").startswith(b"-ERR syntax error at 'x': use SHUTDOWN")
    server = world.server
    assert server.stop_requested == ""
    assert world(line) == b""
    assert server.stop_requested == "shutdown"
    assert any(tmp_path.rglob("*.snap")) == ("REWRITE" in line)


def test_a_planned_restart_that_cannot_save_is_refused(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(journal="off", dir=str(tmp_path))
    id = world.add()
    (tmp_path / world.cfg.appenddirname).write_text("a file where the directory should be")
    assert world("SHUTDOWN REWRITE-AOF") == wrong("Errors trying to SHUTDOWN. Check logs.")
    assert world.server.stop_requested == ""
    assert world("ACKJOB", id) == b":1\r\n"
    assert world("SHUTDOWN") == b""


def test_restart(world: World) -> None:
    server = world.server
    assert world("DEBUG RESTART x") == wrong("value is not an integer or out of range")
    assert world("DEBUG RESTART 50") == b""
    assert (server.stop_requested, server.restart_after_ms) == ("restart", 50)


def test_what_only_disque_has(world: World) -> None:
    assert world("LOADJOB x") == wrong("LOADJOB is a special command only processed from AOF")
    assert world("BGREWRITEAOF").startswith(b"-ERR there is no journal to rewrite")


def test_time(world: World) -> None:
    seconds, micros = world.value("TIME")
    assert abs(int(seconds) - time.time()) < 5
    assert 0 <= int(micros) < 1_000_000


def test_slowlog(world: World) -> None:
    assert world("SLOWLOG LEN") == b":0\r\n"
    world("CONFIG SET slowlog-max-len 3")
    world("CONFIG SET slowlog-log-slower-than 0")
    world("SLOWLOG RESET")
    world("AUTH secret")
    world("PING", b"x" * 130)
    world("DELJOB " + "a " * 40)
    entries = world.value("SLOWLOG GET")
    assert len(entries) == 3
    assert [entry[0] for entry in entries] == [entries[0][0] - i for i in range(3)]
    assert abs(entries[0][1] - time.time()) < 5
    assert len(entries[0][3]) == 32
    assert entries[0][3][31] == b"... (10 more arguments)"
    assert entries[1][3] == [b"PING", b"x" * 128 + b"... (2 more bytes)"]
    assert entries[2][3] == [b"AUTH", b"(redacted)"]
    assert len(world.value("SLOWLOG GET 1")) == 1
    assert len(world.value("SLOWLOG GET -1")) == 3
    assert world("SLOWLOG GET x") == wrong("value is not an integer or out of range")
    assert world("SLOWLOG nosuch") == wrong(
        "Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
    )
    world("CONFIG SET slowlog-log-slower-than -1")
    world("SLOWLOG RESET")
    assert world("SLOWLOG LEN") == b":0\r\n"


def test_latency(world: World) -> None:
    assert b"Latency monitoring is off" in world.value("LATENCY DOCTOR")
    note_latency(world.server, "command", 10**10)
    assert world("LATENCY LATEST") == b"*0\r\n"
    world("CONFIG SET latency-monitor-threshold 5000")  # above what a busy machine adds
    assert b"All is well" in world.value("LATENCY DOCTOR")
    note_latency(world.server, "command", 4_999_999_999)
    assert world("LATENCY LATEST") == b"*0\r\n"
    note_latency(world.server, "command", 7_000_000_000)
    [[event, at, last, worst]] = world.value("LATENCY LATEST")
    assert (event, last, worst) == (b"command", 7000, 7000)
    assert world.value("LATENCY HISTORY command") == [[at, 7000]]
    assert world("LATENCY HISTORY nosuch") == b"*0\r\n"
    assert b"high 7000 ms, low 7000 ms" in world.value("LATENCY GRAPH command")
    assert world("LATENCY GRAPH nosuch") == wrong("No samples available for event 'nosuch'")
    assert b"worst 7000 ms" in world.value("LATENCY DOCTOR")
    assert world("LATENCY nosuch").startswith(b"-ERR syntax error at 'nosuch': use LATENCY LATEST")
    assert world("LATENCY RESET nosuch") == b":0\r\n"
    assert world("LATENCY RESET") == b":1\r\n"


def test_latency_keeps_the_worst_of_each_second(world: World) -> None:
    latency = world.server.latency
    for at_s in range(LATENCY_SAMPLES + 10):
        latency.note("fork", at_s, 5)
        latency.note("fork", at_s, 9)
        latency.note("fork", at_s, 7)
    history = world.value("LATENCY HISTORY fork")
    assert len(history) == LATENCY_SAMPLES
    assert history[0] == [10, 9]


def test_info(world: World, tmp_path: Path) -> None:
    titles = [line for line in world.value("INFO").decode().split("\r\n") if line.startswith("#")]
    assert titles == [
        f"# {name}"
        for name in (
            *"Server Clients Memory Jobs Queues Persistence Stats CPU Ledger Events".split(),
            *"Leases Staging Topics Tubes Users Tenants Cluster Bus".split(),
        )
    ]
    assert world.value("INFO nosuch") == b""
    assert world("INFO a b") == b"-ERR syntax error at 'b': use INFO [section]\r\n"
    assert b"# Commandstats\r\ncmdstat_info:calls=" in world.value("INFO all")
    text = world.value("INFO jobs")
    assert text.startswith(b"# Jobs\r\nregistered_jobs:0\r\n") and text.endswith(b"\r\n")
    assert list(world.info("server"))[:3] == [
        "disque_version",
        "disque_git_sha1",
        "disque_git_dirty",
    ]
    assert world.info("memory")["maxmemory_human"] == "1.20G"
    assert world.info("persistence")["aof_state"] == "off"
    world.server.is_loading = True
    fields = world.info("persistence")
    assert (fields["loading"], fields["loading_loaded_perc"]) == ("1", "0.00")
    assert world("QLEN q").startswith(b"-LOADING")
    assert world("COMMAND COUNT").startswith(b":")
