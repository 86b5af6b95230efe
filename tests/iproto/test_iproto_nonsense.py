"""Calls that make no sense, thousands of them: an answer to each, and the node's tables agree."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from both_ways import thorough
from own_log import own_records
from world import World
from world_wires import IprotoWire

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


@settings(max_examples=thorough(150), suppress_health_check=list(HealthCheck))
@given(type=st.sampled_from(TYPES), calls=CALLS)
def test_any_call_is_answered(
    caplog: pytest.LogCaptureFixture, type: str, calls: list[Any]
) -> None:
    """I6, T13.2: nothing is a bug, and after every call all tables agree."""
    world = World()
    try:
        with caplog.at_level(logging.ERROR, "tuque"):
            run(world, type, calls)
        assert not [r for r in own_records(caplog) if r.levelno >= logging.ERROR]
    finally:
        world.close()


def run(world: World, type: str, calls: list[Any]) -> None:
    """Say all of it on two connections, time going by."""
    conns = [world.iproto(), world.iproto()]
    conns[0].call("queue.create_tube", "t", type, {"ttr": 0.2, "ttl": 2, "capacity": 3})
    for who, name, args, pause_ms in calls:
        conn = conns[who]
        conn.ask_call(name, *args)
        world.pass_ms(pause_ms)
        world.check()
    for conn in conns:
        assert answered(conn)
        conn.close()
    world.pass_ms(1)
    world.check()
    assert not world.server.takes and not world.server.wired


def answered(conn: IprotoWire) -> bool:
    """Whether the connection still answers."""
    return conn.hear(conn.ask(64)).code == 0
