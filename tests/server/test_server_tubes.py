"""TUBE, word by word: replies, options and refusals (SPEC T5, T10, T13, T15, T16)."""

from __future__ import annotations

import pytest

from refusals import refused
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.sessions import identify
from world import World

WRONG = "-ERR Wrong TUBE subcommand or number of arguments: use TUBE "
TUBE_TYPES = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]


@pytest.fixture
def tube(world: World) -> World:
    assert world("TUBE CREATE t utubettl") == b"+OK\r\n"
    return world


def short(task: list[object]) -> list[object]:
    """Id, state and body of a task."""
    return task[:3]


def test_a_task_is_an_array_of_six(tube: World) -> None:
    """T15.3 A task is an array of its id, state, body, the token of the take in force (0: none),
    job id, and form.
    """
    reply = tube("TUBE PUT t hello")
    assert reply.startswith(b"*6\r\n:0\r\n+READY\r\n$5\r\nhello\r\n:0\r\n$40\r\nD-0a0a0a0a-")
    assert reply.endswith(b"\r\n+bytes\r\n")
    assert tube.value("TUBE TAKE t")[3] == 1
    assert tube.value("TUBE PEEK t 0")[:4] == [0, b"TAKEN", b"hello", 1]
    assert tube.value("TUBE ACK t 0")[:4] == [0, b"DONE", b"hello", 0]
    tube("HELLO 3")
    assert tube("TUBE PUT t x").startswith(b"*6\r\n:1\r\n")
    for size in (0, 1024, 1025, 100_000):
        put = tube.value("TUBE PUT t", b"y" * size)
        assert (put[2], len(put[4]), put[5]) == (b"y" * size, 40, b"bytes")


@pytest.mark.parametrize("type", TUBE_TYPES)
def test_the_life_of_a_task_in_every_type(world: World, type: str) -> None:
    """T15: put, take, release, bury, kick, delete answer the task."""
    assert world(f"TUBE CREATE t {type} TEMPORARY") == b"+OK\r\n"
    assert short(world.value("TUBE PUT t a")) == [0, b"READY", b"a"]
    assert short(world.value("TUBE TAKE t TIMEOUT 0")) == [0, b"TAKEN", b"a"]
    assert short(world.value("TUBE RELEASE t 0")) == [0, b"READY", b"a"]
    assert short(world.value("TUBE BURY t 0")) == [0, b"BURIED", b"a"]
    assert world("TUBE KICK t 5") == b":1\r\n"
    assert short(world.value("TUBE DELETE t 0")) == [0, b"DONE", b"a"]
    assert world("TUBE PEEK t 0") == b"-NOTASK Task 0 not found\r\n"
    assert world("TUBE DROP t") == b"+OK\r\n"
    assert world("TUBE LIST") == b"*0\r\n"


def test_words_that_are_wrong(tube: World) -> None:
    """T15.1 Wrong words: C4.8. Wrong options: C4.6.

    C4.8 No such subcommand of ACL, CLUSTER, LEASE or TUBE, or one with too few or too many
    arguments: `-ERR Wrong <command> subcommand or number of arguments: use <syntax>`, with the
    syntax of the subcommand, or the names of all.

    C4.6 A word that a command does not take there, or an option without its value: `-ERR syntax
    error at '<word>': use <syntax>`, with the syntax of the command or subcommand as HELP has it.
    """
    for line, use in (
        ("TUBE NIX", "CREATE, PUT, TAKE, ACK, "),
        ("TUBE PUT t", "PUT tube body [PRI n] "),
        ("TUBE PEEK t 1 2", "PEEK tube id\r\n"),
        ("TUBE LIST t", "LIST\r\n"),
        ("TUBE TOUCH t 1", "TOUCH tube id sec [TOKEN t]\r\n"),
    ):
        assert tube(line).decode().startswith(WRONG + use), line
    for line in (
        "TUBE PUT t b PRIO 1",
        "TUBE PUT t b PRI",
        "TUBE CREATE u fifo FAST",
        "TUBE CREATE u fifo TTL",
        "TUBE TAKE t TIMEOUT",
        "TUBE ACK t 1 TAKEN 3",
        "TUBE TASKS t READY MOST 3",
        "TUBE GRANT t guest PUT",
    ):
        said = tube(line).decode()
        wrong = line.split()[-1] if line.split()[-1].isupper() else line.split()[-2]
        assert said.startswith(
            f"-ERR syntax error at '{wrong}': use {' '.join(line.split()[:2])} t"
        )
    assert tube("TUBE LIST") == b"*1\r\n$1\r\nt\r\n"
    help = tube.value("TUBE HELP")
    assert b"    TUBE TAKE tube [TIMEOUT sec]" in help


