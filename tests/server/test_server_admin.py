"""CONFIG, CLUSTER, DEBUG, SLOWLOG, LATENCY, SHUTDOWN and their like (SPEC C7.6, S6, S7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from door import NODE_ID, Door, taken

from tuque.server.log.slowlog import LATENCY_SAMPLES, note_latency


def wrong(text: str) -> bytes:
    return b"-ERR " + text.encode() + b"\r\n"


def test_config_get(door: Door) -> None:
    assert door("CONFIG GET timeout") == b"*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"
    assert door("CONFIG GET nosuch") == b"*0\r\n"
    assert door.value("CONFIG GET save appendonly") == [b"save", b"", b"appendonly", b"no"]
    assert door.value("CONFIG GET maxmemory hz maxmem*")[::2] == [
        b"maxmemory",
        b"hz",
        b"maxmemory-samples",
        b"maxmemory-policy",
    ]
    door("HELLO 3")
    assert door("CONFIG GET timeout") == b"%1\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"


def test_config_set(door: Door) -> None:
    assert door("CONFIG SET slowlog-log-slower-than 5") == b"+OK\r\n"
    assert door.s.slow_ns == 5000
    assert door("CONFIG SET maxmemory 2mb") == b"+OK\r\n"
    assert door.n.limits.memory_bytes == 2 << 20
    assert door("CONFIG SET timeout x") == wrong("Invalid argument 'x' for CONFIG SET 'timeout'")
    assert door("CONFIG SET nosuch 1") == wrong("Unsupported CONFIG parameter: nosuch")
    assert door("CONFIG SET port 1") == wrong("Unsupported CONFIG parameter: port")
    many = door("CONFIG SET maxclients 9999999")
    assert many.startswith(
        b"-ERR The operating system is not able to handle the specified number of clients, try with"
    )


def test_forms_of_config(door: Door) -> None:
    for line in ("CONFIG GET", "CONFIG SET a", "CONFIG SET a b c", "CONFIG RESETSTAT x"):
        sub = line.split()[1]
        assert door(line) == wrong(f"Wrong number of arguments for CONFIG {sub}")
    assert door("CONFIG nosuch") == wrong(
        "CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"
    )
    assert door("CONFIG REWRITE") == wrong("The server is running without a config file")


def test_config_switches_the_journal(make_door: Callable[..., Door], tmp_path: Path) -> None:
    door = make_door(dir=str(tmp_path))
    assert door("DEBUG LOADAOF") == wrong("there is no journal to load: appendonly is no")
    kept = door.add("q", "kept", "DELAY", "60")
    assert door("CONFIG SET appendonly yes") == b"+OK\r\n"
    assert door("CONFIG SET appendonly yes") == b"+OK\r\n"  # it is on: nothing to do
    queued = [door.add("q", str(i)) for i in range(3)]
    door("ACKJOB", queued[1])
    assert door("DEBUG LOADAOF") == b"+OK\r\n"  # J6.5: a stop finishes the first snapshot
    fields = door.info("persistence")
    assert (fields["aof_state"], fields["aof_enabled"]) == ("on", "1")
    assert list(fields)[9:12] == ["aof_current_size", "aof_base_size", "aof_pending_rewrite"]
    assert door("DEBUG LOADAOF") == b"+OK\r\n"
    assert sorted(door.value("JSCAN")[1]) == sorted([kept, queued[0], queued[2]])
    assert door.value("QPEEK q 9") == [[b"q", queued[0], b"0"], [b"q", queued[2], b"2"]]
    assert door("BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
    assert door("CONFIG SET appendfsync always") == b"+OK\r\n"
    assert door("CONFIG SET appendonly no") == b"+OK\r\n"
    assert door.s.committer is None and door.n.records is None
    assert door("PING") == b"+PONG\r\n"


def test_a_journal_that_cannot_be_begun(make_door: Callable[..., Door], tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"a file in its place")
    door = make_door(dir=str(tmp_path))
    assert door("CONFIG SET appendonly yes") == wrong("Unable to turn on AOF. Check server logs.")
    assert not door.cfg.appendonly
    assert door("ADDJOB q b 0").startswith(b"+D-")


def test_resetstat(door: Door) -> None:
    door("PING")
    assert int(door.info("stats")["total_commands_processed"]) > 0
    door("CONFIG RESETSTAT")
    assert door.info("stats")["total_commands_processed"] == "1"  # RESETSTAT itself
    assert "cmdstat_ping" not in door.info("commandstats")


def test_cluster_of_one(door: Door) -> None:
    line = NODE_ID + b" :7711 myself 0 0 connected\n"
    assert door.value("CLUSTER NODES") == line
    assert door.value("CLUSTER MYID") == NODE_ID
    assert door.value("CLUSTER INFO").split(b"\r\n")[:4] == [
        b"cluster_state:ok",
        b"cluster_known_nodes:1",
        b"cluster_reachable_nodes:0",
        b"cluster_size:1",
    ]
    assert door("CLUSTER SAVECONFIG") == b"+OK\r\n"
    other = "f" * 40
    assert door("CLUSTER FORGET x") == wrong("Invalid node identifier")
    assert door(f"CLUSTER FORGET {other}") == wrong(f"Unknown node {other}")
    assert door("CLUSTER FORGET", NODE_ID) == wrong("I tried hard but I can't forget myself...")
    said = "Wrong CLUSTER subcommand or number of arguments: use CLUSTER "
    assert door("CLUSTER NODES x") == wrong(said + "NODES")
    assert door("CLUSTER MEET 1.2.3.4") == wrong(said + "MEET host port [bus-port]")
    assert door("CLUSTER nosuch").decode().startswith(f"-ERR {said}NODES, ")


def test_meet_without_a_bus(door: Door) -> None:
    assert door("CLUSTER MEET 1.2.3.4 x") == wrong("Invalid TCP port specified: x")
    assert door("CLUSTER MEET 1.2.3.4 7711 x") == wrong("Invalid TCP port specified: x")
    for address in ("n\xf6 7711", "1.2.3.4 0", "1.2.3.4 55536", f"{256 * 'h'} 7711"):
        ip, port = address.split()
        assert door(f"CLUSTER MEET {address}") == wrong(
            f"Invalid node address specified: {ip}:{port}"
        )
    assert door("CLUSTER MEET ::1 7711") == wrong("this node stays alone: cluster-enabled is no")


def test_leaving(door: Door) -> None:
    waiting = door.connect()
    assert door("GETJOB FROM q", by=waiting) == b""
    assert door("CLUSTER LEAVING") == b"+no\r\n"
    assert door("CLUSTER LEAVING yes") == b"+OK\r\n"
    assert taken(waiting).startswith(b"-LEAVING This node is leaving the cluster")
    assert door("CLUSTER LEAVING") == b"+yes\r\n"
    assert b" myself,leaving " in door("CLUSTER NODES")
    assert door("CLUSTER LEAVING maybe") == wrong(
        "Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    )
    assert door("CLUSTER LEAVING no") == b"+OK\r\n"


def test_reset_of_the_cluster(door: Door) -> None:
    waiting = door.connect()
    door("GETJOB FROM other", by=waiting)
    door.add()
    assert door("CLUSTER RESET nosuch").startswith(b"-ERR syntax error at 'NOSUCH': use CLUSTER RE")
    assert door("QLEN q") == b":1\r\n"
    assert door("CLUSTER RESET") == b"+OK\r\n"
    assert taken(waiting) == b"*-1\r\n"
    assert door("QLEN q") == b":0\r\n"
    assert door.n.node_id == NODE_ID
    door("CLUSTER LEAVING yes")
    assert door("CLUSTER RESET HARD") == b"+OK\r\n"
    new_id = door.value("CLUSTER MYID")
    assert new_id != NODE_ID and len(new_id) == 40
    assert door("CLUSTER LEAVING") == b"+no\r\n"
    assert door.add()[2:10] == new_id[:8]


def test_flushall(door: Door) -> None:
    waiting = door.connect()
    door("GETJOB FROM other", by=waiting)
    door.add()
    door("PAUSE r in")
    assert door("DEBUG FLUSHALL") == b"+OK\r\n"
    assert taken(waiting) == b"*-1\r\n"
    assert door.info("jobs")["registered_jobs"] == "0"
    assert door.info("queues")["registered_queues"] == "0"
    ledger = door.info("ledger")
    assert (ledger["admin_deleted"], ledger["balance"]) == ("1", "0")


def test_debug(door: Door) -> None:
    assert door("DEBUG ERROR", "MY own\nerror") == b"-MY own error\r\n"
    started = time.monotonic()
    assert door("DEBUG SLEEP 0.01") == b"+OK\r\n"
    assert time.monotonic() - started >= 0.01
    for bad in ("x", "-1", "nan", "inf", "1e9"):
        assert door(f"DEBUG SLEEP {bad}") == wrong("value is not a valid float")
    assert door.value("DEBUG STRUCTSIZE").startswith(b"bits:64 job:")
    assert door("DEBUG CHECK") == b"+OK\r\n"
    door.n.job_bytes += 1
    assert door("DEBUG CHECK") == wrong("the tables disagree: bytes of jobs")
    for word in ("SEGFAULT", "ASSERT", "OOM", "CRASH-AND-RECOVER"):
        assert b"is refused" in door(f"DEBUG {word}")
    assert door("DEBUG nosuch") == wrong(
        "Unknown DEBUG subcommand or wrong number of arguments for 'nosuch'"
    )
    assert door("DEBUG LOADAOF") == wrong("there is no journal to load: appendonly is no")


def test_who_may_debug(make_door: Callable[..., Door]) -> None:
    local = make_door()
    far = local.connect("192.0.2.7:999")
    assert local("DEBUG CHECK", by=far).startswith(b"-DENIED DEBUG is not allowed from here")
    assert local("DEBUG CHECK", by=local.connect("[::1]:9")).startswith(b"-DENIED")
    assert local("DEBUG CHECK", by=local.connect("::1:9")) == b"+OK\r\n"
    assert make_door(enable_debug_command="no")("DEBUG CHECK").startswith(b"-DENIED")
    everybody = make_door(enable_debug_command="yes")
    assert everybody("DEBUG CHECK", by=everybody.connect("192.0.2.7:9")) == b"+OK\r\n"


@pytest.mark.parametrize("line", ["SHUTDOWN", "SHUTDOWN REWRITE-AOF"])
def test_shutdown(make_door: Callable[..., Door], tmp_path: Path, line: str) -> None:
    door = make_door(dir=str(tmp_path))
    assert door("SHUTDOWN x").startswith(b"-ERR syntax error at 'x': use SHUTDOWN [REWRITE")
    assert door("SHUTDOWN SAVE x").startswith(b"-ERR syntax error at 'x': use SHUTDOWN")
    assert door.s.stop_requested == ""
    assert door(line) == b""
    assert door.s.stop_requested == "shutdown"
    assert any(tmp_path.rglob("*.snap")) == ("REWRITE" in line)


def test_a_planned_restart_that_cannot_save_is_refused(
    make_door: Callable[..., Door], tmp_path: Path
) -> None:
    door = make_door(dir=str(tmp_path))
    id = door.add()
    (tmp_path / door.cfg.appenddirname).write_text("a file where the directory should be")
    assert door("SHUTDOWN REWRITE-AOF") == wrong("Errors trying to SHUTDOWN. Check logs.")
    assert door.s.stop_requested == ""
    assert door("ACKJOB", id) == b":1\r\n"
    assert door("SHUTDOWN") == b""


def test_restart(door: Door) -> None:
    assert door("DEBUG RESTART x") == wrong("value is not an integer or out of range")
    assert door("DEBUG RESTART 50") == b""
    assert (door.s.stop_requested, door.s.restart_after_ms) == ("restart", 50)


def test_what_only_disque_has(door: Door) -> None:
    assert door("LOADJOB x") == wrong("LOADJOB is a special command only processed from AOF")
    assert door("BGREWRITEAOF").startswith(b"-ERR there is no journal to rewrite")


def test_time(door: Door) -> None:
    seconds, micros = door.value("TIME")
    assert abs(int(seconds) - time.time()) < 5
    assert 0 <= int(micros) < 1_000_000


def test_slowlog(door: Door) -> None:
    assert door("SLOWLOG LEN") == b":0\r\n"
    door("CONFIG SET slowlog-max-len 3")
    door("CONFIG SET slowlog-log-slower-than 0")
    door("SLOWLOG RESET")
    door("AUTH secret")
    door("PING", b"x" * 130)
    door("DELJOB " + "a " * 40)
    entries = door.value("SLOWLOG GET")
    assert len(entries) == 3
    assert [entry[0] for entry in entries] == [entries[0][0] - i for i in range(3)]
    assert abs(entries[0][1] - time.time()) < 5
    assert len(entries[0][3]) == 32
    assert entries[0][3][31] == b"... (10 more arguments)"
    assert entries[1][3] == [b"PING", b"x" * 128 + b"... (2 more bytes)"]
    assert entries[2][3] == [b"AUTH", b"(redacted)"]
    assert len(door.value("SLOWLOG GET 1")) == 1
    assert len(door.value("SLOWLOG GET -1")) == 3
    assert door("SLOWLOG GET x") == wrong("value is not an integer or out of range")
    assert door("SLOWLOG nosuch") == wrong(
        "Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
    )
    door("CONFIG SET slowlog-log-slower-than -1")
    door("SLOWLOG RESET")
    assert door("SLOWLOG LEN") == b":0\r\n"


def test_latency(door: Door) -> None:
    assert b"Latency monitoring is off" in door.value("LATENCY DOCTOR")
    note_latency(door.s, "command", 10**10)
    assert door("LATENCY LATEST") == b"*0\r\n"
    door("CONFIG SET latency-monitor-threshold 5000")  # above what a busy machine adds
    assert b"All is well" in door.value("LATENCY DOCTOR")
    note_latency(door.s, "command", 4_999_999_999)
    assert door("LATENCY LATEST") == b"*0\r\n"
    note_latency(door.s, "command", 7_000_000_000)
    [[event, at, last, worst]] = door.value("LATENCY LATEST")
    assert (event, last, worst) == (b"command", 7000, 7000)
    assert door.value("LATENCY HISTORY command") == [[at, 7000]]
    assert door("LATENCY HISTORY nosuch") == b"*0\r\n"
    assert b"high 7000 ms, low 7000 ms" in door.value("LATENCY GRAPH command")
    assert door("LATENCY GRAPH nosuch") == wrong("No samples available for event 'nosuch'")
    assert b"worst 7000 ms" in door.value("LATENCY DOCTOR")
    assert door("LATENCY nosuch").startswith(b"-ERR syntax error at 'nosuch': use LATENCY LATEST")
    assert door("LATENCY RESET nosuch") == b":0\r\n"
    assert door("LATENCY RESET") == b":1\r\n"


def test_latency_keeps_the_worst_of_each_second(door: Door) -> None:
    latency = door.s.latency
    for at_s in range(LATENCY_SAMPLES + 10):
        latency.note("fork", at_s, 5)
        latency.note("fork", at_s, 9)
        latency.note("fork", at_s, 7)
    history = door.value("LATENCY HISTORY fork")
    assert len(history) == LATENCY_SAMPLES
    assert history[0] == [10, 9]


def test_info(door: Door, tmp_path: Path) -> None:
    titles = [line for line in door.value("INFO").decode().split("\r\n") if line.startswith("#")]
    assert titles == [
        f"# {name}"
        for name in (
            *"Server Clients Memory Jobs Queues Persistence Stats CPU Ledger Events".split(),
            *"Leases Staging Topics Tubes Users Tenants Cluster Bus".split(),
        )
    ]
    assert door.value("INFO nosuch") == b""
    assert door("INFO a b") == b"-ERR syntax error at 'b': use INFO [section]\r\n"
    assert b"# Commandstats\r\ncmdstat_info:calls=" in door.value("INFO all")
    text = door.value("INFO jobs")
    assert text.startswith(b"# Jobs\r\nregistered_jobs:0\r\n") and text.endswith(b"\r\n")
    assert list(door.info("server"))[:3] == [
        "disque_version",
        "disque_git_sha1",
        "disque_git_dirty",
    ]
    assert door.info("memory")["maxmemory_human"] == "1.00G"
    assert door.info("persistence")["aof_state"] == "off"
    door.s.is_loading = True
    fields = door.info("persistence")
    assert (fields["loading"], fields["loading_loaded_perc"]) == ("1", "0.00")
    assert door("QLEN q").startswith(b"-LOADING")
    assert door("COMMAND COUNT").startswith(b":")
