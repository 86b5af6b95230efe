"""SPEC R: ADDJOB on a node that is alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.engine.clock import START_MS
from world import World

MOST = (1 << 31) - 1
SECONDS = "a number of seconds from 0 to 2147483647"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["REPLICATE", "0"], "REPLICATE must be a number from 1 to 65535, not '0'"),
        (["REPLICATE", "65536"], "REPLICATE must be a number from 1 to 65535, not '65536'"),
        (["REPLICATE", ""], "REPLICATE must be a number from 1 to 65535, not ''"),
        (["TTL", "-1"], f"TTL must be {SECONDS}, not '-1'"),
        (["TTL", "2147483647.001"], f"TTL must be {SECONDS}, not '2147483647.001'"),
        (["TTL", "1.x"], f"TTL must be {SECONDS}, not '1.x'"),
        (["TTL", "x"], f"TTL must be {SECONDS}, not 'x'"),
        (["TTL", str(MOST + 1)], f"TTL must be {SECONDS}, not '2147483648'"),
        (["RETRY", "-1"], f"RETRY must be {SECONDS}, not '-1'"),
        (["RETRY", "1.5"], f"RETRY must be {SECONDS}, not '1.5'"),
        (["RETRY", str(1 << 32)], f"RETRY must be {SECONDS}, not '4294967296'"),
        (["RETRY", "9" * 99], f"RETRY must be {SECONDS}, not '{'9' * 64}'"),
        (["DELAY", "-1"], f"DELAY must be {SECONDS}, not '-1'"),
        (["DELAY", str(1 << 40)], f"DELAY must be {SECONDS}, not '1099511627776'"),
        (["MAXLEN", "0"], "MAXLEN must be a number from 1 up, not '0'"),
        (["PRI", "x"], "PRI must be a number from 0 to 4503599627370496, not 'x'"),
        (["TTL"], "syntax error: TTL needs a value"),
        (["NOW"], "syntax error: ADDJOB has no option 'NOW'"),
        (["when", "x"], "syntax error: ADDJOB has no option 'when'"),
        (["keep"], "syntax error: KEEP needs a value"),
        (["ASYNC", "1"], "syntax error: ADDJOB has no option '1'"),
        (["TTL", "-1", "RETRY", "-1"], f"TTL must be {SECONDS}, not '-1'"),
        (["RETRY", "-1", "TTL", "-1"], f"RETRY must be {SECONDS}, not '-1'"),
    ],
)
def test_option_errors(world: World, words: list[str], error: str) -> None:
    """R1.1 Options are read from left to right; the first invalid one decides the error; of one
    that is there twice the last counts. An unknown word: `-ERR syntax error: ADDJOB has no option
    '<word>'`. A last word that needs a value: `-ERR syntax error: <option> needs a value`.

    R1.11 An option of ADDJOB, STAGE, UPDATEJOB, NACK, FAIL or RELEASE out of its range:
    `-ERR <option> must be <range>, not '<value>'`, with the first 64 bytes of the value.
    """
    assert world.run("ADDJOB", "q", "b", "0", *words) == f"ERR {error}"
    assert not world.n.jobs


@pytest.mark.parametrize(
    ("ttl", "retry"), [(None, 300), (86400, 300), (1000, 100), (19, 1), (5, 1), (1, 1)]
)
def test_default_retry(world: World, ttl: int | None, retry: int) -> None:
    """| RETRY | 0..2^31-1 s | TTL/10, at most `default-retry-max` (300), at least 1 |"""
    options = {} if ttl is None else {"TTL": ttl}
    shown = world.show(world.add(**options))
    assert shown["retry"] == retry
    assert shown["ttl"] == (ttl or 86400)
    assert (shown["repl"], shown["delay"]) == (1, 0)


def test_configured_defaults(make_world: Callable[..., World]) -> None:
    """| TTL | 0..2^31-1 s, decimals (W1.6); 0: never expires (W1.5) | `default-ttl` (86400) |"""
    world = make_world(events=True, default_ttl="600", default_retry_max="7")
    shown = world.show(world.add())
    assert (shown["ttl"], shown["retry"]) == (600, 7)


def test_last_option_wins(world: World) -> None:
    """C4.1 Command and option names are case-insensitive. If an option is repeated, the last one
    wins.
    """
    job_id = world.run("addJob", "q", "b", "0", "ttl", "5", "Retry", "9", "TTL", "77")
    assert world.show(job_id)["ttl"] == 77


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        ("", "ERR timeout is not an integer or out of range"),
        ("x", "ERR timeout is not an integer or out of range"),
        (" 1", "ERR timeout is not an integer or out of range"),
        (str(1 << 64), "ERR timeout is not an integer or out of range"),
        ("-1", "ERR timeout is negative"),
    ],
)
def test_timeout_errors(world: World, timeout: str, error: str) -> None:
    """R1.2 Timeout not an integer: `-ERR timeout is not an integer or out of range`; below 0:
    `-ERR timeout is negative`. 0 means no limit.
    """
    assert world.run("ADDJOB", "q", "b", timeout) == error
    ttl = f"ERR TTL must be {SECONDS}, not '-1'"
    assert world.run("ADDJOB", "q", "b", timeout, "TTL", "-1") == ttl
    assert not world.n.jobs


def test_at_most_once_has_one_copy(world: World) -> None:
    """R1.3 REPLICATE above 1, asked for or by default, with RETRY 0: `-ERR With RETRY set to 0
    please explicitly set  REPLICATE to 1 (at-most-once delivery)` (two spaces after "set").
    """
    reply = world.run("ADDJOB", "q", "b", "0", "RETRY", "0", "REPLICATE", "2")
    assert reply == (
        "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
    )
    assert world.add(RETRY=0)
    assert world.add(RETRY=0, REPLICATE=1)


@pytest.mark.parametrize("delay", [10, 11, MOST])
def test_delay_beyond_ttl(world: World, delay: int) -> None:
    """R1.4 DELAY not less than TTL: `-ERR The specified DELAY is greater than TTL. Job refused
    since would never be delivered`.
    """
    reply = world.run("ADDJOB", "q", "b", "0", "TTL", "10", "DELAY", delay)
    assert reply == (
        "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
    )
    assert world.add(TTL=10, DELAY=9)


def test_delay_of_a_job_that_never_expires(world: World) -> None:
    """R1.4 If the job never expires (W1.5): `-ERR DELAY must be below 2147483647 seconds, the
    longest TTL`.
    """
    refused = "ERR DELAY must be below 2147483647 seconds, the longest TTL"
    assert world.run("ADDJOB", "q", "b", "0", "TTL", "0", "DELAY", MOST) == refused
    job_id = world.add(TTL=0, DELAY=MOST - 1)
    assert world.run("UPDATEJOB", job_id, "TTL", 0, "DELAY", MOST) == refused


NOREPL = "NOREPL Not enough reachable nodes for the requested replication level"
SINCE = ", since I'm unable to hold a copy of the message for the following reason: "


def test_not_enough_nodes(world: World) -> None:
    """R1.5 If fewer are expected (K4.4): `-NOREPL Not enough reachable nodes for the requested
    replication level`.
    """
    assert world.run("ADDJOB", "q", "b", "0", "REPLICATE", "2") == NOREPL
    assert world.run("ADDJOB", "q", "b", "0", "REPLICATE", "3", "ASYNC") == NOREPL


def test_no_own_copy_while_leaving(world: World) -> None:
    """R1.5 This node takes no copy itself while it leaves the cluster or memory is at level 1 or
    above (M2): external replication (R6).
    """
    world.n.is_leaving = True
    assert world.run("ADDJOB", "q", "b", "0") == NOREPL + SINCE + "I'm leaving the cluster"
    assert world.run("ADDJOB", "q", "b", "0", "REPLICATE", "2") == NOREPL


def test_no_own_copy_when_memory_is_short(world: World) -> None:
    """R1.5 If only the missing own copy is the reason, this follows: `, since I'm unable to hold a
    copy of the message for the following reason: ` and `I'm leaving the cluster` or `I'm out of
    memory`.

    If memory is the reason and the node knows no other one: `-OOM used memory is above 75 % of
    'maxmemory': let jobs end, or raise maxmemory`
    """
    world.add()
    world.n.limits.memory_bytes = world.n.counted_bytes() * 5 // 4
    full = "OOM used memory is above 75 % of 'maxmemory'"
    said = world.run("ADDJOB", "q", "b", "0")
    assert said == f"{full}: let jobs end, or raise maxmemory"
    world.n.others = 2  # it knows one, which cannot be reached
    assert world.run("ADDJOB", "q", "b", "0") == NOREPL + SINCE + "I'm out of memory"
    world.n.others = 0


def test_maxlen(world: World) -> None:
    """R1.6 MAXLEN is given and the local queue has at least that many jobs: `-MAXLEN Queue is
    already longer than the specified MAXLEN count`.
    """
    world.add(MAXLEN=1)
    reply = world.run("ADDJOB", "q", "b", "0", "MAXLEN", "1")
    assert reply == "MAXLEN Queue is already longer than the specified MAXLEN count"
    assert world.qlen() == 1
    world.get()
    world.add(MAXLEN=1)


def test_paused_in(world: World) -> None:
    """R1.7 The input of the local queue is paused: `-PAUSED Queue paused in input, try later`."""
    world.run("PAUSE", "q", "in")
    assert world.run("ADDJOB", "q", "b", "0") == "PAUSED Queue paused in input, try later"
    assert not world.n.jobs


def test_added_job(world: World) -> None:
    """R1.8 The job gets a new id (G6), expires at now + TTL, has this node as holder, and is
    registered with cause created (G5).
    """
    job = world.job(world.add(TTL=100))
    assert job.expire_ms == START_MS + 100_000
    assert job.holders == 1
    assert world.n.ledger.created == 1


@pytest.mark.parametrize("options", [{}, {"ASYNC": True}, {"REPLICATE": 1}])
def test_queued_at_once(world: World, options: dict[str, int]) -> None:
    """R1.9 With REPLICATE 1 or ASYNC the job is active at once. With a DELAY its due time is now +
    DELAY; otherwise it is enqueued (G3). The reply is the id as a status.
    """
    job_id = world.add(**options)
    assert world.state(job_id) == "queued"


def test_delayed(world: World) -> None:
    """R1.9 With a DELAY its due time is now + DELAY;"""
    job_id = world.add(DELAY=60, RETRY=5)
    assert world.state(job_id) == "active"
    assert world.show(job_id)["next-requeue-within"] == 60_000
    world.pass_ms(59_990)
    assert world.get() == []
    world.pass_ms(60)
    assert world.get() == [job_id]


def test_bounds_of_maxlen(world: World) -> None:
    """R1.11 `a number from 1 up` of MAXLEN"""
    for good in (1, 1 << 31, (1 << 63) - 1):
        assert world.run("ADDJOB", f"q{good}", "b", "0", "MAXLEN", good).startswith(b"D-")
    for bad in (0, 1 << 63):
        told = world.run("ADDJOB", "q", "b", "0", "MAXLEN", bad)
        assert told == f"ERR MAXLEN must be a number from 1 up, not '{bad}'"


@pytest.mark.parametrize(
    ("queue", "body"), [("", ""), ("\x00\r\n", "\xff\x00"), ("q" * 65_536, "x" * 9999)]
)
def test_any_bytes(world: World, queue: str, body: str) -> None:
    """C4.4 Queue names and bodies are any bytes, and may be empty. A name has up to 65,536 bytes
    (L2.9).
    """
    name, data = queue.encode("latin-1"), body.encode("latin-1")
    job_id = world.run("ADDJOB", name, data, "0")
    assert world.run("GETJOB", "FROM", name) == [[name, job_id, data]]
