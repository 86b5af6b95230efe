"""What clients know of a tube: its options, their puts, and tokens with their tasks.

Task numbers and node clocks are not needed here: the first word of its body identifies a task.
mirror.py has what the node did, in its own order.
"""

from __future__ import annotations

from typing import Any

from sim.engine.history import OPEN
from sim.tube_judges.pris import Pri
from sim.tube_judges.types import TYPES, Defaults
from tuque.core.model.task import MAX_MS


class Put:
    """A put by a client."""

    def __init__(self, token: bytes, body: bytes, asked_us: int, args: dict[str, Any]) -> None:
        self.token = token
        self.body = body
        self.asked_us = asked_us
        self.args = args
        self.outcome = OPEN
        self.error = ""
        self.number = -1  # of its task, once seen on the node
        self.line: Line | None = None  # that task's tube
        self.is_lost = False  # with the memory or the unsynced records of its leader
        self.timeout_ms: int = args.get("timeout", 0)


class Call:
    """A call about one task: ack, release, ..."""

    def __init__(self, verb: str, number: int, token: int, asked_us: int) -> None:
        self.verb = verb
        self.number = number
        self.token = token  # 0: session only
        self.asked_us = asked_us
        self.delay_ms = 0
        self.is_over = False


class State:
    """A tube when a node ceased to lead it, or ended."""

    def __init__(
        self, statuses: dict[int, int], next_number: int, is_exact: bool, is_whole: bool
    ) -> None:
        self.statuses = statuses
        self.next_number = next_number
        self.is_exact = is_exact  # else the disk is unknown, or the memory is lost
        self.is_whole = is_whole  # no crash lost anything


class Line:
    """One tube on all its leaders, from its creation (T17.1)."""

    def __init__(self) -> None:
        self.epoch = 0  # the highest under which a node acted
        self.epoch_us = 0  # when a node first acted under it
        self.homes: dict[int, str] = {}  # by epoch
        self.state: State | None = None  # at the end of the last leader
        self.mirror: Any = None  # of that leader: its changes, and what clients know of it
        self.takers: dict[int, object] = {}  # token -> who got the task under it
        self.newest_token = 0  # of all takes seen
        self.by_job: dict[bytes, int] = {}  # number of the task by job id
        self.told_tokens: dict[str, int] = {}  # by node: the newest that a client got there
        self.top_number = -1  # the highest that clients know
        self.top_us = 0  # when
        self.pause = -1  # its pause on the last leader; -1: unknown
        self.is_lost = False  # its leader lost it
        # the rule that allows two leaders: one of two nodes was told that the other is dead
        # (T21.1), or no reachable node knows the newest leader, whose disk is gone (T19.4)
        self.excuse = ""
        self.up_us = 0  # when it was last seen running
        self.states: dict[str, int] = {}  # by node, T19

    def tokens_of(self, who: object) -> list[int]:
        """Tokens under which that client got tasks."""
        return [token for token, taker in self.takers.items() if taker == who]


class Facts:
    """One tube as its clients know it."""

    def __init__(self, name: str, args: dict[str, Any]) -> None:
        self.name = name
        self.key = name.encode()
        self.type: str = args["type"]
        self.is_temporary: bool = args.get("temporary", False)
        self.rules = TYPES.get(self.type, TYPES["fifo"])
        self.capacity: int = args.get("capacity", 0) if self.rules.is_limited else 0
        ttl_ms: int = args.get("ttl", MAX_MS)
        self.defaults = Defaults(ttl_ms, args.get("ttr", ttl_ms), args.get("pri", 0))
        self.puts: dict[bytes, Put] = {}
        self.calls: dict[int, list[Call]] = {}  # by number of the task
        self.mass_us: dict[str, int] = {}  # last RELEASEALL, KICK or TRUNCATE
        self.lines: dict[tuple[bytes, int], Line] = {}  # by creator and instant of creation
        self.loaded: set[tuple[bytes, int]] = set()  # the same, for tubes restored from a disk
        self.is_plain = False  # never created, and there are jobs of its name
        self.created_us = 0  # when a client first learned that it exists
        self.home = ""  # the node where clients last found it
        self.sync: int = args.get("sync", 1)
        self.by_majority: bool = args.get("by_majority", False)  # SYNC majority (T18.9)
        self.pauses: list[Any] = []  # PAUSE commands sent
        self.pris: list[Pri] = []  # that clients gave
        self.forced: dict[str, int] = {}  # nodes told to take it by force, and when

    def words(self) -> list[bytes]:
        """TUBE CREATE."""
        words = [b"TUBE", b"CREATE", self.key, self.type.encode(), b"IFNOTEXISTS", b"ALONE"]
        if self.is_temporary:
            words.append(b"TEMPORARY")
        d = self.defaults
        if d.ttl_ms < MAX_MS:
            words += [b"TTL", seconds(d.ttl_ms)]
        if d.ttr_ms != d.ttl_ms:
            words += [b"TTR", seconds(d.ttr_ms)]
        if d.pri:
            words += [b"PRI", b"%d" % d.pri]
        if self.capacity:
            words += [b"CAPACITY", b"%d" % self.capacity]
        if self.by_majority:
            words += [b"SYNC", b"majority"]
        elif self.sync > 1:
            words += [b"SYNC", b"%d" % self.sync]
        return words

    def new_put(self, asked_us: int, args: dict[str, Any]) -> Put:
        """A put is about to be sent."""
        token = b"{%s %d}" % (self.key, len(self.puts))
        body = token + b"." * args.get("size", 0)
        put = Put(token, body, asked_us, args)
        self.puts[token] = put
        return put

    def put_of(self, body: bytes) -> Put | None:
        """The put with that body."""
        return self.puts.get(body[: body.find(b"}") + 1])

    def number_of(self, job_id: Any) -> int:
        """The task that is this job; -1: unknown."""
        return next(
            (line.by_job[job_id] for line in self.lines.values() if job_id in line.by_job), -1
        )

    def job_of(self, number: int) -> bytes | None:
        """The job that is this task, in the newest tube that has it."""
        for line in reversed(self.lines.values()):
            for job_id, one in line.by_job.items():
                if one == number:
                    return job_id
        return None

    def ask(self, call: Call) -> Call:
        """A call is about to be sent."""
        self.calls.setdefault(call.number, []).append(call)
        return call

    def asked(self, number: int, since_us: int, *verbs: str) -> list[Call]:
        """Calls about the task that may have run since then."""
        calls = self.calls.get(number, [])
        return [c for c in calls if c.verb in verbs and (not c.is_over or c.asked_us >= since_us)]


def seconds(ms: int) -> bytes:
    """Milliseconds as a word in seconds."""
    return b"%d.%03d" % (ms // 1000, ms % 1000)
