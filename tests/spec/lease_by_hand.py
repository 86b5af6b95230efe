"""A group of leases in a world: the commands in short, INFO as a dict."""

from __future__ import annotations

from typing import Any

from raw_resp import Err
from world import World


class Lessee:
    """One group, opened; its methods are the subcommands."""

    def __init__(self, world: World, *queues: str, name: str = "g", owner: str = "me") -> None:
        self.world = world
        self.name = name
        self.queues = queues or ("q",)
        epoch = world.run("LEASE", "OPEN", name, owner, *self.queues)
        assert isinstance(epoch, int), epoch
        self.epoch = epoch

    def __call__(self, word: str, *words: str | bytes | int) -> Any:
        return self.world.run("LEASE", word, self.name, self.epoch, *words)

    def next(self, seq: int, count: int = 10, ttl: int = 5000, **options: int) -> Any:
        words: list[str | int] = ["COUNT", count, "TTL", ttl]
        for name, value in options.items():
            words += [name, value]
        return self("NEXT", seq, *words)

    def rows(self, seq: int, part: int = 0, **options: int) -> list[Any]:
        words: list[str | int] = []
        for name, value in options.items():
            words += [name.removesuffix("_"), value]
        reply = self("FETCH", seq, part, *words)
        assert isinstance(reply, list), reply
        rows: list[Any] = reply[2]
        return rows

    def ids(self, seq: int, part: int = 0) -> list[bytes]:
        """Jobs that the batch still has."""
        return [row[0] for row in self.rows(seq, part) if len(row) > 2]

    def info(self) -> dict[str, Any]:
        flat = self.world.run("LEASE", "INFO", self.name)
        assert isinstance(flat, list), flat
        return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


def word(reply: object) -> str:
    """The first word of an error."""
    assert isinstance(reply, Err), reply
    return reply.partition(" ")[0]
