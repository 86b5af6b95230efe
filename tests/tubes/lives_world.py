"""Nodes with a tube of type `tasks`, and what its workers do (SPEC T48)."""

from __future__ import annotations

from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.life.dead_letters import Letters
from tuque.core.life.runs import on_fail
from tuque.core.life.start import on_start
from tuque.core.model.errors import Refusal
from tuque.core.model.job import AddSpec
from tuque.core.model.work import Terms
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.ends import life_of
from tuque.tubes.entries.keys import Keys, pack


def add(
    n: Node,
    attempts: int = 3,
    backoff_ms: int = 0,
    keep_ms: int = 0,
    dead: bytes = b"",
    unique: bytes = b"",
    ttl_s: int = -1,
    drops: bool = False,
) -> bytes:
    """A task with terms, a header and keys."""
    spec = AddSpec()
    spec.terms = Terms(attempts, backoff_ms, backoff_ms, 0, dead, keep_ms, 0, drops)
    spec.headers = b"\x01a\x01\x00b"
    spec.retry_s = 30
    keys = Keys()
    keys.limit, keys.places, keys.unique = b"l", 1, unique
    spec.ttl_s = ttl_s
    spec.keys = pack(keys)
    spec = settle(n, spec)
    assert refusal(n, b"t", spec) is None
    return on_addjob(n, b"t", b"body", spec).id


def take(n: Node) -> list[bytes]:
    return [job.id for job in on_getjob(n, 9, [b"t"], 10)]


def begin(n: Node, id: bytes) -> int:
    """START; the run."""
    assert on_start(n, id, b"w", 1) is None
    life = life_of(n, id)
    assert life is not None
    return life.run


def fail(n: Node, id: bytes, run: int, is_final: bool = False) -> int:
    became, _, refused = on_fail(n, id, run, -1, b"no luck", b"trace", is_final)
    assert refused is None
    return became


def why(refused: Refusal | None) -> int:
    assert refused is not None
    return refused.code


def letters(n: Node, queue: bytes = b"t") -> list[bytes]:
    """The ids of the dead letters, oldest first."""
    return [letter.job.id for letter in Letters(queue, b"").after(n, 0, 100)]


class LivesWorld(VotesWorld):
    """Nodes with a tube of type tasks."""

    def __init__(self, count: int = 3, sync: int = 2) -> None:
        super().__init__(count, makes=False)
        self.pass_ms(2 * TIMEOUT_MS)
        self.make(0, b"tasks", sync=sync)
        self.pass_ms(1_000)
