"""RESP clients: every command from its syntax in the table, with values that fit or do not."""

from __future__ import annotations

import re
from random import Random

from fuzz_actor import Actor
from fuzz_box import FuzzBox
from fuzz_values import KEYS, NUMBERS, QUEUES, damage, number, some_bytes

from raw_resp import encode
from tuque.server.config.options import OPTIONS
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.commands import table

TOKEN = re.compile(r"\[|\]|\.\.\.|\||[^\s\[\]|]+(?:\|[^\s\[\]|]+)*")
NEVER = [b"SHUTDOWN", b"MONITOR"]
NO_WORDS = {b"DEBUG": (b"SLEEP", b"RESTART"), b"CLIENT": (b"PAUSE",), b"CLUSTER": (b"MEET",)}
NO_OPTIONS = ("requirepass", "maxclients", "appenddirname", "timeout", "command-deadline")
TYPES = [b"fifo", b"fifottl", b"limfifottl", b"utube", b"utubettl", b"nosuch"]
STATES = [b"active", b"queued", b"acked", b"wait-repl", b"READY", b"taken", b"x"]


class Resp(Actor):
    """One client."""

    def __init__(self, box: FuzzBox, rng: Random) -> None:
        super().__init__(box, rng, box.path)
        self.commands = [one for name, one in sorted(table().items()) if name not in NEVER]

    def act(self) -> int:
        """Say some commands in one write; how many."""
        count = self.rng.randint(1, 12)
        said = [self.command() for _ in range(count)]
        data = b"".join([encode(*words) for words in said])
        if self.rng.random() < 0.03:
            data = damage(self.rng, data)
        self.box.now = repr(said)[:500]
        self.say(data)
        return count

    def command(self) -> list[bytes]:
        """One command, mostly of its syntax."""
        rng = self.rng
        if rng.random() < 0.25:
            return self.of_work()
        one = rng.choice(self.commands)
        name = one.name.encode()
        words = [name, *self.sentence(one.syntax)]
        if rng.random() < 0.1:
            at = rng.randrange(len(words))
            how = rng.randrange(3)
            if how == 0:
                words[at] = self.value("any")
            elif how == 1:
                words.insert(at, self.value("any"))
            elif at > 0:
                del words[at]
        unwanted = NO_WORDS.get(words[0].upper(), ())
        if any(word.upper() in unwanted for word in words[1:2]) or words[0].upper() in NEVER:
            return [b"PING"]
        return words

    def of_work(self) -> list[bytes]:
        """What makes jobs and tasks, so that the others have something to be about."""
        rng = self.rng
        add = [b"ADDJOB", rng.choice(QUEUES), some_bytes(rng, 60), b"100"]
        if rng.random() < 0.6:
            add += [b"REPLICATE", b"%d" % rng.randint(1, 3)]
        if rng.random() < 0.4:
            add += [b"RETRY", rng.choice((b"0", b"1", b"5"))]
        if rng.random() < 0.2:
            add += [b"DELAY", rng.choice((b"0", b"1", b"3"))]
        get = [b"GETJOB", b"NOHANG", b"COUNT", b"3", b"FROM", *rng.sample(QUEUES, 3)]
        make = [b"TUBE", b"CREATE", rng.choice(QUEUES), rng.choice(TYPES)]
        put = [b"TUBE", b"PUT", rng.choice(QUEUES), b"data"]
        known = [
            add,
            add,
            add,
            get,
            [b"ACKJOB", self.id()],
            make,
            put,
            self.of_lease(),
            self.of_stage(),
        ]
        return rng.choice(known)

    def of_lease(self) -> list[bytes]:
        """A batch of a group that is there, or the group itself."""
        rng = self.rng
        groups = list(self.box.n.leases.groups.values())
        if not groups or rng.random() < 0.1:
            return [b"LEASE", b"OPEN", b"g", b"h", *rng.sample(QUEUES, 2)]
        g = rng.choice(groups)
        which = [g.name, b"%d" % g.epoch]
        seq = b"%d" % (g.last_seq + rng.choice((0, 0, 1, 1, -1)))
        return rng.choice(
            (
                [b"LEASE", b"NEXT", *which, seq, b"COUNT", b"5", b"TTL", b"5000"],
                [b"LEASE", b"NEXT", *which, seq, b"COUNT", b"3", b"PARTS", b"2", b"TTL", b"60000"],
                [b"LEASE", b"FETCH", *which, seq, b"%d" % rng.randint(0, 2)],
                [b"LEASE", b"FETCH", *which, seq, b"0", b"FROM", b"1", b"COLUMNS"],
                [b"LEASE", b"COMMIT", *which, seq],
                [b"LEASE", b"NACK", *which, seq, self.id()],
                [b"LEASE", rng.choice((b"TOUCH", b"RELEASE")), *which],
                [b"PUBLISH", b"a", seq, b"ACK", *which, seq, b"x"],
            )
        )

    def of_stage(self) -> list[bytes]:
        """Jobs that are staged, and published."""
        rng = self.rng
        if rng.random() < 0.3:
            return [b"PUBLISH", b"a", b"%d" % rng.randint(1, 9), b"x", b"1"]
        stage = [b"STAGE", b"x", b"1", b"60000", rng.choice(QUEUES), some_bytes(rng, 30)]
        return stage + (rng.choice(([], [b"DEDUPE", b"k"], [b"REPLICATE", b"2"])))

    def sentence(self, syntax: str) -> list[bytes]:
        """A sentence of the syntax: one alternative, optional groups or not, repetitions."""
        depth, start, alternatives = 0, 0, []
        for at, char in enumerate(syntax):
            depth += (char == "[") - (char == "]")
            if depth == 0 and syntax[at : at + 3] == " | ":
                alternatives.append(syntax[start:at])
                start = at + 3
        alternatives.append(syntax[start:])
        return self.sequence(self.rng.choice(alternatives))

    def sequence(self, text: str) -> list[bytes]:
        """The words of a sequence of the syntax."""
        words: list[bytes] = []
        last = ""
        at = 0
        while at < len(text):
            if text[at] == " ":
                at += 1
                continue
            end = at
            if text[at] == "[":
                depth = 0
                while end < len(text):
                    depth += (text[end] == "[") - (text[end] == "]")
                    end += 1
                    if depth == 0:
                        break
            else:
                while end < len(text) and text[end] not in " [":
                    end += 1
            item = text[at:end]
            at = end
            if item == "...":
                for _ in range(self.rng.randint(0, 3)):
                    words += self.item(last)
            else:
                words += self.item(item)
                last = item
        return words

    def item(self, item: str) -> list[bytes]:
        """One group or word."""
        if item.startswith("["):
            return self.sentence(item[1:-1]) if self.rng.random() < 0.5 else []
        word = self.rng.choice(item.split("|"))
        if word.upper() == word and word.isascii():
            return [word.encode()]
        return [self.value(word)]

    def value(self, name: str) -> bytes:
        """A value of the table's name for it."""
        rng = self.rng
        if rng.random() < 0.06:
            return rng.choice((some_bytes(rng), str(rng.choice(NUMBERS)).encode(), self.id()))
        if name in ("queue", "tube"):
            return rng.choice(QUEUES)
        if name == "id":
            return self.id()
        if name in ("sec", "ms", "ms-timeout", "timeout"):
            return rng.choice((b"0", b"1", b"2", b"0.5", b"100", b"100000"))
        if name == "ttl-ms":
            return rng.choice((b"1000", b"60000"))
        if name in ("count", "n", "b", "p", "k", "i", "len", "rate", "cursor", "number", "t"):
            return str(number(rng, 0, 100)).encode()
        if name in ("seq", "epoch", "part", "attempt", "version"):
            return str(number(rng, 0, 3)).encode()
        if name == "type":
            return rng.choice(TYPES)
        if name in ("state", "option"):
            return rng.choice((*STATES, b"in", b"out", b"all", b"none", b"bcast"))
        if name in ("group", "owner", "txn", "app", "key", "user", "prefix", "name"):
            return self.name(name)
        if name == "value":
            return rng.choice((b"yes", b"no", b"0", b"1", b"100mb", b"normal 1mb 1kb 1"))
        if name == "uuid":
            return rng.choice((rng.randbytes(16), b"0" * 36, b""))
        if name in ("host", "port", "bus-port"):
            return rng.choice((b"127.0.0.1", b"1", b"65535"))
        return some_bytes(rng)

    def name(self, kind: str) -> bytes:
        """A word that names something: an option of the server, a group, a key."""
        if kind == "name" and self.rng.random() < 0.7:
            known = [one for one in OPTIONS.values() if one.name not in NO_OPTIONS]
            return self.rng.choice(known).name.encode()
        return self.rng.choice((b"g", b"h", *KEYS))

    def id(self) -> bytes:
        """An id, of a job that is known or not, a number of a task, or of a node."""
        rng, n = self.rng, self.box.n
        roll = rng.random()
        if roll < 0.6 and n.jobs:
            return rng.choice(list(n.jobs)[:200])
        if roll < 0.7 and n.acked:
            return rng.choice(list(n.acked)[:200])
        if roll < 0.8:
            return str(rng.randint(0, 5)).encode()
        if roll < 0.85:
            return rng.choice(n.node_ids)
        if roll < 0.95 and len(tubes_of(n).copies_by_id) > 0:
            return rng.choice(list(tubes_of(n).copies_by_id)[:50])
        return b"D-%s-%s-%04x" % (rng.randbytes(4).hex().encode(), b"a" * 24, rng.randrange(65536))
