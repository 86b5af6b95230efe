"""A walk over the command table as a tenant: another one's things change no reply (SPEC N10)."""

from __future__ import annotations

import re

from raw_resp import encode
from sim.engine.clock import START_MS
from tuque.core.model.job_id import of_url
from tuque.wire.commands.commands import NOT_FOR_TENANTS, UNITS, Unit, table
from world import World
from world_wires import Wire

ENDS = {"QUIT", "RESET", "AUTH", "HELLO"}
VARIES = {
    "CLIENT ID", "CLIENT INFO", "ACL GENPASS", "TIME", "INFO", "CLUSTER NODES",
    "TUBE IDENTIFY", "ACL WHOAMI",
}  # fmt: skip
IDS = re.compile(rb"D-[0-9a-f]{8}-.{24}-[0-9a-f]{4}|D-[0-9a-f]{8}-.{16}!{8}-[0-9a-f]{4}")
TOKENS = re.compile(rb"[0-9a-f]{8,}|:\d+|client \d+|\$\d+")
THINGS = (
    "ADDJOB q body 0 RETRY 30 DEDUPE key",
    "ADDJOB q body 0 RETRY 30 ATTEMPTS 1 HEADERS 1 tuque-task mail",
    "ADDJOB other body 0 DELAY 50",
    "GETJOB NOHANG START WORKER w FROM other q",
    "PAUSE paused in",
    "TUBE CREATE t fifo",
    "TUBE PUT t task",
    "TUBE PUT t second",
    "TUBE TAKE t",
    "TUBE CREATE s tasks",
    "SCHEDULE ADD s night EVERY 1000 UNIQUE key schedule",
    "ADDJOB s task 0 UNIQUE own LIMIT key 1 RATE key 1/h GROUP key",
    "GROUP CREATE s 3 THEN callback",
    "LEASE OPEN g me leased",
    "ADDJOB leased body 0",
    "LEASE NEXT g EPOCH 1 COUNT 5 TTL 60000",
    "STAGE x at 60000 q staged",
    "WORKER HERE w HOST h APP one QUEUES q",
)

# forms of commands that the places do not tell
FORMS: dict[str, list[str]] = {
    "GETJOB": ["GETJOB NOHANG START WORKER w FROM q", "GETJOB NOHANG WITHCOUNTERS FROM q t"],
    "DEAD REPLAY": ["DEAD REPLAY q.dead ALL", "DEAD REPLAY q.dead QUEUE t ALL"],
    "DEAD PURGE": ["DEAD PURGE q.dead ALL"],
    "JSCAN": ["JSCAN 0 REPLY all", "JSCAN BUSYLOOP", "JSCAN 0 QUEUE q REPLY all"],
    "QSCAN": ["QSCAN BUSYLOOP", "QSCAN TYPE fifo"],
    "QLIST": ["QLIST", "QLIST MATCH *q*", "QLIST MATCH tenant-b*", "QLIST NAMES q t"],
    "HISTORY": ["HISTORY QUEUES", "HISTORY 5s", "HISTORY 5s TIMES wait", "HISTORY 5s QUEUE q"],
    "PUBLISH": ["PUBLISH app 1 x at", "PUBLISH app 1 ACK g EPOCH 1 x at"],
    "STAGE": ["STAGE x at 60000 q body"],
    "LEASE FETCH": ["LEASE FETCH g EPOCH 1 0", "LEASE FETCH g EPOCH 1 0 COLUMNS"],
    "LEASE NEXT": ["LEASE NEXT g EPOCH 2 COUNT 5 TTL 1000"],
    "LEASE COMMIT": ["LEASE COMMIT g EPOCH 1"],
    "LEASE RELEASE": ["LEASE RELEASE g EPOCH"],
    "TUBE CREATE": ["TUBE CREATE t fifo", "TUBE CREATE q fifo"],
    "TUBE STATISTICS": ["TUBE STATISTICS"],
    "TUBE DROP": ["TUBE DROP s"],
    "ADDJOB": ["ADDJOB s x 0 UNIQUE own", "ADDJOB s x 0 UNIQUE key LIMIT key 1"],
    "SCHEDULE ADD": ["SCHEDULE ADD s night EVERY 10 UNIQUE key x"],
    "TUBE TAKE": ["TUBE TAKE t TIMEOUT 0"],
    "TUBE ACK": ["TUBE ACK t 0"],
    "TUBE TASKS": ["TUBE TASKS t READY"],
    "TUBE SUBSCRIBE": ["TUBE SUBSCRIBE t"],
    "WORKER LIST": ["WORKER LIST", "WORKER LIST MATCH *w*", "WORKER LIST MATCH tenant-b*"],
    "INFO": ["INFO", "INFO tubes", "INFO jobs"],
    "CLUSTER NODES": ["CLUSTER NODES"],
    "PAUSE": ["PAUSE paused state", "PAUSE q in"],
}


