"""Tubes and the journal (SPEC T14): restarts, cuts anywhere, snapshots, temporary tubes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tube_world import TubeWorld, files_of, loaded

from sim.engine.clock import START_MS
from sim.engine.disk import PATH
from tuque.core.dispatch.timers import tick
from tuque.core.model.job import Job
from tuque.core.model.task import Task, carried_by
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.core.records import jobs as rec
from tuque.core.records import read as back
from tuque.core.records.jobs import Records
from tuque.server.replies.errors import text_of
from tuque.store.replay import Loader
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.grants import CALL, TRUNCATE, role_key, user_key
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations, sessions
from tuque.tubes.tasks.admin import register_driver
from tuque.tubes.types.utube import UTube

TYPES = [b"fifo", b"fifottl", b"limfifottl", b"utube", b"utubettl"]

State = dict[bytes, object]


def facts(n: Node) -> State:
    """What a restart must give back: a TAKEN task is READY then."""
    found: State = {}
    t = tubes_of(n)
    for one in t.rights.listing(b""):
        found[b"%s on %s by %s" % (one.holder, one.tube, one.prefix)] = one.bits
    for name, tube in t.by_name.items():
        found[name] = (
            tube.number,
            tube.type,
            tube.ttl_ms,
            tube.ttr_ms,
            tube.capacity,
            tube.on_task_change,
        )
        if tube.is_temporary:
            continue
        found[name + b" next"] = tube.next_number
        for number, task in tube.tasks.items():
            status = chr(task.status)
            if status == "t":
                status = "t" if task.owner == 0 else "r"
            found[b"%s:%d" % (name, number)] = (
                status,
                task.id,
                task.body,
                task.form,
                task.pri,
                carried_by(task),
                task.ttl_ms,
                task.ttr_ms,
                task.dead_ms,
                task.created_ms,
                task.qtime_ms if status in "~t" else 0,
                task.delivered_count,
                task.nacks,
                task.delay_s,
            )
    return found


def made(home: TubeWorld, name: bytes, type: bytes, temporary: bool = False) -> Tube:
    """A tube, with a word for each change."""
    o = TubeOptions()
    o.temporary = temporary
    o.on_task_change = b"on " + name
    o.capacity = 20 if type == b"limfifottl" else 0
    tube = admin.create_tube(home.n, home.t, name, type, o, b"")
    home.settle()
    return tube


def put(home: TubeWorld, tube: Tube, body: bytes = b"body", **options: int) -> Task:
    """A task on disk, whose priority and sub-queue come from the length of its body."""
    spec = PutSpec()
    for word, value in options.items():
        setattr(spec, word, value)
    spec.utube = b"k%d" % (len(body) % 3)
    task = operations.put(home.n, home.t, tube, body, len(body) % 3, spec, 1, 1)
    assert task is not None
    home.settle()
    return task


def pass_in_turns(home: TubeWorld, ms: int, look: Callable[[], object]) -> None:
    """Let time pass, and look after each instant at which something runs."""
    end_ms = home.now_ms + ms
    while home.next_ms() < end_ms:
        home.pass_ms(home.next_ms() - home.now_ms)
        look()
    home.pass_ms(end_ms - home.now_ms)


def act(home: TubeWorld, rng: random.Random, look: Callable[[], object] = int) -> None:
    """One thing that happens, and `look` after each turn; the turn ends with it."""
    n, t = home.n, home.t
    tubes, choice = list(t.by_name.values()), rng.randrange(26)
    if not tubes or choice == 0:
        name = b"t%d" % rng.randrange(5)
        if name not in t.by_name:
            made(home, name, TYPES[rng.randrange(5)], rng.randrange(6) == 0)
        return
    tube = rng.choice(tubes)
    number = rng.choice(list(tube.tasks) or [0])
    client = rng.randrange(3)
    try:
        if choice < 7 and not tube.is_full():
            spans = {"ttl_ms": rng.choice((-1, 3000, 90_000)), "ttr_ms": rng.choice((-1, 700))}
            delay_ms = rng.choice((-1, 500, 2500))
            put(home, tube, rng.randbytes(rng.randrange(30)), delay_ms=delay_ms, **spans)
        elif choice < 12:
            operations.take(n, t, tube, client)
        elif choice == 12:
            on_getjob(n, 7, [tube.name], 1)
        elif choice == 13:
            operations.touch(n, t, tube, client, number, 400)
        elif choice < 16:
            operations.ack(n, t, tube, client, number)
        elif choice == 16:
            operations.release(n, t, tube, client, number, rng.choice((0, 800)))
        elif choice == 17:
            operations.bury(n, t, tube, number)
        elif choice == 18:
            operations.kick(n, t, tube, 2)
        elif choice == 19:
            operations.delete(n, t, tube, number)
        elif choice == 20:
            sessions.on_client_gone(n, t, client)
        elif choice == 21 and rng.randrange(4) == 0:
            rng.choice((admin.truncate, admin.drop))(n, t, tube)
        elif choice in (22, 23):
            t.set_pri(n, tube.tasks[number], rng.randrange(4))
        elif choice == 24:
            prefix = rng.choice((b"queue.tube", b"mine"))
            admin.grant(n, t, rng.choice((b"ubob", b"rall")), tube, rng.randrange(1, 4), prefix)
        elif choice == 25:
            who, prefix = rng.choice((b"ubob", b"rall")), rng.choice((b"mine", None))
            admin.revoke(n, t, who, tube, rng.randrange(4), prefix)
        else:
            pass_in_turns(home, rng.randrange(1500), look)
    except (TubeError, KeyError):  # KeyError: the tube has no task
        pass
    home.settle()


@pytest.mark.parametrize("seed", range(4))
def test_a_journal_cut_anywhere_has_no_hole(seed: int) -> None:
    """T14.4 If a journal is truncated anywhere, the tubes are as they were after some call;"""
    home = TubeWorld(has_journal=True)
    rng = random.Random(seed)
    name = home.disk().segment()
    states = [(home.files.size(name), facts(home.n))]

    def look() -> None:
        check(home.n)
        states.append((home.files.size(name), facts(home.n)))

    for _ in range(300):
        act(home, rng, look)
        look()
    files = files_of(home.files)
    ends = sorted({end for end, _ in states})
    assert len(ends) > 80, "too little was recorded"
    for i, end in enumerate(ends):
        torn = ends[i + 1] - 1 if i + 1 < len(ends) and i % 5 == 0 else end
        restarted = loaded(home, files, name, torn)
        expected = [state for at, state in states if at <= end][-1]
        assert facts(restarted) == expected, (i, end)


def test_a_snapshot_tells_it_all() -> None:
    """J6, T14.1: after a rewrite the tubes are the same, also with changes while it runs."""
    home = TubeWorld(has_journal=True)
    rng = random.Random(99)
    for _ in range(200):
        act(home, rng)
    home.begin_rewrite()
    for _ in range(200):
        act(home, rng)
    assert not home.node().committer.is_rewriting()
    assert len(home.files.names) < 6
    before = facts(home.n)
    home.restart(0)
    assert facts(home.n) == before


def test_grants_outlive_a_restart() -> None:
    """T10.3 Grants add up, survive a restart, and are in every snapshot."""
    home = TubeWorld(has_journal=True)
    bob, tube = user_key(b"bob"), made(home, b"t", b"fifo")
    dropped = made(home, b"u", b"fifo")
    admin.grant(home.n, home.t, bob, tube, CALL)
    admin.grant(home.n, home.t, bob, tube, TRUNCATE, b"mine")
    admin.grant(home.n, home.t, role_key(b"all"), tube, CALL)
    admin.grant(home.n, home.t, bob, dropped, CALL)
    admin.revoke(home.n, home.t, role_key(b"all"), tube, CALL, None)
    admin.drop(home.n, home.t, dropped)
    made(home, b"u", b"fifo")
    for _ in range(2):
        home.restart()
        assert home.t.rights.may([bob], b"queue.tube.t:take")
        assert home.t.rights.may([bob], b"mine.t:truncate")
        assert [one.holder for one in home.t.rights.listing(b"")] == [bob, bob]
        made(home, b"u%d" % len(home.t.by_name), b"fifo")
        home.rewrite()


def test_numbers_and_tokens_go_on_after_a_restart() -> None:
    """T2.1, T5.1: never twice, not even when everything was deleted."""
    home = TubeWorld(has_journal=True)
    tube = made(home, b"t", b"fifo")
    passing = made(home, b"tmp", b"fifo", temporary=True)
    for _ in range(3):
        put(home, tube)
        put(home, passing)
    task = operations.take(home.n, home.t, tube, 1)
    assert task is not None
    token = task.token
    admin.truncate(home.n, home.t, tube)
    home.settle()
    for i in range(2):
        home.restart()
        tube, passing = home.t.by_name[b"t"], home.t.by_name[b"tmp"]
        assert put(home, tube).number == 3 + i
        assert 3 <= put(home, passing).number <= 3 + 1000 * (i + 1)
        task = operations.take(home.n, home.t, tube, 1)
        assert task is not None and task.token > token
        token = task.token
        operations.ack(home.n, home.t, tube, 1, task.number)
        home.settle()


def test_a_taken_task_is_ready_after_a_restart() -> None:
    """T14.2 one whose session has ended is READY"""
    home = TubeWorld(has_journal=True)
    tube = made(home, b"t", b"utube")
    put(home, tube, b"abc")
    put(home, tube, b"def")
    operations.take(home.n, home.t, tube, 1)
    home.settle()
    home.restart()
    tube = home.t.by_name[b"t"]
    assert [chr(task.status) for task in tube.tasks.values()] == ["r", "r"]
    assert admin.statistics(home.t, tube)["calls"]["release"] == 1


def test_a_task_of_getjob_stays_taken_until_its_time() -> None:
    """T14.2 those taken with GETJOB stay TAKEN until their time."""
    home = TubeWorld(has_journal=True)
    tube = made(home, b"t", b"utubettl")
    put(home, tube, b"abc", ttr_ms=5000)
    put(home, tube, b"def")
    assert len(on_getjob(home.n, 7, [b"t"], 2)) == 1
    home.settle()
    home.restart(1000)
    tube = home.t.by_name[b"t"]
    assert [chr(task.status) for task in tube.tasks.values()] == ["t", "r"]
    assert on_getjob(home.n, 8, [b"t"], 2) == []  # its sub-queue is busy
    home.pass_ms(4100)
    jobs: list[Job] = on_getjob(home.n, 8, [b"t"], 2)
    assert [job.body for job in jobs] == [b"abc"]


def test_shared_sessions_outlive_a_restart() -> None:
    """T14.3 Sessions survive a restart only with in_replicaset."""
    home = TubeWorld(has_journal=True)
    admin.cfg(home.n, home.t, 3000, True)
    tube = made(home, b"t", b"fifo")
    put(home, tube)
    operations.take(home.n, home.t, tube, 1)
    uuid = sessions.identify(home.n, home.t, 1, b"", None)
    home.settle()
    home.restart()
    tube = home.t.by_name[b"t"]
    assert sessions.identify(home.n, home.t, 5, b"", uuid) == uuid
    home.pass_ms(5000)
    assert chr(operations.ack(home.n, home.t, tube, 5, 0).status) == "-"
    put(home, tube)
    operations.take(home.n, home.t, tube, 5)
    home.settle()
    home.restart()
    tube = home.t.by_name[b"t"]
    home.pass_ms(2980)
    assert chr(tube.tasks[1].status) == "t"
    home.pass_ms(30)
    assert chr(tube.tasks[1].status) == "r"
    with pytest.raises(TubeError) as e:
        sessions.identify(home.n, home.t, 6, b"", uuid)
    assert text_of(e.value) == b"The UUID %s is unknown." % sessions.dashed(uuid)


def test_a_slow_load_takes_no_time_from_sessions() -> None:
    """T14.3 clients can join them for ttr of cfg, counted from the end of the load."""
    home = TubeWorld(has_journal=True)
    admin.cfg(home.n, home.t, 3000, True)
    tube = made(home, b"t", b"fifo")
    put(home, tube)
    operations.take(home.n, home.t, tube, 1)
    uuid = sessions.identify(home.n, home.t, 1, b"", None)
    home.settle()
    home.kill(0)
    machine = home.machines[0]
    n = Node(machine.node_id, b"2", START_MS)
    loader = Loader(home.files, PATH, machine.clock.boot_record(), True)
    while not loader.step(n, 1):
        n.now_ms += 1000
    n.now_ms += 2900
    tick(n)
    assert sessions.identify(n, tubes_of(n), 5, b"", uuid) == uuid


def test_a_take_binds_its_reply_in_a_replica_set_only() -> None:
    """T14.1 A take binds no reply (J4.2), except with in_replicaset, and once in a million takes
    (T5.1)."""
    home = TubeWorld(has_journal=True)
    tube = made(home, b"t", b"fifo")
    for shared in (False, True):
        put(home, tube)
        admin.cfg(home.n, home.t, None, shared)
        sessions.session_for(home.n, home.t, 1)
        home.settle()
        records = home.n.records
        assert records is not None
        before = (records.count, records.binding_count)
        operations.take(home.n, home.t, tube, 1)
        told = (records.count - before[0], records.binding_count - before[1])
        assert told == (1, 1 if shared else 0)
        home.settle()


def test_a_temporary_tube_comes_back_empty() -> None:
    """T2.5 only the definition and the numbers used are in the journal"""
    home = TubeWorld(has_journal=True)
    tube = made(home, b"t", b"fifottl", temporary=True)
    size = home.files.size(home.disk().segment())
    put(home, tube)
    first = home.files.size(home.disk().segment()) - size
    for _ in range(50):
        put(home, tube)
        operations.take(home.n, home.t, tube, 1)
        home.settle()
    assert home.files.size(home.disk().segment()) == size + first
    home.restart()
    assert home.t.by_name[b"t"].is_temporary and not home.n.jobs


def test_a_tube_whose_type_is_gone_keeps_its_tasks() -> None:
    """T14.5 It delivers no task until its type is registered (T3.6) or the node starts with it."""
    home = TubeWorld(has_journal=True)
    register_driver(home.n, home.t, b"mine", UTube)
    tube = made(home, b"t", b"mine")
    put(home, tube)
    for _ in range(2):
        home.restart()
        assert any("type mine, which is not installed" in line for line in home.node().log)
        tube = home.t.by_name[b"t"]
        put(home, tube)
        assert operations.take(home.n, home.t, tube, 1) is None
        check(home.n)
    assert len(tube.tasks) == 3


def test_what_is_no_record_is_refused() -> None:
    """Every record cut short, or with a length too large, is refused, never misread."""
    n = Node(b"a" * 40, b"seed", START_MS)
    t, records = tubes_of(n), Records()
    n.records = records
    tube = admin.create_tube(n, t, b"t", b"utube", TubeOptions(), b"")
    spec = PutSpec()
    spec.utube = b"key"
    operations.put(n, t, tube, b"body", 1, spec, 1, 1)
    operations.bury(n, t, tube, 0)
    admin.cfg(n, t, 5, True)
    admin.grant(n, t, user_key(b"bob"), tube, CALL)
    sessions.session_for(n, t, 1)
    admin.drop(n, t, tube)
    payload = records.take()
    pos = 0
    kinds = []
    r = back.Record()
    while pos < len(payload):
        end = back.decode(payload, pos, r)
        kinds.append(rec.KIND_NAMES[r.kind])
        one = payload[pos:end]
        for size in range(5, len(one)):
            short = (size - 4).to_bytes(4, "little") + one[4:size]
            try:
                assert back.decode(short, 0, back.Record()) == len(short)
            except back.BadRecord:
                continue
            assert r.kind in (
                rec.TASK_ADD,
                rec.SESSION,
                rec.TUBE_DROP,
                rec.GRANT,
                rec.TUBE_HOME,
                rec.TUBE_CFG,  # was shorter once
            )  # end in free bytes
        pos = end
    assert kinds == [
        "tube",
        "tube-home",
        "tube-cfg",
        "task-add",
        "task-state",
        "tube-cfg",
        "grant",
        "session",
        "remove",
        "tube-drop",
        "tube-home",
    ]