@pytest.mark.parametrize(
    ("word", "ms"),
    [("1", 1000), ("0.5", 500), ("0.0001", 1), (".25", 250), ("1.0010000", 1001), ("7.", 7000)],
)
def test_seconds_are_rounded_up_to_a_ms(tube: World, word: str, ms: int) -> None:
    """T15.2 Seconds are digits with at most one point. Parts of a ms are rounded up;"""
    tube(f"TUBE PUT t b DELAY {word}")
    task = tube.n.policy.by_name[b"t"].tasks[0]  # type: ignore[union-attr]  # of tests only
    assert task.qtime_ms == tube.n.now_ms + ms


@pytest.mark.parametrize("word", ["", "-1", "1e3", "x", "1.2.3", "٣", "1" * 41, ".", "nan"])
def test_what_is_no_number_of_seconds(tube: World, word: str) -> None:
    """C4.7 An error about what a number, a time or a choice must be ends with what it was: `,
    not '<word>'`.
    """
    expected = f"-ERR TTL must be a number of seconds, 0 or more, not '{word}'\r\n"
    assert tube("TUBE PUT t b TTL", word).decode() == expected


def test_far_away_is_for_ever(world: World) -> None:
    """T15.2: more than 100 years are 100 years; T15.4 INFO tells `forever`."""
    world("TUBE CREATE t fifottl TTR 1.5 TTL", "9" * 30)
    info = world.value("TUBE INFO t")
    told = dict(zip(info[::2], info[1::2], strict=True))
    assert told[b"ttl"] == b"forever"
    assert told[b"ttr"] == b"1.500"
    assert told[b"type"] == b"fifottl"


@pytest.mark.parametrize(
    ("option", "word", "error"),
    [
        ("PRI", "-1", b"PRI must be a number from 0 to 4503599627370496, not '-1'"),
        ("PRI", "1.5", b"PRI must be a number from 0 to 4503599627370496, not '1.5'"),
        ("UTUBE", "k" * 513, b"UTUBE must be at most 512 bytes"),
        ("FORM", "json", b"FORM must be bytes, text or msgpack, not 'json'"),
        ("FORM", "msgpack", b"the body is not one MessagePack value"),
    ],
)
def test_options_out_of_range(tube: World, option: str, word: str, error: bytes) -> None:
    """T15.2, T15.3: a refused put has put nothing (T13.2)."""
    assert tube(f"TUBE PUT t b{'x' * 4}", option, word) == b"-ERR " + error + b"\r\n"
    assert tube("QLEN t") == b":0\r\n"


def test_forms(tube: World) -> None:
    """T15.3: PUT checks that the body is one MessagePack value."""
    assert tube.value("TUBE PUT t", b"\x92\x01\xa1x", "FORM", "msgpack")[5] == b"msgpack"
    assert tube.value("TUBE PUT t", "ö", "FORM", "text")[5] == b"text"
    two_values = tube("TUBE PUT t", b"\x01\x02", "FORM", "msgpack")
    assert two_values == b"-ERR the body is not one MessagePack value\r\n"


def test_words_are_read_before_the_tube(tube: World) -> None:
    """T15.1 Arguments are parsed from left to right before the tube is looked up."""
    assert tube("TUBE ACK no x").startswith(
        b"-ERR id must be a number from 0 to 4503599627370496, n"
    )
    assert tube("TUBE PUT no b FAST 1").startswith(
        b"-ERR syntax error at 'FAST': use TUBE PUT tube"
    )
    bad = b"-ERR DELAY must be a number of seconds, 0 or more, not 'x'\r\n"
    assert tube("TUBE RELEASE no 1 DELAY x TOKEN x") == bad
    assert tube("TUBE RELEASE no 1 TOKEN 1") == b"-NOTUBE Tube 'no' not found\r\n"