def as_user(world: World, name: str) -> Wire:
    wire = world.wire()
    assert wire.say(encode("HELLO", 3, "AUTH", name, "x")).startswith(b"%")
    return wire


def make_things(world: World, name: str) -> list[bytes]:
    """Queues, jobs, a tube, a group, a worker: the ids of the jobs."""
    wire = as_user(world, name)
    ids = []
    epoch = ""
    for line in THINGS:
        said = wire.say(encode(*line.replace("EPOCH", epoch).split(" ")))
        assert not said.startswith(b"-"), (line, said)
        if line.startswith("LEASE OPEN"):
            epoch = said[1:-2].decode()
        if line.startswith("ADDJOB"):
            ids.append(said[1:-2])
        elif line.startswith("GROUP"):
            ids.append(said.split(b"\r\n")[1])
    wire.close()
    world.wire().hear()  # its session has ended
    return ids


def world_of(kept: list[World]) -> World:
    world = World(enable_debug_command="yes")
    kept.append(world)
    root = world.wire()
    for line in (
        "ACL SETUSER ann on nopass +@all ~* tenant:tenant-a",
        "ACL SETUSER bob on nopass +@all ~* tenant:tenant-b",
        "ACL SETUSER ops on nopass +@all ~*",
    ):
        assert root.say(encode(*line.split(" "))) == b"+OK\r\n", line
    return world


def variants(unit: Unit, ids: list[bytes]) -> list[list[bytes]]:
    """Commands of the unit that name the other tenant's things in each place."""
    words = unit.row.encode().split(b" ")
    arity = abs(table()[words[0]].arity)
    places = [*unit.queue_at, unit.queues_from, unit.jobs_from, unit.group_at, unit.stage_at]
    places += [unit.worker_at, unit.names_at, unit.names_from]
    words += [b"1"] * (max(arity, max(places) + 1) - len(words))
    found = []
    for id in ids if unit.jobs_from else [b""]:
        for queue in (b"q", b"t", b"s", b"other", b"paused", b"q.dead"):
            one = list(words)
            for at in unit.queue_at:
                one[at] = queue
            for first in (unit.queues_from, unit.names_from):
                if first:
                    one[first] = queue
            if unit.queues_after:
                one = [*one[:2], b"w"] if unit.row == "WORKER HERE" else [*one[:1], b"NOHANG"]
                one += [unit.queues_after, queue]
            if unit.names_after:
                one += [unit.names_after, queue]
            if unit.options_from:
                one += [b"1"] * (unit.options_from - len(one))
                found.append(list(one))
                one[unit.options_from :] = [unit.option, queue]
            if unit.worker_at:
                one[unit.worker_at] = b"w"
            if unit.group_at:
                one[unit.group_at] = b"g"
            if unit.stage_at:
                one[unit.stage_at] = b"x"
            if unit.names_at:
                one[unit.names_at] = b"x"
            if unit.jobs_from:
                one[unit.jobs_from] = id
            found.append(one)
    return found + more(unit, ids)


def more(unit: Unit, ids: list[bytes]) -> list[list[bytes]]:
    """Forms that the places do not tell."""
    found = [
        line.replace("EPOCH", str(START_MS)).encode().split(b" ")
        for line in FORMS.get(unit.row, [])
    ]
    if unit.row.startswith("SCHEDULE "):
        found.append([*unit.row.encode().split(b" "), b"s", b"night"])
    for id in ids:
        if unit.row in ("START", "ACKJOB", "CANCEL", "NACK", "WAITJOB"):
            head = {"NACK": [b"NACK", b"DELAY", b"1"], "WAITJOB": [b"WAITJOB", b"1"]}
            head["CANCEL"] = [b"CANCEL", b"REASON", b"x"]
            head["START"] = [b"START", b"WORKER", b"w"]
            found.append([*head.get(unit.row, [unit.row.encode()]), id])
            url = b"D_" + id[2:].replace(b"-", b"_").replace(b"+", b"-").replace(b"/", b"_")
            found.append([*head.get(unit.row, [unit.row.encode()]), url])
        elif unit.row in ("DEAD REPLAY", "DEAD PURGE"):
            found.append([*unit.row.encode().split(b" "), b"q.dead", b"IDS", id])
        elif unit.row in ("FAIL", "DONE", "RELEASE"):
            found.append([unit.row.encode(), id, b"-"])
        elif unit.row.startswith("GROUP "):
            found += [
                [*unit.row.encode().split(b" "), b"s", *one] for one in ([id], [id, b"0", id])
            ]
    return found


WALKED = [unit for unit in UNITS if unit.row not in ENDS]


def plain_of(said: bytes) -> bytes:
    """A reply without what differs from run to run: ids, times, numbers of connections."""
    return TOKENS.sub(b"N", IDS.sub(b"ID", said))


