"""Each row of the command table says whether it is taken when memory is short, and why (M2.3)."""

from __future__ import annotations

import pytest

from tuque.wire.commands.bound import (
    ELSEWHERE,
    GROWS,
    JOBS,
    LONGER,
    OPERATES,
    OWN,
    STAGED,
    VIEW,
    WORK,
)
from tuque.wire.commands.commands import UNITS
from tuque.wire.commands.rows import COMMAND_ROWS, MEMORY
from world import World

REFUSED = (JOBS, ELSEWHERE, GROWS)
TAKEN = (WORK, STAGED, VIEW, OWN, OPERATES, LONGER)
MAKING = {  # what makes something new or longer
    "PAUSE": ("PAUSE", "new", "in"),
    "LEASE OPEN": ("LEASE", "OPEN", "new", "me", "q"),
    "DEADLETTER": ("DEADLETTER", "ID", "dead", "BODY", "longer"),
}
# these end the connection, or the node
LAST = {"QUIT", "SHUTDOWN", "DEBUG", "CLIENT REPLY", "CLIENT PAUSE", "MONITOR", "TUBE GRANT_ROLE"}
OVER_IPROTO = {"TUBE GRANT_ROLE", "TUBE ON_TASK_CHANGE"}
ROWS_OF_RESP = sorted({unit.row for unit in UNITS} - LAST - OVER_IPROTO)


@pytest.fixture
def full(world: World) -> World:
    """A node above its maxmemory, with a job that somebody has."""
    world.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    world.add(body="x")
    world.n.limits.memory_bytes = 1
    return world


def test_every_row_says_it() -> None:
    """M2.3 The command table has at which level each command is refused, and why it is not"""
    assert set(MEMORY) == {unit.row for unit in UNITS}
    assert set(MEMORY.values()) == {*REFUSED, *TAKEN}
    for name, flags in [(row.name, row.flags) for row in COMMAND_ROWS]:
        assert ("denyoom" in flags) == (MEMORY[name] in REFUSED), name


@pytest.mark.parametrize("row", ROWS_OF_RESP)
def test_at_level_3(full: World, row: str) -> None:
    """M2.3 Level 3, above 100 % after eviction: commands that add are refused (C3.5)."""
    words = [*row.split(), *["1"] * 8]
    said = "ERR wrong number"
    while said.startswith("ERR wrong number") and len(words) > 0:
        said = str(full.run(*words))
        words.pop()
    assert said.startswith("OOM") == (MEMORY[row] in REFUSED), said


@pytest.mark.parametrize("row", MAKING)
def test_what_makes_something_new(full: World, row: str) -> None:
    """M2.3 DEADLETTER, PAUSE and LEASE OPEN if they make a body longer, a queue or a group"""
    assert MEMORY[row] == LONGER
    job = full.get()[0]
    words = [job if word == "ID" else word for word in MAKING[row]]
    assert str(full.run(*words)).startswith("OOM")
    full.n.limits.memory_bytes = 0
    assert not str(full.run(*words)).startswith("OOM")