def test_first_words_of_refusals(tube: World) -> None:
    """T15.5 Texts of T13 get the first word where one says it, else `ERR`."""
    assert tube("TUBE TAKE no") == b"-NOTUBE Tube 'no' not found\r\n"
    assert tube("TUBE ACK t 0") == b"-NOTTAKEN Task was not taken\r\n"
    assert tube("TUBE BURY t 3") == b"-NOTASK Task 3 not found\r\n"
    assert tube("TUBE CREATE t fifo") == (
        b"-ERR a tube or a queue 't' already exists: choose another name, "
        b"or first drop the tube or end the jobs of the queue\r\n"
    )
    wrong = b"-WRONGTUBE Tube 't' exists with the type utubettl\r\n"
    assert tube("TUBE CREATE t fifo IFNOTEXISTS") == wrong
    assert tube("TUBE CREATE u nix") == b"-ERR Unknown tube type nix\r\n"
    tube("TUBE CREATE f fifo")
    tube("TUBE PUT f x")
    tube("TUBE TAKE f")
    assert tube("TUBE TOUCH f 0 1") == b"-WRONGTUBE fifo queue does not support touch\r\n"
    tube("PAUSE t in")
    assert tube("TUBE PUT t x") == b"-PAUSED Queue paused in input, try later\r\n"


def test_a_late_call_of_an_older_take(tube: World) -> None:
    """T5.2 With a token, which bury takes too, they apply only to that take: a late call for an
    older take of the same session is refused.
    """
    tube("TUBE PUT t x")
    old = tube.value("TUBE TAKE t")[3]
    tube("TUBE RELEASE t 0")
    new = tube.value("TUBE TAKE t")[3]
    assert new > old
    refused = b"-NOTTAKEN Task was not taken\r\n"
    for words in ("ACK t 0", "RELEASE t 0", "TOUCH t 0 1", "BURY t 0"):
        assert tube(f"TUBE {words} TOKEN {old}") == refused, words
    assert tube.value("TUBE PEEK t 0")[1] == b"TAKEN"
    assert tube.value(f"TUBE TOUCH t 0 1 TOKEN {new}")[3] == new
    assert tube.value(f"TUBE RELEASE t 0 DELAY 1 TOKEN {new}")[1] == b"DELAYED"


def test_touch_of_nothing(tube: World) -> None:
    """T15: TOUCH answers null for 0 s."""
    tube("TUBE PUT t x")
    tube("TUBE TAKE t")
    assert tube("TUBE TOUCH t 0 0") == b"*-1\r\n"
    assert tube("TUBE TOUCH t 0 -1").startswith(b"-ERR the increment must be a number of seconds")


def test_tasks_by_state(tube: World) -> None:
    """T15: TASKS shows up to n tasks in that state, in the order of (pri, id)."""
    for pri in (5, 3, 4):
        tube(f"TUBE PUT t p{pri} PRI {pri}")
    assert [task[2] for task in tube.value("TUBE TASKS t ready COUNT 2")] == [b"p3", b"p4"]
    assert tube("TUBE TASKS t !") == b"*0\r\n"
    assert (
        tube("TUBE TASKS t x") == b"-ERR state must be READY, TAKEN, DELAYED or BURIED, not 'x'\r\n"
    )
    assert tube("TUBE TASKS t READY COUNT 0").startswith(b"-ERR COUNT must be")
    assert tube("TUBE TRUNCATE t") == b":3\r\n"


def test_statistics_and_settings(tube: World) -> None:
    """T11, T10.1: figures by name; cfg tells both settings as they are now."""
    tube("TUBE PUT t x")
    tube("HELLO 3")
    one = tube.value("TUBE STATISTICS t")
    assert one[b"tasks"][b"ready"] == 1
    assert one[b"calls"][b"put"] == 1
    assert tube.value("TUBE STATISTICS") == {b"t": one}
    assert tube.value("TUBE CFG TTR 2 INREPLICASET yes") == {b"ttr": 2, b"in-replicaset": b"yes"}
    refused = b"-ERR Cannot create temporary tube in replicaset mode\r\n"
    assert tube("TUBE CREATE u fifo TEMPORARY") == refused
    assert tube.value("TUBE CFG INREPLICASET no") == {b"ttr": 2, b"in-replicaset": b"no"}
    assert tube("TUBE CFG TTR x").startswith(b"-ERR TTR must be")
    assert tube("TUBE STATE") == b"$7\r\nRUNNING\r\n"


