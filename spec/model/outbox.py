"""A model of the outbox's relay: rows of a database become jobs of a broker, each once.

A row says the id of its job, which is here the attempt in which that was staged. One slot, one node
of the broker, which forgets what is staged when it starts; relays that stop at any point, and one
that goes on though another one has its slot.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from spec.model.small import play
from spec.model.state import BrokenError

STEPS: Final = 120
MOST: Final = 3  # rows of a batch

FLAWS: Final = {
    "publish_before_commit": "a batch is published before its number is in the database",
    "two_batches": "the next batch begins before the last one is known as done",
    "number_again": "after a crash the rows get a new number",
    "staged_again_is_new": "staged again, a batch takes all rows that are unsent now",
    "sent_before_publish": "rows are marked as sent, then published",
    "nostage_is_done": "a batch whose stage is gone counts as done",
    "ids_with_sent": "staged again, the ids are in the database only when the batch is done",
}


class Broker:
    """A node: what is staged, by attempt; the last version, and the jobs."""

    def __init__(self) -> None:
        self.staged: dict[int, list[int]] = {}
        self.version = 0
        self.jobs: list[tuple[int, int]] = []  # row, id

    def publish(self, version: int, attempt: int) -> str:
        """PUBLISH: the version is looked at first (Z2.2)."""
        if version <= self.version:
            self.staged.pop(attempt, None)
            return "done"
        if attempt not in self.staged:
            return "nostage"
        self.jobs += [(row, attempt) for row in self.staged.pop(attempt)]
        self.version = version
        return "ok"


class Relay:
    """A process: where it is, and what it has in memory."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.at = "begin"
        self.rows: list[int] = []
        self.batch = 0
        self.is_committed = False  # the rows of the batch are those of the database


class Walk:
    """One walk."""

    def __init__(self, seed: int, flaw: str = "") -> None:
        self.dice = random.Random(seed)
        self.flaw = flaw
        self.broker = Broker()
        self.batch_of: dict[int, int] = {}  # of a row: 0 none
        self.id_of: dict[int, int] = {}  # of the job of a row
        self.sent: set[int] = set()
        self.last = 0  # batch of the slot
        self.attempt = 0  # in which its jobs are staged
        self.relay = Relay(1)
        self.old: Relay | None = None  # it has lost the slot, and does not know
        self.attempts = 1
        self.late: list[tuple[int, int]] = []  # PUBLISHes that are still on their way
        self.told: Counter[str] = Counter()

    def holds(self, relay: Relay) -> bool:
        """Whether the database still takes commits of this relay."""
        return relay is self.relay

    def step_relay(self, relay: Relay) -> None:
        """One step of a relay."""
        do = {"begin": self.begin, "stage": self.stage, "commit": self.commit,
              "publish": self.publish, "sent": self.mark}  # fmt: skip
        do[relay.at](relay)

    def begin(self, relay: Relay) -> None:
        """The unfinished batch comes first, else up to so many rows by id."""
        open_rows = [i for i, b in self.batch_of.items() if b == self.last and i not in self.sent]
        if self.last and open_rows and self.flaw not in ("number_again", "two_batches"):
            relay.rows, relay.batch, relay.at = open_rows, self.last, "publish"
            relay.number, relay.is_committed = self.attempt, True
            return
        free = [i for i in self.batch_of if i not in self.sent]
        if self.flaw != "number_again":
            free = [i for i in free if self.batch_of[i] == 0]
        if free:
            relay.rows, relay.batch, relay.at = free[:MOST], self.last + 1, "stage"
            relay.is_committed = False

    def stage(self, relay: Relay) -> None:
        """STAGE, each time in an attempt of its own."""
        if self.flaw == "staged_again_is_new" and relay.is_committed:
            relay.rows = [i for i in self.batch_of if i not in self.sent][: MOST + 1]
        self.attempts += 1
        self.broker.staged[self.attempts] = list(relay.rows)
        relay.number = self.attempts
        early = relay.is_committed and self.flaw == "ids_with_sent"
        early = early or self.flaw == "publish_before_commit"
        relay.at = "publish" if early else "commit"

    def commit(self, relay: Relay) -> None:
        """The database has the number of the batch, its rows, and the ids of their jobs."""
        if not self.holds(relay):
            self.old = None
            return
        self.last, self.attempt = relay.batch, relay.number
        for row in relay.rows:
            if not relay.is_committed:
                self.batch_of[row] = relay.batch
            self.id_of[row] = relay.number
        if self.flaw == "sent_before_publish":
            self.sent |= set(relay.rows)
        relay.is_committed = True
        relay.at = "publish"

    def publish(self, relay: Relay) -> None:
        """PUBLISH; the request or the reply may get lost."""
        lot = self.dice.random()
        if lot < 0.15:
            self.late.append((relay.batch, relay.number))
            relay.at = "begin" if self.flaw == "two_batches" else "publish"
            return
        reply = self.broker.publish(relay.batch, relay.number)
        self.told[reply] += 1
        if lot < 0.3:
            return
        if reply == "nostage" and self.flaw != "nostage_is_done":
            relay.at = "stage"
        else:
            relay.at = "commit" if self.flaw == "publish_before_commit" else "sent"
            if self.flaw == "publish_before_commit" and relay.is_committed:
                relay.at = "sent"

    def mark(self, relay: Relay) -> None:
        """The database has that these rows are sent."""
        if not self.holds(relay):
            self.old = None
            return
        for row in relay.rows:
            if self.batch_of[row] == relay.batch:
                self.sent.add(row)
                if self.flaw == "ids_with_sent":
                    self.id_of[row] = relay.number
        relay.at = "begin"

    def step(self) -> None:
        """Something happens."""
        lot = self.dice.random()
        if lot < 0.15:
            self.batch_of[len(self.batch_of) + 1] = 0
        elif lot < 0.2:
            self.relay = Relay(0)  # the relay died, another one has the slot
        elif lot < 0.24:
            self.old, self.relay = self.relay, Relay(0)
        elif lot < 0.28:
            self.broker.staged.clear()
        elif lot < 0.34 and self.late:
            self.broker.publish(*self.late.pop(self.dice.randrange(len(self.late))))
        elif lot < 0.45 and self.old is not None:
            self.step_relay(self.old)
        else:
            self.step_relay(self.relay)
        self.check()

    def check(self) -> None:
        """No job twice."""
        jobs = [row for row, _ in self.broker.jobs]
        if len(jobs) != len(set(jobs)):
            raise BrokenError("a row became two jobs")

    def heal(self) -> None:
        """All rows are jobs in the end."""
        self.old = None
        for one in self.late:
            self.broker.publish(*one)
        for _ in range(20 * (1 + len(self.batch_of))):
            if len(self.sent) == len(self.batch_of):
                break
            self.step_relay(self.relay)
            self.check()
        ids = dict(self.broker.jobs)
        if len(self.sent) != len(self.batch_of) or set(ids) != set(self.batch_of):
            raise BrokenError("a row became no job")
        if ids != self.id_of:
            raise BrokenError("a row has the id of another job")


def walk(seed: int, flaw: str = "") -> tuple[str, Counter[str]]:
    """What broke, or "", and what happened how often."""
    one = Walk(seed, flaw)
    return play(one, STEPS), one.told