def test_another_tenant_changes_no_reply() -> None:
    """N10.1: of two nodes one has another tenant's queues, jobs, tubes, groups and workers. A user
    who tries each command, with the same names and with these ids, hears the same from both.
    """
    worlds: list[World] = []
    full = world_of(worlds)
    world_of(worlds)
    ids = make_things(full, "bob")
    before = theirs(full)
    for unit in WALKED:
        for words in variants(unit, ids):
            heard = []
            for world in worlds:
                wire = as_user(world, "ann")
                heard.append(wire.say(encode(*words)))
                wire.close()
                world.wire().hear()
            assert b"tenant-a/" not in heard[0] and b"tenant-b" not in heard[0], (words, heard[0])
            if unit.row not in VARIES:
                assert plain_of(heard[0]) == plain_of(heard[1]), (words, heard)
    assert theirs(full) == before
    for world in worlds:
        world.check()


def theirs(world: World) -> list[object]:
    """All that the other tenant has."""
    n = world.n
    jobs = sorted(
        (job.id, job.queue, job.body, int(job.state), int(job.nacks), int(job.delivered_count))
        for job in n.jobs.values()
        if job.queue.startswith(b"tenant-b/")
    )
    queues = sorted(
        (q.name, int(q.length), int(q.pause), len(q.waiters))
        for q in n.queues.values()  # tubes among them
        if q.name.startswith(b"tenant-b/")
    )
    groups = sorted(
        (g.name, int(g.epoch), len(g.batches))
        for g in n.leases.groups.values()
        if g.name.startswith(b"tenant-b/")
    )
    hands = sorted(
        (hand.name, int(hand.order), hand.is_lost(n.now_ms))
        for hand in world.server.workers.by_name.values()
        if hand.name.startswith(b"tenant-b/")
    )
    return [
        jobs,
        queues,
        groups,
        hands,
        [name for name in n.staging.txns if name.startswith(b"tenant-b/")],
    ]


def test_both_have_the_same_names() -> None:
    """N10.1: with the same names of all things each finds its own, and no reply has a prefix."""
    worlds: list[World] = []
    world = world_of(worlds)
    for name in ("ann", "bob"):
        make_things(world, name)
    jobs = {"tenant-a": [], "tenant-b": []}  # type: dict[str, list[bytes]]
    for job in world.n.jobs.values():
        jobs[job.queue.partition(b"/")[0].decode()].append(job.id)
    assert len(jobs["tenant-a"]) == len(jobs["tenant-b"]) > 0
    for unit in WALKED:
        if unit.row in ("SHUTDOWN", "MONITOR") or not unit.is_for_tenants:
            continue
        for words in variants(unit, jobs["tenant-a"][:3] + jobs["tenant-b"][:1]):
            wire = as_user(world, "ann")
            said = wire.say(encode(*words))
            assert b"tenant-a/" not in said and b"tenant-b" not in said, (words, said)
            named = [of_url(word) for word in words]
            assert not any(id in said and id not in named for id in jobs["tenant-b"]), (words, said)
            wire.close()
    world.check()


def test_what_is_not_for_tenants() -> None:
    """N10.4: what shows or changes the whole node is closed to its users, whatever they may."""
    worlds: list[World] = []
    world = world_of(worlds)
    for unit in UNITS:
        is_closed = (not unit.is_open and unit.places == "") or unit.row in NOT_FOR_TENANTS
        assert unit.is_for_tenants != (is_closed and unit.row not in (
            "INFO", "CLUSTER NODES", "CLUSTER MYID"
        )), unit.row  # fmt: skip
        if unit.is_for_tenants or unit.row in ENDS:
            continue
        words = unit.row.encode().split(b" ")
        words += [b"1"] * (abs(table()[words[0]].arity) - len(words))
        if unit.row not in ("TUBE GRANT_ROLE", "TUBE ON_TASK_CHANGE"):
            said = as_user(world, "ann").say(encode(*words))
            assert said.startswith(b"-NOPERM user 'ann' may not use "), said


def test_callbacks_are_not_for_tenants() -> None:
    """N10.4 for ONCHANGE of TUBE CREATE there is no callback (T16.4): those of the node are the
    administrator's, as with on_task_change."""
    worlds: list[World] = []
    world = world_of(worlds)
    world.server.notices.callbacks[b"listen"] = lambda *words: None
    for name in ("listen", "none"):
        said = as_user(world, "ann").say(encode("TUBE", "CREATE", "t", "fifo", "ONCHANGE", name))
        assert said == b"-ERR this server has no callback named '%s'\r\n" % name.encode()
    wire = as_user(world, "ops")
    assert wire.say(encode("TUBE", "CREATE", "t", "fifo", "ONCHANGE", "listen")) == b"+OK\r\n"
