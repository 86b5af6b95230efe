"""Calls that make no sense, thousands of them: an answer to each, and the node's tables agree."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from both_ways import thorough
from iproto_raw import Conn, IprotoBox
from own_log import own_lines

TYPES = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]
METHODS = (
    "put take ack release touch peek bury kick delete truncate release_all drop tasks_by_state "
    "on_task_change grant grant_role nothing"
).split()
FUNCTIONS = "create_tube cfg identify statistics stats state tube register_driver driver".split()
WORDS = ["a", "fifo", "utubettl", "r", "!", "x" * 16, "guest", ""]
OPTIONS = (
    "ttl ttr delay pri utube timeout temporary if_not_exists capacity engine storage_mode "
    "on_task_change in_replicaset call truncate prefix what"
).split()

SMALL = st.none() | st.booleans() | st.integers(-2, 4) | st.sampled_from(WORDS)
ODD = (
    st.floats()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.binary(max_size=20)
    | st.lists(SMALL, max_size=3)
)
MAPS = st.dictionaries(st.sampled_from(OPTIONS), SMALL | ODD, max_size=4)
ARGS = st.lists(SMALL | ODD | MAPS, max_size=4)
NAMES = st.builds(
    "queue.tube.{}:{}".format, st.sampled_from(["t", "u", "a"]), st.sampled_from(METHODS)
) | st.builds("queue.{}".format, st.sampled_from(FUNCTIONS))
CALLS = st.lists(st.tuples(st.integers(0, 1), NAMES, ARGS, st.integers(0, 500)), max_size=40)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the sockets of all examples."""
    return tmp_path_factory.mktemp("nonsense")


@settings(max_examples=thorough(150), suppress_health_check=list(HealthCheck))
@given(type=st.sampled_from(TYPES), calls=CALLS)
def test_any_call_is_answered(
    place: Path, caplog: pytest.LogCaptureFixture, type: str, calls: list[Any]
) -> None:
    """I6, T13.2: nothing is a bug, and after every call all tables agree."""
    for old in place.iterdir():
        old.unlink()
    box = IprotoBox(place)
    try:
        with caplog.at_level(logging.ERROR, "tuque"):
            run(box, type, calls)
        assert not own_lines(caplog)
    finally:
        box.close()


def run(box: IprotoBox, type: str, calls: list[Any]) -> None:
    """Say all of it on two connections, time going by."""
    conns = [box.conn(), box.conn()]
    conns[0].call("queue.create_tube", "t", type, {"ttr": 0.2, "ttl": 2, "capacity": 3})
    for who, name, args, pause_ms in calls:
        conn = conns[who]
        conn.ask_call(name, *args)
        box.pass_ms(pause_ms)
        box.check()
    for conn in conns:
        assert answered(conn)
        conn.close()
    box.pass_ms(1)
    box.check()
    assert not box.server.takes and not box.server.wired


def answered(conn: Conn) -> bool:
    """Whether the connection still answers."""
    return conn.hear(conn.ask(64)).code == 0