def test_info_of_all_tubes(world: World) -> None:
    """T11.5 Section Tubes: tubes, tasks by status, sessions, takes and puts that wait,
    subscribers, notices that callbacks lost, and bytes used besides the tasks.
    """
    told_at_first = world.info("tubes")
    assert told_at_first.pop("tubes_state") == "RUNNING"
    assert told_at_first.pop("tubes_homeless_names") == ""
    assert told_at_first.pop("tubes_vote_state") == ""
    assert set(told_at_first.values()) == {"0"}
    world("TUBE CREATE t utubettl")
    world("TUBE CREATE u limfifottl CAPACITY 1")
    for words in ("PUT t a", "PUT t b DELAY 9", "PUT t c", "BURY t 2", "PUT u d"):
        world(f"TUBE {words}")
    world("TUBE TAKE t")
    world("TUBE PUT u e TIMEOUT 5")
    found = door_info(world)
    assert found.pop("tubes_state") == "RUNNING"
    assert found.pop("tubes_homeless_names") == found.pop("tubes_vote_state") == ""
    told = {name[6:]: int(value) for name, value in found.items() if name != "tubes"}
    states = {name: told[name] for name in ("tasks", "ready", "taken", "delayed", "buried")}
    assert states == {"tasks": 4, "ready": 1, "taken": 1, "delayed": 1, "buried": 1}
    assert (told["sessions"], told["waiting_puts"], told["waiting_takes"]) == (1, 1, 0)
    assert told["used_bytes"] > 0
    assert (told["running"], told["copies"], told["lag"], told["waiting_copies"]) == (2, 0, 0, 0)


def door_info(world: World) -> dict[str, str]:
    """Section Tubes as another connection is told."""
    return world.wire().info("tubes")


def test_sessions(tube: World) -> None:
    """T8.3, T15.7: two connections with one session may finish each other's tasks."""
    other = tube.wire()
    uuid = tube.value("TUBE IDENTIFY")
    assert len(uuid) == 36
    tube("TUBE PUT t x")
    tube("TUBE TAKE t")
    assert tube("TUBE ACK t 0", by=other) == b"-NOTTAKEN Task was not taken\r\n"
    assert tube("TUBE IDENTIFY", b"just-for-fun", by=other) == b"-ERR Invalid UUID format.\r\n"
    unknown = b"%08x-0000-4000-8000-000000000000" % 1
    told = b"-ERR The UUID " + unknown + b" is unknown.\r\n"
    assert tube("TUBE IDENTIFY", unknown, by=other) == told
    assert tube("TUBE IDENTIFY", uuid, by=other) == b"$36\r\n" + uuid + b"\r\n"
    assert tube("TUBE ACK t 0", by=other).startswith(b"*6\r\n:0\r\n+DONE")


@pytest.mark.parametrize("first", ["TAKE t TIMEOUT 0", "ACK t 0", "RELEASE t 0", "TOUCH t 0 1"])
def test_a_session_is_of_the_users_of_resp(tube: World, first: str) -> None:
    """T15.9 A session of a RESP client belongs to the user that the client logged in as."""
    tube(f"TUBE {first}")
    t = tubes_of(tube.n)
    session = t.by_client[int(tube.run.c.number)]
    with refused("is unknown"):
        identify(tube.n, t, 99, b"bob", session.uuid)
    assert identify(tube.n, t, 99, b"default", session.uuid) == session.uuid


def test_changes_are_polled(tube: World) -> None:
    """T16.1 CHANGES gives those after number AFTER, oldest first, up to COUNT."""
    tube("TUBE PUT t x")
    tube("TUBE TAKE t")
    tube("TUBE ACK t 0")
    now = tube.n.now_ms
    rows = [[0, b"put", 0, b"READY", now], [1, b"take", 0, b"TAKEN", now]]
    assert tube.value("TUBE CHANGES t COUNT 2") == rows
    assert tube.value("TUBE CHANGES t AFTER 1") == [[2, b"ack", 0, b"DONE", now]]
    assert tube("TUBE CHANGES t AFTER 2") == b"*0\r\n"
    assert tube.value("TUBE CHANGES t AFTER 3 COUNT 2") == rows  # of an earlier life of the node
    assert tube("TUBE CHANGES t AFTER -2").startswith(b"-ERR AFTER must be")


