"""The table of spec/work.md, States and events: each state, command and kind of job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from raw_resp import Err
from world import World

Make = Callable[..., World]

KINDS: Final = ["plain", "work", "task"]
NO_RUN: Final = "-"
PREPARED: Final = {
    "first delay": "scheduled",
    "its delay changed": "scheduled",
    "added": "waiting",
    "taken": "delivered",
    "begun": "running",
    "NACK DELAY": "back-off",
    "NACK DELAY of a run": "back-off",
    "RELEASE DELAY": "back-off",
    "RELEASE DELAY of a run": "back-off",
    "FAIL DELAY": "back-off",
    "UPDATEJOB DELAY": "back-off",
    "FAIL FINAL": "dead",
    "ACKJOB": "done",
    "CANCEL": "cancelled",
}
TABLE: Final = {
    "scheduled": "NOTDELIVERED STALE - - cancelled changed",
    "waiting": "running STALE - - cancelled changed",
    "delivered": "running STALE waiting waiting flagged ATWORK",
    "running": "ATWORK STALE - waiting flagged ATWORK",
    "back-off": "NOTDELIVERED STALE - waiting cancelled changed",
    "dead": "DEAD DEAD - - cancelled DEAD",
    "done": "ACKED ACKED - - over ACKED",
    "cancelled": "CANCELLED CANCELLED - - over CANCELLED",
}
QUEUED: Final = ("waiting", "dead")
COMMANDS: Final = ("START", "FAIL", "RELEASE", "NACK", "CANCEL", "UPDATEJOB")
LACKS: Final = {
    "plain": ("FAIL FINAL", "ACKJOB", "CANCEL"),  # without ATTEMPTS and KEEP
    "work": (),
    "task": (),
}
# START is for a task that is taken (T48.3), NACK is release (T1.4).
OF_TASKS: Final = {("waiting", "START"): "NOTDELIVERED", ("back-off", "NACK"): "-"}


def prepare(world: World, kind: str, how: str, queue: str) -> bytes:
    """A new job in that state, alone in its queue, made so at node 0."""
    run = world.run
    options: list[object] = ["ATTEMPTS", 3, "KEEP", 60] if kind != "plain" else []
    if kind != "task":
        options += ["RETRY", 300, "REPLICATE", len(world.up())]
    if how in ("first delay", "its delay changed"):
        options += ["DELAY", 100]
    if kind == "task":
        assert run("TUBE", "CREATE", queue, "tasks", "TTR", 300) == b"OK"
    id: bytes = run("ADDJOB", queue, "b", 0, *options)
    assert not isinstance(id, Err), id
    if how == "its delay changed":
        assert run("UPDATEJOB", id, "DELAY", 200) == b"OK"
    if how in ("first delay", "its delay changed", "added"):
        return id
    assert world.get(queue) == [id]
    token: bytes = b"-"
    if how in ("begun", "FAIL DELAY", "FAIL FINAL", "CANCEL") or "run" in how:
        token = run("START", "WORKER", "w1", id)[0][0]
    word = how.removesuffix(" of a run")
    if word == "NACK DELAY":
        assert run("NACK", "DELAY", 100, id) == 1
    elif word == "RELEASE DELAY":
        assert run("RELEASE", "DELAY", 100, id, token) == 1
    elif word == "FAIL DELAY":
        assert run("FAIL", id, token, "DELAY", 100)[0] == b"retry"
    elif word == "UPDATEJOB DELAY":
        assert run("NACK", id) == 1
        assert run("UPDATEJOB", id, "DELAY", 100) == b"OK"
    elif word == "FAIL FINAL":
        assert run("FAIL", id, token, "FINAL")[0] == b"dead"
    elif word == "ACKJOB":
        assert run("ACKJOB", id) == 1
    elif word == "CANCEL":
        assert run("RELEASE", id, token) == 1
        assert run("CANCEL", id) == [b"ended"]
    return id


def state(world: World, id: bytes, at: int = 0) -> str:
    """What RESULT says of it."""
    reply = world.at(at, 1)("RESULT", id)
    return str(reply[reply.index(b"state") + 1].decode()) if isinstance(reply, list) else str(reply)


def became(world: World, id: bytes, command: str, at: int) -> str:
    """Send the command about the job to that node: the word of the table that tells what it did."""
    words: dict[str, list[str]] = {
        "START": ["START", "WORKER", "w2"],
        "FAIL": ["FAIL"],
        "RELEASE": ["RELEASE"],
        "NACK": ["NACK"],
        "CANCEL": ["CANCEL"],
        "UPDATEJOB": ["UPDATEJOB"],
    }
    more = {"FAIL": [NO_RUN], "RELEASE": ["-"], "UPDATEJOB": ["BODY", "new"]}.get(command, [])
    reply: Any = world.at(at, 1)(*words[command], id, *more)
    if command in ("START", "CANCEL") and not isinstance(reply, Err):
        reply = reply[0]
    if reply is None:
        return "unknown"
    if isinstance(reply, Err):
        return str(reply).split()[0]
    if command == "CANCEL":
        return {b"ended": "cancelled"}.get(reply, reply.decode())
    if reply == 0:
        return "-"
    if command == "UPDATEJOB":
        return "changed"
    return state(world, id, at)


def differences(world: World, kind: str, at: int, after: Callable[[], None]) -> list[str]:
    """Where the broker and the table differ, of all states and commands."""
    found = []
    jobs = []
    for how, is_now in PREPARED.items():
        for command in COMMANDS:
            if how in LACKS[kind]:
                continue
            jobs.append((how, is_now, command, prepare(world, kind, how, f"q{len(jobs)}")))
    after()
    for how, is_now, command, id in jobs:
        told = state(world, id, at)
        want = TABLE[is_now].split()[COMMANDS.index(command)]
        if kind == "task":
            want = OF_TASKS.get((is_now, command), want)
        got = became(world, id, command, at)
        if at != 0 and command == "NACK" and is_now in QUEUED:
            got = "-"  # a copy does not know for sure that the job is queued at another node
        if told != is_now or got != want:
            found.append(f"{how}: {told}, {command}: {got}, not {is_now}: {want}")
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["now", "after a restart"])
def test_states_and_commands(kind: str, when: str, make_world: Make) -> None:
    world = make_world(1)

    def after() -> None:
        if when != "now":
            world.restart(0)
            world.settle()

    assert not "\n".join(differences(world, kind, 0, after))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_states_and_commands_at_another_holder(kind: str, make_world: Make) -> None:
    world = make_world(2)
    assert not "\n".join(differences(world, kind, 1, lambda: world.pass_ms(1_000)))
