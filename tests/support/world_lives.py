"""Jobs with copies in a world, and their lives as each holder knows them (SPEC W).

Commands are given to the core of a node, and carried out by all.
"""

from __future__ import annotations

from typing import Any, Final

from tuque.core.life.cancel_update import on_cancel
from tuque.core.life.runs import on_fail
from tuque.core.life.shown import result_fields
from tuque.core.life.start import on_start
from tuque.core.model.job import QUEUED
from tuque.core.model.work import Life, Terms
from tuque.core.node.node import Node
from world import World

TERMS: Final = Terms(3, 1_000, 60_000, 0, b"", 600_000, 0)
PRODUCER: Final = 9  # the number of the client that adds


def add(
    world: World,
    i: int = 0,
    retry_s: int = 30,
    terms: Terms = TERMS,
    ttl_s: int = 3_600,
    replicate: int = 3,
) -> bytes:
    """A job of three copies with terms and a header."""
    words: list[str | int] = ["ATTEMPTS", terms.attempts] if terms.attempts else []
    jitter = str(terms.jitter / 1000)
    words += ["BACKOFF", terms.first_ms // 1000, terms.max_ms // 1000, jitter]
    words += ["ONEXPIRY", "drop"] if terms.drops else []
    words += ["KEEP", terms.keep_ms // 1000, "RETRY", retry_s, "TTL", ttl_s, "REPLICATE", replicate]
    reply = world.at(i, PRODUCER)("ADDJOB", "q", "body", 5_000, *words, "HEADERS", 1, "k", "v")
    assert isinstance(reply, bytes), reply
    return bytes(reply)


def got_at(world: World, id: bytes, *nodes: int) -> int:
    """Let time pass until one of these nodes has the job queued, and get it there; the node."""
    world.until(lambda: any(world.states(id)[i] == QUEUED for i in nodes))
    i = next(i for i in nodes if world.states(id)[i] == QUEUED)
    assert world.at(i).get(at(world, i).jobs[id].queue) == [id]
    return i


def at(world: World, i: int) -> Node:
    """The core of node i."""
    return world.node(i).core


def stranger(world: World, id: bytes) -> int:
    """A node without the job."""
    return next(i for i in world.numbers() if i not in world.holders(id))


def life(world: World, i: int, id: bytes) -> Life:
    """The life as node i knows it."""
    return at(world, i).life.by_id[id]


def start(world: World, i: int, id: bytes, worker: bytes = b"w") -> int:
    """START at node i; the run."""
    assert on_start(at(world, i), id, worker, 7) is None
    run = int(life(world, i, id).run)
    world.settle()
    return run


def fail(world: World, i: int, id: bytes, run: int, is_final: bool = False) -> int:
    """FAIL at node i; what became of the job."""
    became, _, refused = on_fail(at(world, i), id, run, -1, b"no", b"trace", is_final)
    assert refused is None, refused.code
    world.settle()
    return int(became)


def cancel(world: World, i: int, id: bytes) -> int:
    """CANCEL at node i; what became of the job."""
    became, refused, change = on_cancel(at(world, i), id, b"why")
    assert refused is None
    world.settle()
    if change is None:
        return int(became)
    assert change.is_over
    return int(change.became)


def known(world: World, i: int, id: bytes) -> dict[str, Any]:
    """What node i knows of the job, empty if that is nothing; it asks nobody."""
    fields, _ = result_fields(at(world, i), id)
    return dict(fields) if fields is not None else {}


def told(world: World, i: int, id: bytes) -> dict[str, Any]:
    """RESULT at node i, as a dict."""
    return fields(world.at(i)("RESULT", id))


def fields(reply: object) -> dict[str, Any]:
    """The names and values of a reply."""
    assert isinstance(reply, list), reply
    return {reply[k].decode(): reply[k + 1] for k in range(0, len(reply), 2)}


def phases(world: World, id: bytes) -> list[str]:
    """The phase of the job at each node."""
    return [known(world, i, id).get("state", b"unknown").decode() for i in world.numbers()]
