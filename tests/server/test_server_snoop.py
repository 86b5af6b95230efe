"""Random commands of a user who may not: nothing of others is said or changed (SPEC N2, N10).

The words come from the syntaxes of the command table, so that a new command or option takes part.
The user knows all names and all ids of somebody else; what that one keeps secret is marked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.wire.commands.rows import COMMAND_ROWS, CONTAINERS
from world import World
from world_wires import Wire

MARK = b"SECRET"
COMMANDS = 400
NARROW = (
    "+@produce +@consume +@inspect +tube|create +tube|drop +tube|truncate +tube|kick +tube|delete "
    "+tube|releaseall +pause +deljob +dead|replay +dead|purge +schedule|pause +schedule|resume "
    "+worker|quiet +worker|stop ~orders.*"
)
# they end or silence the connection, or take time
LEFT_OUT = ("QUIT", "RESET", "AUTH", "HELLO", "CLIENT REPLY", "CLIENT PAUSE")
# what somebody has; P stands for the prefix of its names, S for the mark
THINGS = (
    "ADDJOB Pq Sbody 0 RETRY 30 DEDUPE key HEADERS 1 h S KEEP 1000",
    "ADDJOB Pq Sbody 0 RETRY 30 ATTEMPTS 1 KEEP 1000 DEAD Pq.dead HEADERS 1 tuque-task S",
    "ADDJOB Phidden.S Sbody 0 RETRY 30",
    "ADDJOB Pdelayed Sbody 0 DELAY 500 RETRY 30",
    "CLIENT SETNAME Sname",
    "GETJOB NOHANG START WORKER Pw COUNT 2 FROM Pq",
    "DEADLETTER ID1 Pq.dead REASON Sreason",
    "ADDJOB Pq Sbody 0 RETRY 30",
    "TUBE CREATE Pt utubettl",
    "TUBE PUT Pt Stask UTUBE Su",
    "TUBE PUT Pt Stask",
    "TUBE TAKE Pt",
    "TUBE CREATE Ps tasks",
    "SCHEDULE ADD Ps night EVERY 1000 UNIQUE Skey Sbody",
    "ADDJOB Ps Sbody 0 UNIQUE Sunique LIMIT Slimit 1 RATE Srate 1/h GROUP Sgroup",
    "GROUP CREATE Ps 3 ONFAIL continue THEN Sbody",
    "ADDJOB Pq Sbody 0 RETRY 30 KEEP 1000",
    "GROUP ADD Ps GROUP 0 ID7",
    "ADDJOB Ps Sbody 0 RATE Srate 10/s ATTEMPTS 2 DEAD Pq.dead KEEP 1000 HEADERS 1 h S",
    "TUBE CREATE Phidden-tube-S fifo",
    "LEASE OPEN Pg Sowner Pleased",
    "ADDJOB Pleased Sbody 0",
    "LEASE NEXT Pg EPOCH 1 COUNT 5 TTL 60000",
    "STAGE Px at 60000 Pq Sstaged",
    "WORKER HERE Pw HOST Shost APP Sapp VERSION Sv QUEUES Pq",
    "WORKER HERE Phidden-worker HOST Shost APP Sapp QUEUES Phidden.S",
    "PAUSE Phidden-pause-S in",
)
FIXED = {
    "run": b"-", "seq": b"1", "attempt": b"at", "key": b"k", "n/s": b"10/s", "node": b"a" * 40,
}  # fmt: skip
ONE_OF = {
    "glob": "* *q* tv* pay*", "pattern": "* *S*", "option": "in out all none state",
    "filter": "TASK REASON CAUSE", "state": "queued active READY TAKEN DELAYED", "field": "added",
    "type": "fifo tasks utubettl", "section": "all jobs tubes tenants clients workers stats users",
    "body": "own", "bytes": "own", "text": "own", "value": "own", "message": "own",
}  # fmt: skip


def syntaxes() -> list[tuple[str, str]]:
    """Names of commands with one of their syntaxes."""
    found = []
    for name, syntax in [(row.name, row.syntax) for row in COMMAND_ROWS]:
        several = name in CONTAINERS or " | " in syntax
        for part in syntax.split(" | ") if several else [syntax]:
            if not f"{name} {part}".startswith(LEFT_OUT):
                found.append((name, part))
    return found


SYNTAXES = syntaxes()


class Place:
    """A node with somebody's things, and a user who looks for them."""

    def __init__(self, is_tenant: bool) -> None:
        self.is_tenant = is_tenant
        self.world = World(enable_debug_command="yes")
        self.theirs = b"tv/" if is_tenant else b"pay."
        root = self.world.wire()
        eve = "+@all ~* tenant:te" if is_tenant else NARROW
        vic = "+@all ~* tenant:tv" if is_tenant else "+@all ~*"
        for name, words in (("eve", eve), ("vic", vic)):
            line = f"ACL SETUSER {name} on nopass {words}"
            assert root.say(encode(*line.split(" "))) == b"+OK\r\n"
        self.epoch = b""
        self.ids: list[bytes] = []
        self.wires: list[Wire] = []  # sessions hold tasks
        self.make("vic", "" if is_tenant else "pay.", "SECRET")
        self.make("eve", "" if is_tenant else "orders.", "mine")

    def make(self, user: str, prefix: str, mark: str) -> None:
        """All things of one user."""
        wire = self.world.user(user)
        self.wires.append(wire)
        ids: list[bytes] = []
        for line in THINGS:
            words = re.sub(
                r"\bP(?=[a-z])", prefix, re.sub(r"\bS(?=[a-z]|\b)|(?<=[.-])S", mark, line)
            )
            words = words.replace("EPOCH", self.epoch.decode())
            words = words.replace("ID1", ids[1].decode() if len(ids) > 1 else "")
            words = words.replace("ID7", ids[-1].decode() if ids else "")
            words = words.replace(" GROUP 0", f" {ids[-2].decode()} 0" if len(ids) > 2 else "")
            said = wire.say(encode(*words.split(" ")))
            assert not said.startswith(b"-"), (words, said)
            if line.startswith("ADDJOB"):
                ids.append(said[1:-2])
            elif line.startswith("GROUP CREATE"):
                ids.append(said.split(b"\r\n")[1])
            elif line.startswith("LEASE OPEN"):
                self.epoch = said[1:-2]
        self.ids += ids

    def state(self) -> dict[str, object]:
        """All that somebody has."""
        n, mark = self.world.n, self.theirs
        return {
            "jobs": sorted(
                (job.id, job.queue, job.body, int(job.state), int(job.nacks), int(job.deliveries))
                for job in n.jobs.values()
                if job.queue.startswith(mark)
            ),
            "queues": sorted(
                (q.name, int(q.length), int(q.pause), len(q.waiters))
                for q in n.queues.values()
                if q.name.startswith(mark)
            ),
            "groups": sorted(
                (g.name, int(g.epoch), len(g.batches))
                for g in n.leases.groups.values()
                if g.name.startswith(mark)
            ),
            "workers": sorted(
                (hand.name, int(hand.order))
                for hand in self.world.server.workers.by_name.values()
                if hand.reported.host.startswith(MARK)  # anybody may have a worker of that name
            ),
            "staged": [name for name in n.staging.txns if name.startswith(mark)],
        }

    def value(self, chance: random.Random, word: str) -> bytes:
        """A word for a place of a syntax."""
        prefix = chance.choice(["", "", "tv/"] if self.is_tenant else ["pay.", "orders."])
        if word in ("queue", "tube", "to"):
            return (prefix + chance.choice("q t s q.dead delayed leased new".split())).encode()
        if word == "group" and chance.random() < 0.4:
            return chance.choice(self.ids)  # of jobs
        if word in ("group", "txn", "app", "name"):
            name = {"group": "g", "txn": "x", "app": "app"}.get(word)
            return (prefix + (name or chance.choice(["w", "night", "q"]))).encode()
        if word == "id" and chance.random() < 0.9:
            id = chance.choice(self.ids)
            if chance.random() < 0.2:  # as in an URL
                id = b"D_" + id[2:].translate(bytes.maketrans(b"-+/", b"_-_"))
            return id
        if word == "epoch":
            return self.epoch
        if word in ONE_OF:
            return chance.choice(ONE_OF[word].split()).encode()
        return FIXED.get(word, b"%d" % chance.choice([0, 1, 2, 5, 100]))