def test_who_may_subscribe(tube: World) -> None:
    """T16.2 SUBSCRIBE needs RESP3. RESET, HELLO 2 and the end of the connection end all."""
    assert tube("TUBE SUBSCRIBE t").startswith(b"-ERR TUBE SUBSCRIBE needs RESP3")
    tube("TUBE CREATE u fifo")
    tube("HELLO 3")
    assert tube("TUBE SUBSCRIBE t no") == b"-NOTUBE Tube 'no' not found\r\n"
    assert tube("TUBE SUBSCRIBE t u t") == b":2\r\n"
    assert tube("TUBE UNSUBSCRIBE u") == b":1\r\n"
    assert b"subscribers\r\n:1\r\n" in tube("TUBE INFO t")
    tube("HELLO 2")
    assert b"subscribers\r\n:0\r\n" in tube("TUBE INFO t")


def test_how_many_tubes_one_may_subscribe_to(tube: World) -> None:
    """T16.3 A connection subscribes to at most 1000 tubes."""
    names = [f"t{number}" for number in range(1001)]
    for name in names:
        tube(f"TUBE CREATE {name} fifo")
    tube("HELLO 3")
    assert tube("TUBE SUBSCRIBE", *names[:999]) == b":999\r\n"
    many = b"-ERR a connection subscribes to at most 1000 tubes\r\n"
    assert tube("TUBE SUBSCRIBE", *names[998:]) == many
    assert tube("TUBE SUBSCRIBE", names[999], names[3]) == b":1000\r\n"
    assert tube("TUBE SUBSCRIBE", names[1000]) == many
    assert tube("TUBE UNSUBSCRIBE", names[0]) == b":999\r\n"
    assert tube("TUBE SUBSCRIBE", names[1000]) == b":1000\r\n"


def test_a_callback_must_be_there(world: World) -> None:
    """T16.4: another name is refused, and no tube is made."""
    reply = world("TUBE CREATE t fifo ONCHANGE nix")
    assert reply == b"-ERR this server has no callback named 'nix'\r\n"
    assert world("TUBE LIST") == b"*0\r\n"


def test_puts_that_found_room_are_forgotten(world: World) -> None:
    """T7.2: the end of a put's time may lie far ahead; its body does not wait for it."""
    world("TUBE CREATE t limfifottl CAPACITY 1")
    world("TUBE PUT t first")
    t = tubes_of(world.n)
    other = world.wire()
    for number in range(1500):
        assert world("TUBE PUT t x TIMEOUT 99999999") == b""
        world(f"TUBE DELETE t {number}", by=other)
        assert world.run.hear().startswith(b"*6\r\n")
    assert len(t.put_ends) <= 1024 + 1
    assert all(len(entry[2].body) <= 1 for entry in t.put_ends)


def test_puts_that_wait_count_as_memory(world: World) -> None:
    """T11.4: however their waiting ends."""
    world("TUBE CREATE t limfifottl CAPACITY 1")
    world("TUBE PUT t first")
    t = tubes_of(world.n)
    before = t.bytes_used
    for end in ("timeout", "room", "gone", "drop"):
        waiting = world.wire()
        world(f"TUBE PUT t {'x' * 10_000} TIMEOUT 5", by=waiting)
        assert t.bytes_used >= before + 10_000
        t.check(world.n)
        if end == "timeout":
            world.pass_ms(5000)
        elif end == "room":
            world("TUBE DELETE t 0")
        elif end == "gone":
            waiting.close()
        else:
            world("TUBE DROP t")
            before = 0
        assert t.bytes_used - before < 10_000, end
        if end != "drop":
            t.check(world.n)


def test_grant(tube: World) -> None:
    """T10.3 GRANT gives a user named functions of one tube: call gives put, take, touch, ack,
    release, peek, bury, kick and delete, and identify and statistics;
    """
    assert tube("TUBE GRANT t bob CALL") == b"-ERR User 'bob' is not found\r\n"
    assert tube("TUBE GRANT t guest PREFIX my.q CALL") == b"+OK\r\n"
    assert tube.value("TUBE GRANTS t") == [[b"t", b"user", b"guest", [b"call"], b"my.q"]]
    assert tube("TUBE GRANT t public ROLE TRUNCATE") == b"+OK\r\n"
    assert tube("TUBE GRANT t nobody ROLE CALL") == b"-ERR Role 'nobody' is not found\r\n"
    assert tube("TUBE GRANT t guest CALL PREFIX").startswith(b"-ERR syntax error at 'PREFIX': use")
    rights = tube.n.policy.rights  # type: ignore[union-attr]  # of tests only
    may = [rights.may([b"uguest"], word) for word in (b"my.q.t:take", b"my.q.t:truncate")]
    assert may == [True, False]


