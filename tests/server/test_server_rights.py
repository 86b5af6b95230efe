"""The table of rights against the command table, and a walk over all of it as a user (SPEC N2)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from raw_resp import encode
from tuque.wire.commands.commands import BY_ROW, CATEGORIES, UNITS, Unit, table, unit_of
from tuque.wire.commands.rows import BOUNDS, COMMAND_ROWS, CONTAINERS
from tuque.wire.commands.tube_table import PROCEDURES
from world import World

OWN = b"orders.a"
OTHERS = b"payments"
QUEUES = {"queue", "tube", "to"}
NAMED_ONLY = {"QLIST", "TUBE UNSUBSCRIBE"}  # their names need no right
OPTIONS = {"HISTORY": b"QUEUE", "TOPIC LIST": b"TOPIC", "TOPIC ADD": b"DEAD"}  # names of their own
OPTIONS["UPDATEJOB"] = b"HEADERS"  # N2.9
ENDS = {"QUIT", "RESET", "AUTH", "HELLO"}  # what the walk leaves to tests of sessions


def syntaxes() -> list[tuple[str, str]]:
    """Each unit's row with its syntax; of a command with subcommands each one's."""
    found = []
    for name, syntax in [(row.name, row.syntax) for row in COMMAND_ROWS]:
        parts = syntax.split(" | ") if name in CONTAINERS else [syntax]
        for part in parts:
            row = f"{name} {part.split(' ')[0]}" if name in CONTAINERS else name
            found.append((row, part))
    return found


@pytest.mark.parametrize(("row", "syntax"), syntaxes())
def test_each_command_has_a_category(row: str, syntax: str) -> None:
    """N2.1"""
    unit = unit_of(row.split(" ")[0], [word.encode() for word in row.split(" ")])
    assert unit.row == row or row.startswith("DEBUG "), (
        f"wire/commands/rows.py has no row for {row}"
    )
    assert unit.categories
    assert set(unit.categories) <= set(CATEGORIES)


@pytest.mark.parametrize(("row", "syntax"), syntaxes())
def test_each_queue_of_the_syntax_has_a_place(row: str, syntax: str) -> None:
    """A new argument or option that names a queue, a job, a group or a transaction needs one."""
    unit = unit_of(row.split(" ")[0], [word.encode() for word in row.split(" ")])
    words = re.findall(r"[a-z-]+", re.sub(r"\[queue \.\.\.\]|\[tube \.\.\.\]|all\|id", "", syntax))
    named = [word for word in words if word in QUEUES]
    places = len(unit.queue_at) + (unit.queues_from > 0)
    places += (len(unit.queues_after) > 0) + (len(unit.option) > 0)
    if row in NAMED_ONLY:
        assert unit.names_after or unit.names_from
        assert unit.is_shown or unit.is_open  # names what is shown anyway
    elif row in OPTIONS:
        assert unit.option == OPTIONS[row]
    else:
        assert places == len(named), (row, unit.places, named)
    is_task = row.startswith(("TUBE ", "CLUSTER "))
    assert (unit.jobs_from > 0) == ("id" in words and not is_task and unit.group_at == 0)
    is_of_jobs = row.startswith("GROUP ")  # such a group is the tube's, which the command names
    assert (unit.group_at > 0) == ("group" in words and row != "PUBLISH" and not is_of_jobs)
    assert (unit.stage_at > 0) == (row == "PUBLISH")


def test_each_bound_and_each_procedure_has_a_category() -> None:
    for name in BOUNDS:
        if name.split(" ")[0] in CONTAINERS:
            assert name in BY_ROW or name.startswith("DEBUG "), name
    for one in PROCEDURES:
        assert f"TUBE {one.name.upper()}" in BY_ROW


def test_no_row_is_left_over() -> None:
    known = {row for row, _ in syntaxes()} | set(CONTAINERS) | {row.name for row in COMMAND_ROWS}
    known |= {f"TUBE {one.name.upper()}" for one in PROCEDURES}
    for unit in UNITS:
        word = unit.row.partition(" ")[2]
        assert unit.row in known or word in ("HELP", "UNPAUSE", "NO-TOUCH"), unit.row


def test_an_unknown_subcommand_is_closed() -> None:
    """Only who may do everything may try a word that the table does not know."""
    for name in CONTAINERS:
        assert unit_of(name, [name.encode(), b"NONSENSE"]).categories == ["dangerous"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World(enable_debug_command="yes")
    root = made.wire()
    for line in (
        "ACL SETUSER alice on nopass +@produce ~orders.*",
        "ACL SETUSER bob on nopass +@all ~orders.*",
        "TUBE CREATE orders.t fifo",
        "TUBE CREATE payments.t fifo",
        "LEASE OPEN mine me orders.a",
        "LEASE OPEN theirs me payments",
        "WORKER HERE mine QUEUES orders.a",
        "WORKER HERE theirs QUEUES payments",
        "STAGE orders.mine a 60000 orders.a x",
        "STAGE theirs a 60000 payments x",
    ):
        assert not root.say(encode(*line.split(" "))).startswith(b"-"), line
    yield made
    made.check()


def words_for(unit: Unit, queue: bytes, world: World) -> list[bytes]:
    """A command of that unit which names that queue, everywhere it can."""
    own = queue == OWN
    words = unit.row.encode().split(b" ")
    arity = abs(table()[words[0]].arity)
    places = [*unit.queue_at, unit.queues_from, unit.jobs_from, unit.group_at, unit.stage_at]
    places += [unit.worker_at, unit.own_at]
    words += [b"1"] * (max(arity, max(places) + 1) - len(words))
    for at in unit.queue_at:
        words[at] = queue
    if unit.queues_from:
        words[unit.queues_from] = queue
    if unit.queues_after:
        words += [b"w", unit.queues_after, queue] if unit.row == "WORKER HERE" else []
        words = words if unit.row == "WORKER HERE" else [*words[:1], unit.queues_after, queue]
    if unit.options_from:
        words += [b"1"] * (unit.options_from - len(words))
        words[unit.options_from :] = [unit.option, queue]
    if unit.worker_at:
        words[unit.worker_at] = b"mine" if own else b"theirs"
    if unit.group_at:
        words[unit.group_at] = b"mine" if own else b"theirs"
    if unit.own_at:
        words[unit.own_at] = b"orders.app" if own else b"theirs"
    if unit.stage_at:
        words[unit.stage_at] = b"orders.mine" if own else b"theirs"
    if unit.jobs_from:
        wire = world.wire()
        id = wire.say(encode("ADDJOB", queue, "x", 0))[1:-2]
        words[unit.jobs_from] = id
        wire.close()
    return words


IN_RESP = [unit for unit in UNITS if unit.row not in ("TUBE GRANT_ROLE", "TUBE ON_TASK_CHANGE")]


@pytest.mark.parametrize("unit", IN_RESP, ids=[unit.name for unit in IN_RESP])
def test_a_producer_may_exactly_produce(world: World, unit: Unit) -> None:
    """N2.2, N2.3: `+@produce ~orders.*` on the RESP door, command by command."""
    wire = world.user("alice")
    if unit.row in ENDS:
        return
    said = wire.say(encode(*words_for(unit, OWN, world)))
    may = unit.is_open or "produce" in unit.categories
    assert said.startswith(b"-NOPERM") != may, said
    if may and unit.places not in ("", "shown") and unit.row not in NAMED_ONLY:
        denied = world.user("alice").say(encode(*words_for(unit, OTHERS, world)))
        assert denied.startswith(b"-NOPERM user 'alice' has no right to "), denied
    wire.close()


@pytest.mark.parametrize("unit", IN_RESP, ids=[unit.name for unit in IN_RESP])
def test_a_pattern_closes_every_command(world: World, unit: Unit) -> None:
    """N2.3, N2.4: who may use everything still sees the queues of its patterns only."""
    if unit.places in ("", "shown") or unit.row in NAMED_ONLY:
        return
    wire = world.user("bob")
    said = wire.say(encode(*words_for(unit, OTHERS, world)))
    assert said.startswith(b"-NOPERM user 'bob' has no right to "), said
    wire.close()


ADDS = [
    "ADDJOB orders.a body 0",
    "ADDJOB orders.a body 0 DELAY 5 DEAD orders.b",
    "UPDATEJOB %s BODY x",
    "SCHEDULE ADD orders.t s EVERY 60",
    "TOPIC ADD orders.topic body 0",
    "GROUP CREATE orders.t 1 BODY body",
]


@pytest.mark.parametrize("line", ADDS)
def test_the_header_with_queues(world: World, line: str) -> None:
    """N2.9 a command with this header names them."""
    bob = world.user("bob")
    id = bob.say(encode("ADDJOB", "orders.a", "body", 0, "ATTEMPTS", 3)).split(b"\r\n")[0][1:]
    words = line.replace("%s", id.decode()).split(" ")
    for value, is_denied in (
        ("orders.x orders.y", False),
        ("orders.x payments", True),
        ("a", True),
    ):
        said = bob.say(encode(*words, "HEADERS", 2, "h", "v", "tuque-queues", value))
        assert said.startswith(b"-NOPERM user 'bob' has no right to the queue") == is_denied, said


@pytest.mark.parametrize(
    "options", [("HEADERS", 1, "tuque-queues", "payments"), ("DEAD", "payments")]
)
@pytest.mark.parametrize("is_task", [False, True])
def test_a_job_that_goes_on_elsewhere_is_not_changed(
    world: World, options: tuple[str, ...], is_task: bool
) -> None:
    """N2.9 UPDATEJOB also names those of its job's header, and the queue of the job's dead
    letter.
    """
    if is_task:
        assert (
            world.wire().say(encode("TUBE", "CREATE", "orders.b", "tasks", "IFNOTEXISTS"))
            == b"+OK\r\n"
        )
    queue = "orders.b" if is_task else "orders.a"
    said = world.wire().say(encode("ADDJOB", queue, "body", 0, "ATTEMPTS", 3, *options))
    assert said.startswith((b"$", b"+D-")), said
    id = said.split(b"\r\n")[0][1:] if said.startswith(b"+") else said.split(b"\r\n")[1]
    for words in (("BODY", "x"), ("PRI", 1), ("HEADERS", 0)):
        denied = world.user("bob").say(encode("UPDATEJOB", id, *words))
        assert denied.startswith(b"-NOPERM user 'bob' has no right to the queue of '"), denied
    assert world.wire().say(encode("UPDATEJOB", id, "BODY", "x")).startswith(b"+OK")