def words_of(syntax: str, chance: random.Random, value: Callable[[str], bytes]) -> list[bytes]:
    """Words that follow the syntax: options or not, one of each choice, lists of some length."""
    tokens = re.findall(r"\[|\]|\||[^\s\[\]|]+(?:\|[^\s\[\]|]+)*", syntax)

    def read() -> list[bytes]:
        branches: list[list[bytes]] = [[]]
        last = ""
        while tokens:
            token = tokens.pop(0)
            if token == "]":
                break
            if token == "[":
                inner = read()
                branches[-1] += inner if chance.random() < 0.45 else []
            elif token == "|":
                branches.append([])
            elif token == "...":
                branches[-1] += [value(last)] if last and chance.random() < 0.5 else []
            else:
                one = chance.choice(token.split("|")) if token != "n/s|m|h" else "n/s"
                is_word = re.fullmatch(r"[A-Z0-9-]+", one) is not None
                branches[-1].append(one.encode() if is_word else value(one))
                last = "" if is_word else one
        return chance.choice(branches)

    return read()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_tenant", [False, True], ids=["narrow", "tenant"])
def test_nothing_of_others_is_said_or_changed(is_tenant: bool, seed: int) -> None:
    """N2.3, N2.5, N10.1: many commands of one who knows every name and id of somebody else; the
    marked words never come back, and what that one has stays as it is."""
    chance = random.Random(seed)
    place = Place(is_tenant)
    world, before = place.world, place.state()
    wire, done = world.user("eve"), 0
    for _ in range(COMMANDS):
        name, syntax = chance.choice(SYNTAXES)
        words = [name.encode(), *words_of(syntax, chance, lambda word: place.value(chance, word))]
        if words[0] == b"GETJOB":
            words.insert(1, b"NOHANG")
        elif words[:2] == [b"TUBE", b"TAKE"]:
            words = [*words[:3], b"TIMEOUT", b"0"]
        said = wire.say(encode(*words))
        done += not said.startswith(b"-")
        assert MARK not in said, (words, said)
        assert place.state() == before, (words, said)
        if not said or not wire.is_open():  # it waits, or was closed
            wire.close()
            wire = world.user("eve")
    assert done > COMMANDS // 8
    world.check()