def test_grants_are_seen_and_revoked(tube: World) -> None:
    """T10.4, T10.5 Every grant can be seen, and taken back."""
    tube("TUBE CREATE u fifo")
    tube("TUBE GRANT t guest CALL TRUNCATE")
    tube("TUBE GRANT t guest CALL PREFIX x")
    tube("TUBE GRANT u public ROLE CALL")
    row = [b"t", b"user", b"guest"]
    first, second = [*row, [b"call", b"truncate"], b"queue.tube"], [*row, [b"call"], b"x"]
    assert tube.value("TUBE GRANTS t") == [first, second]
    role = [b"u", b"role", b"public", [b"call"], b"queue.tube"]
    assert tube.value("TUBE GRANTS") == [first, second, role]
    assert tube("TUBE REVOKE t guest TRUNCATE") == b":1\r\n"
    assert tube.value("TUBE GRANTS t") == [[*row, [b"call"], b"queue.tube"], second]
    assert tube("TUBE REVOKE t guest PREFIX x") == b":1\r\n"
    assert tube("TUBE REVOKE t public ROLE") == tube("TUBE REVOKE t nobody") == b":0\r\n"
    assert tube.value("TUBE GRANTS") == [[*row, [b"call"], b"queue.tube"], role]
    assert tube("TUBE REVOKE u public ROLE") == b":1\r\n"
    none = b"-NOTUBE Tube 'none' not found\r\n"
    assert tube("TUBE REVOKE none x") == tube("TUBE GRANTS none") == none


def test_short_of_memory(tube: World) -> None:
    """T15.6 CREATE and PUT are refused for memory as M2.3 and C3.5 say."""
    tube("TUBE PUT t x")
    tube("TUBE TAKE t")
    tube.n.limits.memory_bytes = 1
    oom = b"-OOM command not allowed when used memory > 'maxmemory': "
    oom += b"let jobs end, or raise maxmemory\r\n"
    assert tube("TUBE PUT t y") == oom
    assert tube("TUBE CREATE u fifo") == oom
    assert tube("TUBE ACK t 0").startswith(b"*6")


def test_a_journal_that_cannot_be_written(tube: World) -> None:
    """C3.6 holds for TUBE: it writes."""
    tube.server.journal_error = "disk full"
    assert tube("TUBE PUT t x").startswith(b"-MISCONF ")


def test_a_node_that_leaves(tube: World) -> None:
    """T15.6: while the node leaves, what is there can be taken, and nothing comes."""
    tube("TUBE PUT t x")
    tube.n.is_leaving = True
    leaving = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"
    assert tube("TUBE PUT t y") == leaving
    assert tube("ADDJOB t y 0") == leaving  # T1.2
    assert tube.value("TUBE TAKE t")[0] == 0
    assert tube("TUBE TAKE t") == leaving
    assert tube("TUBE TAKE t TIMEOUT 0") == b"*-1\r\n"


def test_a_take_that_nobody_would_see(tube: World) -> None:
    """T15.8: After CLIENT REPLY OFF a TAKE takes nothing."""
    tube("TUBE PUT t x")
    assert tube("CLIENT REPLY OFF") == b""
    assert tube("TUBE TAKE t") == b""
    tube("CLIENT REPLY ON")
    assert tube.value("TUBE PEEK t 0")[1] == b"READY"


def test_addjob_with_priority_and_sub_queue(tube: World) -> None:
    """T1.1, T1.2: PRI and UTUBE of ADDJOB; refused for a queue that is no tube."""
    low = tube.add("t", "low", "PRI", "9", "UTUBE", "a")
    high = tube.add("t", "high", "PRI", "1", "UTUBE", "a")
    assert tube.value("GETJOB FROM t")[0][1] == high
    assert tube("GETJOB NOHANG FROM t") == b"*-1\r\n"  # its sub-queue is busy
    assert tube(f"ACKJOB {high.decode()}") == b":1\r\n"
    assert tube.value("GETJOB FROM t")[0][1] == low
    refused = tube("ADDJOB q b 0 UTUBE a")
    assert refused.startswith(b"-ERR 'q' is no tube: ")
    assert tube("ADDJOB t b 0 PRI x").startswith(b"-ERR PRI must be")
    said = tube("STAGE x a 1000 q b UTUBE a")
    assert said == b"-ERR syntax error: STAGE has no option 'UTUBE'\r\n"
