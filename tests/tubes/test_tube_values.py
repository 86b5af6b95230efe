"""VALUE: named values of a tube, counters, sets of parts and waits (SPEC T70 to T73)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

from raw_resp import Err
from tuque.tubes.entries.keys import entry_in
from tuque.tubes.entries.value import PartEntry, SetEntry, ValueEntry
from world import World
from world_costs import costs
from world_wires import Wire

DAY_MS = 86_400_000


@pytest.fixture
def tasks(world: World) -> World:
    assert world.run("TUBE", "CREATE", "t", "tasks") == b"OK"
    return world


def value(world: World, *words: str | bytes | int) -> Any:
    """The reply to VALUE with these words."""
    return world.run("VALUE", *words)


def kinds(world: World) -> dict[bytes, bytes]:
    """Names and what they are, by SCAN."""
    return {row[0]: row[1] for row in value(world, "SCAN", "t")[1]}


def check(world: World) -> None:
    """All tables agree."""
    world.settle()
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_a_value_is_set_once_or_often(tasks: World) -> None:
    """T70.2 SET replies 1, or 0 if it changed nothing: with NEW there was a value of that name, or
    the value is FIXED."""
    assert value(tasks, "SET", "t", "a", "1", "NEW") == 1
    assert value(tasks, "SET", "t", "a", "2", "NEW") == 0
    assert value(tasks, "SET", "t", "a", "3") == 1
    assert value(tasks, "GET", "t", "a", "b") == [b"3", None]
    assert value(tasks, "SET", "t", "a", "4", "FIXED", "END") == 1
    assert value(tasks, "SET", "t", "a", "5", "TTL", 1) == 0
    tasks.pass_ms(2_000)
    assert value(tasks, "GET", "t", "a") == [b"4"]
    assert kinds(tasks) == {b"a": b"fixed"}
    assert value(tasks, "DROP", "t", "a", "b") == 1
    assert value(tasks, "SET", "t", "a", "6") == 1
    check(tasks)


def test_a_value_is_no_job(tasks: World) -> None:
    """T70.1 nobody gets it, it is in no length, and it has no event."""
    value(tasks, "SET", "t", "a", "1")
    value(tasks, "TALLY", "t", "s", 0, "p", "SIZE", 2)
    assert tasks.run("GETJOB", "NOHANG", "FROM", "t") is not None
    assert tasks.run("QLEN", "t") == 0
    row = tasks.run("TUBE", "INFO", "t")
    told = dict(zip(row[::2], row[1::2], strict=True))
    assert (told[b"delayed"], told[b"ready"]) == (0, 0)
    assert tasks.info("tubes")["tubes_values"] == "3"
    tasks.run("TUBE", "CREATE", "f", "fifo")
    refused = value(tasks, "SET", "f", "a", "1")
    assert (
        str(refused) == "NOTUBE tube 'f' has no values: they need a tube of type tasks that stays"
    )
    assert str(value(tasks, "GET", "x", "a")) == "NOTUBE Tube 'x' not found"


def test_counters(tasks: World) -> None:
    """T70.3 ADD adds to a value that is a decimal number of 64 bits with a sign, else to 0, and
    replies the sum.
    """
    assert [value(tasks, "ADD", "t", "n", by) for by in (5, -7, 2**63 - 1)] == [5, -2, 2**63 - 3]
    text = "ERR the sum of 'n' would have more than 64 bits with a sign"
    assert str(value(tasks, "ADD", "t", "n", 3)) == text
    value(tasks, "SET", "t", "w", "-12")
    assert value(tasks, "ADD", "t", "w", 2) == -10
    for word in ("1.5", "", "--1", "9" * 19, "\u0663"):
        value(tasks, "SET", "t", "w", word)
        assert "is no number of 64 bits" in str(value(tasks, "ADD", "t", "w", 2)), word
    value(tasks, "SET", "t", "w", "7", "FIXED")
    assert "is FIXED" in str(value(tasks, "ADD", "t", "w", 2))


def test_a_value_ends(tasks: World) -> None:
    """T70.4 The end is a change of the tube: a call that meets a value whose time is over ends it
    first.
    """
    value(tasks, "SET", "t", "a", "1", "TTL", "1.5")
    value(tasks, "SET", "t", "b", "1")
    value(tasks, "SET", "t", "c", "1", "TTL", 0)
    tasks.pass_ms(1_000)
    value(tasks, "SET", "t", "a", "2", "TTL", "1.5")
    tasks.pass_ms(1_400)
    assert value(tasks, "GET", "t", "a") == [b"2"]
    tasks.jump_ms(1_000)
    value(tasks, "SET", "t", "d", "1", "NEW")
    assert value(tasks, "GET", "t", "a") == [None]
    assert kinds(tasks) == {b"b": b"value", b"c": b"value", b"d": b"value"}
    tasks.jump_ms(DAY_MS)
    assert kinds(tasks) == {b"c": b"value"}
    check(tasks)


def test_values_have_a_bound(world: World) -> None:
    """T70.7 What would take more:
    `-OOM the values of tube '<name>' would take more than <n> bytes: drop some, give a shorter TTL,
    or raise values-max-bytes`.
    """
    world.run("TUBE", "CREATE", "t", "tasks")
    world.run("CONFIG", "SET", "values-max-bytes", "10000")
    assert value(world, "SET", "t", "a", "x" * 8_000) == 1
    full = "OOM the values of tube 't' would take more than 10000 bytes"
    assert str(value(world, "SET", "t", "b", "x" * 8_000)).startswith(full)
    assert str(value(world, "SET", "t", "a", "x" * 11_000)).startswith(full)
    assert value(world, "SET", "t", "a", "x" * 7_000) == 1
    assert str(value(world, "TALLY", "t", "s", 0, "x" * 2_000, "SIZE", 2)).startswith(full)
    assert kinds(world) == {b"a": b"value"}
    assert value(world, "DROP", "t", "a") == 1
    assert value(world, "SET", "t", "b", "x" * 8_000) == 1
    check(world)


def test_what_other_commands_do_to_a_value(tasks: World) -> None:
    """T70.8 SHOW of its id has the name in `value`."""
    value(tasks, "SET", "t", "a", "1")
    (id,) = tasks.n.jobs
    assert tasks.show(id)["value"] == b"a"
    assert str(tasks.run("TUBE", "BURY", "t", 0)) == (
        "WRONGTUBE task 0 is a named value: use VALUE DROP"
    )
    assert "named value" in str(tasks.run("CANCEL", id))
    assert "named value" in str(tasks.run("UPDATEJOB", id, "BODY", "x"))
    assert tasks.run("DELJOB", id) == 1
    assert value(tasks, "GET", "t", "a") == [None]
    value(tasks, "SET", "t", "a", "1")
    value(tasks, "TALLY", "t", "s", 0, "p", "SIZE", 2)
    tasks.run("TUBE", "TRUNCATE", "t")
    assert value(tasks, "SCAN", "t") == [b"0", []]
    check(tasks)


def test_a_set_of_parts(tasks: World) -> None:
    """T71.3 The call that completes the set gets the 1, and so does each later call of its index;
    no other call gets it.

    T71.2 The size of a complete set stays.
    """
    told = [value(tasks, "TALLY", "t", "s", i, f"p{i}", "SIZE", n) for i, n in ((0, 0), (2, 3))]
    assert told == [[1, 0, 0], [2, 3, 0]]
    assert value(tasks, "TALLY", "t", "s", 2, "again", "SIZE", 3) == [2, 3, 0]
    assert value(tasks, "TALLY", "t", "s", 1, "p1", "SIZE", 2) == [3, 3, 1]
    assert value(tasks, "TALLY", "t", "s", 2, "p2", "SIZE", 5) == [3, 3, 0]
    assert value(tasks, "TALLY", "t", "s", 1, "p1", "SIZE", 9) == [3, 3, 1]
    assert value(tasks, "TALLY", "t", "s", 7, "p7", "SIZE", 9) == [4, 3, 0]
    parts = [[0, b"p0"], [1, b"p1"], [2, b"p2"], [7, b"p7"]]
    assert value(tasks, "PARTS", "t", "s") == [0, parts]
    assert value(tasks, "PARTS", "t", "s", 1, "COUNT", 2) == [3, parts[1:3]]
    assert value(tasks, "PARTS", "t", "nosuch") == [0, []]
    assert "is a set of parts" in str(value(tasks, "GET", "t", "s"))
    value(tasks, "SET", "t", "v", "1")
    assert "is a value" in str(value(tasks, "TALLY", "t", "v", 0, "", "SIZE", 1))


def test_the_size_alone_completes_a_set(tasks: World) -> None:
    """T71.2 Index `-` is for the size alone."""
    value(tasks, "TALLY", "t", "s", 0, "p", "SIZE", 0)
    assert "must be empty" in str(value(tasks, "TALLY", "t", "s", "-", "p", "SIZE", 1))
    assert value(tasks, "TALLY", "t", "s", "-", "", "SIZE", 1) == [1, 1, 1]
    assert value(tasks, "TALLY", "t", "s", 0, "p", "SIZE", 1) == [1, 1, 0]
    assert value(tasks, "TALLY", "t", "s", "-", "", "SIZE", 1) == [1, 1, 1]


def test_a_set_goes_at_once_and_its_parts_by_and_by(tasks: World) -> None:
    """T71.6 DROP and the end of the TTL remove the set at once, for all commands."""
    for i in range(450):
        value(tasks, "TALLY", "t", "s", i, "p", "SIZE", 450)
    assert value(tasks, "DROP", "t", "s") == 1
    assert value(tasks, "TALLY", "t", "s", 449, "new", "SIZE", 450) == [1, 450, 0]
    assert tasks.run("DEBUG", "CHECK") == b"OK"
    tasks.pass_ms(100)
    assert tasks.info("tubes")["tubes_values"] == "2"
    assert value(tasks, "PARTS", "t", "s", 449) == [0, [[449, b"new"]]]
    value(tasks, "TALLY", "t", "s", 0, "new", "SIZE", 0, "TTL", 5)
    tasks.pass_ms(5_100)
    assert tasks.info("tubes")["tubes_values"] == "0"
    check(tasks)


def test_a_restart_keeps_values(tasks: World) -> None:
    """T71.3 Which index that was is part of the set."""
    for i in range(3):
        value(tasks, "TALLY", "t", "s", i, f"p{i}", "SIZE", 3)
    value(tasks, "SET", "t", "a", "1", "FIXED", "END", "TTL", 100)
    for i in range(300):
        value(tasks, "TALLY", "t", "gone", i, "p", "SIZE", 300)
    value(tasks, "DROP", "t", "gone")
    tasks.run("SET", "x")
    tasks.kill(0)
    tasks.start(0)
    tasks.pass_ms(1_000)
    assert value(tasks, "TALLY", "t", "s", 2, "p2", "SIZE", 3) == [3, 3, 1]
    assert value(tasks, "TALLY", "t", "s", 1, "p1", "SIZE", 3) == [3, 3, 0]
    assert value(tasks, "SET", "t", "a", "2") == 0
    assert value(tasks, "WAIT", "t", 100, "a") == [[b"a", b"1"]]
    assert tasks.info("tubes")["tubes_values"] == "5"
    tasks.rewrite()
    tasks.kill(0)
    tasks.start(0)
    assert kinds(tasks) == {b"s": b"parts", b"a": b"fixed"}
    tasks.pass_ms(100_000)
    assert kinds(tasks) == {b"s": b"parts"}
    check(tasks)


def test_a_wait_ends_with_what_was_waited_for(tasks: World) -> None:
    """T72.1 WAIT replies when n of the names, by default all, were set with END, or are gone that
    were there since the wait began; or when its time is over.
    """
    waits = [tasks.wire() for _ in range(4)]
    value(tasks, "SET", "t", "b", "0")
    waits[0].send("VALUE", "WAIT", "t", 0, "a", "b")
    waits[1].send("VALUE", "WAIT", "t", 0, "a", "b", "COUNT", 1)
    waits[2].send("VALUE", "WAIT", "t", 500, "a", "c")
    waits[3].send("VALUE", "WAIT", "t", 0, "c", "c")
    value(tasks, "SET", "t", "a", "0")
    tasks.settle()
    assert [one.take() for one in waits] == [None] * 4
    value(tasks, "SET", "t", "a", "1", "END")
    tasks.settle()
    assert [one.take() for one in waits] == [None, [[b"a", b"1"]], None, None]
    value(tasks, "DROP", "t", "b")
    tasks.settle()
    assert waits[0].take() == [[b"a", b"1"], [b"b", None]]
    tasks.pass_ms(600)
    assert waits[2].take() == [[b"a", b"1"]]
    value(tasks, "SET", "t", "c", "2", "END", "TTL", 1)
    tasks.settle()
    assert waits[3].take() == [[b"c", b"2"]]
    waits[3].send("VALUE", "WAIT", "t", 0, "d")
    tasks.run("TUBE", "DROP", "t")
    tasks.settle()
    assert str(waits[3].take()) == "NOTUBE Tube 't' not found"
    assert tasks.run("PING") == b"PONG"
    check(tasks)


def test_a_change_costs_those_that_wait_for_this_name(tasks: World) -> None:
    """Many wait for many names: of a value that ends no wait each of them looks at that value."""
    names = [f"v{i}" for i in range(200)]
    waits = [tasks.wire() for _ in range(5)]
    for one in waits:
        one.send("VALUE", "WAIT", "t", 0, *names)
    tasks.settle()
    with costs(tasks) as spent:
        for name in names[1:4]:
            value(tasks, "SET", "t", name, "x", "END")
            value(tasks, "SET", "t", name, "x")
        tasks.settle()
    assert max(work for work, _ in spent) <= 10
    for name in names[1:]:
        value(tasks, "SET", "t", name, "x", "END")
    value(tasks, "DROP", "t", "v1")
    value(tasks, "SET", "t", "v2", "y")
    value(tasks, "SET", "t", "v0", "x", "END")
    tasks.settle()
    assert [one.take() for one in waits] == [None] * 5, "v2 has not ended"
    value(tasks, "SET", "t", "v2", "z", "END")
    tasks.settle()
    for one in waits:
        rows = one.take()
        assert len(rows) == 200
        assert rows[:3] == [[b"v0", b"x"], [b"v1", None], [b"v2", b"z"]]
    check(tasks)


def test_a_reply_has_an_end(tasks: World) -> None:
    """T73.1 The reply ends before the value that would make it longer than 4 MiB: ask for the other
    names again.
    """
    for i in range(6):
        value(tasks, "SET", "t", f"v{i}", "x" * 1_000_000, "END")
    names = [f"v{i}" for i in range(6)]
    assert [len(one) for one in value(tasks, "GET", "t", *names)] == [1_000_000] * 4
    assert len(value(tasks, "WAIT", "t", 1, *names)) == 4


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("SET t", "VALUE SET takes"),
        ("SET t  x", "the name of a value has 1 to 255 bytes"),
        ("SET t a x NEVER", "VALUE SET has no option 'NEVER'"),
        ("SET t a x END END", "END is there twice"),
        ("SET t a x TTL", "TTL needs a value"),
        ("SET t a x TTL -1", "TTL must be a number of seconds from 0"),
        ("SET t a x TTL 2147483648", "TTL must be a number of seconds from 0 to 2147483647"),
        ("SET t a x TTL 2147483647.1", "TTL must be a number of seconds from 0 to 2147483647"),
        ("ADD t a 1e3", "ADD takes a number of 64 bits"),
        ("ADD t a 9223372036854775808", "ADD takes a number of 64 bits"),
        ("ADD t a 1 FOR 3", "VALUE ADD has no option 'FOR'"),
        ("TALLY t a 1000000 x SIZE 1", "the index must be a number from 0 to 999999, or -"),
        ("TALLY t a 0 x SIZE 1000001", "SIZE must be a number from 0 to 1000000"),
        ("TALLY t a 2 x SIZE 2", "the index must be below SIZE, not '2'"),
        ("TALLY t a 0 x LENGTH 1", "VALUE TALLY has no option 'LENGTH'"),
        ("PARTS t a -1", "the index must be a number from 0 to 999999"),
        ("PARTS t a 1 COUNT 1001", "COUNT must be a number from 1 to 1000"),
        ("SCAN t x", "the cursor must be a number"),
        ("SCAN t 0 COUNT", "VALUE SCAN has no option"),
        ("WAIT t x a", "ERR timeout is not an integer or out of range"),
        ("WAIT t 0 a b COUNT 3", "COUNT must be a number from 1 to the number of names"),
        ("NOSUCH t", "VALUE takes SET, GET, WAIT"),
    ],
)
def test_odd_words(tasks: World, words: str, text: str) -> None:
    refused = value(tasks, *words.split(" "))
    assert isinstance(refused, Err)
    assert text.lower() in str(refused).lower(), str(refused)
    assert value(tasks, "SCAN", "t") == [b"0", []]


def test_the_longest_ttl_and_the_least_number(tasks: World) -> None:
    """T73.7 ADD begins the TTL anew, a day without one."""
    assert value(tasks, "SET", "t", "a", "x", "TTL", "2147483647") == 1
    least = -(1 << 63)
    assert value(tasks, "ADD", "t", "n", str(least), "TTL", "2147483647") == least
    assert value(tasks, "ADD", "t", "n", "1") == least + 1
    value(tasks, "SET", "t", "day", "x", "TTL", DAY_MS // 1000)
    ends = {row[0]: row[3] for row in value(tasks, "SCAN", "t")[1]}
    assert abs(ends[b"day"] - ends[b"n"]) < 1_000
    assert ends[b"a"] - ends[b"n"] > 2_147_000_000_000


def test_a_list_in_pages(tasks: World) -> None:
    """T70.9 SCAN replies with the next cursor, 0 at the end, and up to n (100, at most 1000) rows,
    in the order in which names were first set: name, kind (`value`, `ended`, `fixed` or `parts`),
    bytes (of a set: its parts) and end (ms since 1970, 0: none).
    """
    for i in range(30):
        value(tasks, "SET", "t", f"v{i:02}", "x" * i, "TTL", 0)
    value(tasks, "DROP", "t", "v03")
    seen, cursor, pages = [], b"0", 0
    while pages == 0 or cursor != b"0":
        cursor, rows = value(tasks, "SCAN", "t", cursor, "COUNT", 7, "MATCH", "v*")
        seen += rows
        pages += 1
    assert pages == 5
    assert seen == [[b"v%02d" % i, b"value", i, 0] for i in range(30) if i != 3]
    (row,) = value(tasks, "SCAN", "t", "MATCH", "v1?", "COUNT", 1)[1]
    assert row[0] == b"v10"


@pytest.mark.parametrize(
    "entry",
    [
        ValueEntry(b"n" * 255, 3),
        ValueEntry(b"\xff", 0),
        SetEntry(b"s", 1_000_000, 999_999),
        SetEntry(b"s", 0, -2),
        PartEntry((1 << 62) - 1, 999_999),
    ],
)
def test_entries_in_bytes(entry: ValueEntry | SetEntry | PartEntry) -> None:
    data = entry.packed(0)
    found = entry_in(data)
    assert type(found) is type(entry)
    assert found is not None and found.packed(0) == data
    for at in range(len(data) - 1):
        cut = entry_in(data[:at])
        assert cut is None or isinstance(cut, ValueEntry | SetEntry) or at < 2
    if not isinstance(entry, ValueEntry):
        assert entry_in(data[:3] + b"\1" + data[4:]) is None
    assert entry_in(data[:2] + b"\4" + data[3:]) is None


@pytest.mark.parametrize("seed", range(6))
def test_values_as_a_table(world: World, seed: int) -> None:
    """Any calls, and restarts, against a dictionary."""
    dice = random.Random(seed)
    world.run("TUBE", "CREATE", "t", "tasks")
    known: dict[str, tuple[bytes, bool, float]] = {}
    for step in range(150):
        name = f"v{dice.randrange(6)}"
        now = world.now_ms
        if name in known and known[name][2] <= now:
            del known[name]
        what = dice.random()
        if what < 0.5:
            body, fixed, ttl = b"%d" % step, dice.random() < 0.2, dice.choice([0, 1, 5, 60])
            words = ["FIXED"] * fixed + ["END"] * (step % 2)
            done = value(world, "SET", "t", name, body, "TTL", ttl, *words)
            assert done == int(name not in known or not known[name][1])
            if done:
                known[name] = (body, fixed, now + ttl * 1000 if ttl else float("inf"))
        elif what < 0.6:
            assert value(world, "DROP", "t", name) == int(known.pop(name, None) is not None)
        elif what < 0.9:
            expected = known[name][0] if name in known else None
            assert value(world, "GET", "t", name) == [expected]
        elif what < 0.95:
            world.pass_ms(dice.choice([900, 4_000]))
        else:
            world.kill(0)
            world.start(0)
            world.pass_ms(100)
    check(world)


# ---- Several nodes (SPEC T70.5, T72.2)


class ValuesWorld(VotesWorld):
    """Three nodes that vote, and the tube `v` with SYNC majority at the first one."""

    def __init__(self) -> None:
        super().__init__(makes=False, tube_voters=3)
        self.pass_ms(TIMEOUT_MS + 1_000)
        wire = self.wire(0)
        wire.ask("TUBE", "CREATE", "v", "tasks", "SYNC", "majority")
        self.pass_ms(1_000)

    def at(self) -> int:
        """The leader, once there is one."""
        self.until(lambda: self.leader("v") is not None)
        found = self.leader("v")
        assert found is not None
        return found

    def at_leader(self) -> Wire:
        """A connection to it."""
        return self.wire(self.at())


def test_a_failover_undoes_nothing_that_a_reply_has_shown() -> None:
    """T70.5 With SYNC the reply waits for copies as that of a change (T18.5), also of GET, of a SET
    that replies 0 and of a repeated TALLY. So no failover undoes what a reply has shown.
    """
    world = ValuesWorld()
    first = world.at()
    wire = world.wire(first)
    assert wire.ask("VALUE", "SET", "v", "a", "1", "FIXED", "END") == 1
    for i in range(3):
        told = wire.ask("VALUE", "TALLY", "v", "s", i, f"p{i}", "SIZE", 3)
    assert told == [3, 3, 1]
    others = [i for i in range(3) if i != first]
    for other in others:
        world.hold(first, other)
    wire.send("VALUE", "SET", "v", "b", "1")
    assert wire.take() is None, "nobody else has it"
    reader = world.wire(first)
    reader.send("VALUE", "GET", "v", "b")
    assert reader.take() is None, "what it would show may be undone"
    world.kill(first)
    new = world.at()
    assert new != first
    wire = world.wire(new)
    assert wire.ask("VALUE", "GET", "v", "a", "b") == [b"1", None]
    assert wire.ask("VALUE", "SET", "v", "a", "2") == 0
    assert wire.ask("VALUE", "TALLY", "v", "s", 2, "p2", "SIZE", 3) == [3, 3, 1]
    assert wire.ask("VALUE", "TALLY", "v", "s", 0, "p0", "SIZE", 3) == [3, 3, 0]
    assert wire.ask("VALUE", "PARTS", "v", "s")[1] == [[i, b"p%d" % i] for i in range(3)]
    (follower,) = set(others) - {new}
    assert str(world.wire(follower).ask("VALUE", "GET", "v", "a")).startswith("TUBEHOME")
    world.check()


def test_a_wait_moves_with_the_leader() -> None:
    """T72.2 When the leader changes, the client gets what a GETJOB would (T17.3, T20.2), and waits
    at the new one.
    """
    world = ValuesWorld()
    first = world.at()
    wire, other = world.wire(first), world.wire(first)
    wire.send("VALUE", "WAIT", "v", 0, "a")
    target = world.node((first + 1) % 3).core.node_id
    assert other.ask("TUBE", "HOME", "v", target) == b"OK"
    assert str(wire.read()).startswith("TUBEHOME")
    wire = world.at_leader()
    wire.send("VALUE", "WAIT", "v", 0, "a")
    assert world.at_leader().ask("VALUE", "SET", "v", "a", "1", "END") == 1
    assert wire.read() == [[b"a", b"1"]]
    world.check()
