"""IPROTO clients: every type of request and every procedure, with what fits or does not."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from fuzz_actor import Actor
from fuzz_box import FuzzBox
from fuzz_values import NUMBERS, QUEUES, anything, change, damage

from tuque.tubes.policy import tubes_of

encode = msgspec.msgpack.encode
TYPES = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]
REQUESTS = [10, 10, 10, 10, 6, 8, 1, 7, 64, 73, 2, 70]
METHODS = (
    "put put put take take ack release touch peek bury kick delete truncate release_all drop "
    "tasks_by_state on_task_change grant grant_role nothing"
).split()
FUNCTIONS = (
    "create_tube create_tube create_tube cfg identify statistics stats state tube register_driver"
).split()
OPTIONS = (
    "ttl ttr delay pri utube timeout temporary if_not_exists capacity engine storage_mode sync "
    "on_task_change in_replicaset call truncate prefix"
).split()


class Iproto(Actor):
    """One connection."""

    def __init__(self, box: FuzzBox, rng: Random) -> None:
        super().__init__(box, rng, box.iproto_path)
        self.sync = 0

    def act(self) -> int:
        """Send some requests in one write; how many."""
        rng = self.rng
        count = rng.randint(1, 8)
        data = b"".join([self.request() for _ in range(count)])
        if rng.random() < 0.03:
            data = damage(rng, data)
        self.say(data)
        return count

    def request(self) -> bytes:
        """One frame."""
        rng = self.rng
        self.sync += 1
        type = rng.choice(REQUESTS)
        head: Any = {0: type, 1: self.sync}
        if rng.random() < 0.02:
            head = {0: anything(rng), rng.choice((1, 5, 127)): anything(rng)}
        body = self.body(type)
        self.box.now = repr((head, body))[:500]
        if rng.random() < 0.02:
            body = {rng.choice(list(body) or [0]): anything(rng)}
        inner = encode(head) + encode(body)
        if rng.random() < 0.03:
            inner = damage(rng, inner)
        if rng.random() < 0.01:
            return encode(rng.choice(NUMBERS)) + inner
        return b"\xce" + len(inner).to_bytes(4, "big") + inner

    def body(self, type: int) -> dict[int, Any]:
        """What the type of request wants."""
        rng = self.rng
        if type in (10, 6):
            if rng.random() < 0.7:
                tube = rng.choice(QUEUES).decode()
                method = rng.choice(METHODS)
                name, args = f"queue.tube.{tube}:{method}", self.arguments(method)
            else:
                function = rng.choice(FUNCTIONS)
                name, args = f"queue.{function}", self.of_function(function)
            if rng.random() < 0.15:
                args = change(rng, args)
            return {0x22: name, 0x21: args}
        if type == 8:
            text = rng.choice(("return queue.tube['q'] ~= nil", "create_tube", "os.exit()"))
            return {0x27: text, 0x21: self.of_function("create_tube")}
        if type == 7:
            scramble = rng.randbytes(rng.choice((20, 20, 0, 19)))
            return {0x23: rng.choice(("guest", "admin", "")), 0x21: ["chap-sha1", scramble]}
        return {0x10: rng.choice(NUMBERS), 0x21: [1]}

    def arguments(self, method: str) -> list[Any]:
        """Arguments of a method of a tube."""
        rng = self.rng
        task = self.task()
        options = self.options()
        known: dict[str, list[Any]] = {
            "put": [anything(rng), options],
            "take": [rng.choice((0, 0, 0.01, 1, None)), options],
            "release": [task, options],
            "touch": [task, rng.choice((0, 1, 0.5, 1e300, -1))],
            "kick": [rng.choice((0, 1, 5, 1 << 63))],
            "tasks_by_state": [rng.choice(("r", "t", "~", "!", "-", "x"))],
            "on_task_change": [rng.choice(("call", ""))],
            "grant": [rng.choice(("guest", "nobody")), options],
            "grant_role": [rng.choice(("public", "none")), options],
        }
        return known.get(method, [task])

    def of_function(self, function: str) -> list[Any]:
        """Arguments of a function of the queue."""
        rng = self.rng
        if function == "create_tube":
            return [rng.choice(QUEUES).decode(), rng.choice(TYPES), self.options()]
        if function == "cfg":
            return [{"ttr": rng.choice((0, 1, 1e9, -1)), "in_replicaset": False}]
        if function == "identify":
            return [rng.choice((rng.randbytes(16), None))]
        return [rng.choice((*QUEUES, None, "nosuch"))]

    def options(self) -> dict[str, Any]:
        """Options of a put or a tube."""
        rng = self.rng
        found: dict[str, Any] = {}
        for _ in range(rng.choice((0, 0, 1, 2))):
            name = rng.choice(OPTIONS)
            found[name] = anything(rng) if rng.random() < 0.4 else rng.choice((0, 1, 0.1, 10, True))
        return found

    def task(self) -> Any:
        """The number of a task, one that is there for the most part."""
        rng = self.rng
        if rng.random() < 0.1:
            return rng.choice((None, -1, 1 << 62, 1 << 63, "0", 0.5, [0]))
        tubes = list(tubes_of(self.box.n).by_name.values())
        most = max([int(tube.next_number) for tube in tubes[:3]], default=1)
        return rng.randint(0, min(most, 50))
