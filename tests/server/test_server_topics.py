"""TOPIC on a server without sockets (SPEC T60 to T62)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.records.jobs import (
    ADD,
    LIFE,
    TASK_ADD,
    TOPIC,
)
from tuque.core.tables.topics import (
    GONE_MAX,
    OF_TOPIC_MAX,
    SUBSCRIPTIONS_MAX,
    Subscription,
)
from tuque.tubes.leadership.activate import lose_home
from tuque.tubes.policy import tubes_of
from world import World

LISTED = [b"0", []]
OTHER = b"f" * 40


def ids(world: World, line: str, *words: str) -> list[bytes]:
    reply = world.value(line, *words)
    assert isinstance(reply, list), reply
    return reply


def kinds(world: World) -> list[int]:
    """The kinds of the records since the last call, as they go into one frame."""
    return [int(record.kind) for record in world.node().records()]


def lengths(world: World, *queues: str) -> list[int]:
    return [world.value(f"QLEN {queue}") for queue in queues]


def test_a_job_for_each_queue(world: World) -> None:
    """T62.1 ADD adds a job to each queue whose subscription this node knows and whose filters
    the HEADERS of ADD pass. The reply is an array of the ids, in the order of the queues' names;
    empty if there is no such queue.
    """
    assert ids(world, "TOPIC ADD orders before 0") == []
    for queue in ("mail", "audit", "stock"):
        assert world(f"TOPIC SUBSCRIBE orders {queue}") == b":1\r\n"
    found = ids(world, "TOPIC ADD orders body 0 TTL 100 RETRY 7")
    assert len(found) == 3
    assert lengths(world, "audit", "mail", "stock") == [1, 1, 1]
    for queue, id in zip(("audit", "mail", "stock"), found, strict=True):
        assert world.value(f"GETJOB FROM {queue}") == [[queue.encode(), id, b"body"]]
    row = world.value(f"SHOW {found[0].decode()}")
    shown = dict(zip(row[::2], row[1::2], strict=True))
    assert (shown[b"ttl"], shown[b"retry"]) == (100, 7)


def test_subscribe_and_unsubscribe(world: World) -> None:
    """T61.1 SUBSCRIBE replies 1 if the subscription is new or gets other filters or patterns,
    else 0. There is one for each topic and queue: its last SUBSCRIBE gives the filters.
    """
    assert world("TOPIC SUBSCRIBE t q FILTER kind a*") == b":1\r\n"
    assert world("TOPIC SUBSCRIBE t q FILTER kind a*") == b":0\r\n"
    assert world("TOPIC SUBSCRIBE t q") == b":1\r\n"
    assert len(ids(world, "TOPIC ADD t body 0")) == 1
    assert world("TOPIC UNSUBSCRIBE t other") == b":0\r\n"


def test_unsubscribe_leaves_jobs(world: World) -> None:
    """T61.2 UNSUBSCRIBE replies 1, or 0 if there is no such subscription or pattern. Jobs that
    are in the queue stay there.
    """
    world("TOPIC SUBSCRIBE t q")
    assert len(ids(world, "TOPIC ADD t body 0")) == 1
    assert world("TOPIC UNSUBSCRIBE t q") == b":1\r\n"
    assert world("TOPIC UNSUBSCRIBE t q") == b":0\r\n"
    assert ids(world, "TOPIC ADD t body 0") == []
    assert lengths(world, "q") == [1]
    assert world("TOPIC SUBSCRIBE t q") == b":1\r\n"
    assert len(ids(world, "TOPIC ADD t body 0")) == 1


@pytest.mark.parametrize(
    ("headers", "queues"),
    [
        ("", ["all"]),
        ("HEADERS 1 kind paid", ["all", "paid"]),
        ("HEADERS 2 kind paid country de", ["all", "de", "paid"]),
        ("HEADERS 2 kind sent country de", ["all"]),
        ("HEADERS 1 country de", ["all"]),
    ],
)
def test_filters(world: World, headers: str, queues: list[str]) -> None:
    """T60.3 A filter is the name of a header (1 to 64 of `[a-z0-9._-]`) and a pattern of 1 to 128
    bytes, as in C7.7. A job passes if it has each of these headers, with a value that the pattern
    fits.
    """
    world("TOPIC SUBSCRIBE t all")
    world("TOPIC SUBSCRIBE t paid FILTER kind p??d")
    world("TOPIC SUBSCRIBE t de FILTER kind pa* country [d]e")
    assert len(ids(world, f"TOPIC ADD t body 0 {headers}")) == len(queues)
    found = [queue for queue in ("all", "de", "paid") if lengths(world, queue) == [1]]
    assert found == queues


@pytest.mark.parametrize(
    ("pattern", "fits", "other"),
    [
        ("[a-c]x", "bx", "dx"),
        ("[^a]", "b", "a"),
        ("[!a]", "b", "a"),
        ("[a", "[a", "a"),
        ("a[]", "a[]", "a"),
        ("[c-ax]", "x", "b"),
        ("?", "x", "\u00e9"),
        ("\\*", "*", "x"),
    ],
)
def test_patterns(world: World, pattern: str, fits: str, other: str) -> None:
    """T60.3 In a pattern `*` is any bytes, `?` one byte, `[ab]` and `[a-c]` one of these bytes,
    `[^a]` and `[!a]` one other byte.
    """
    world("TOPIC SUBSCRIBE t q FILTER kind", pattern)
    assert len(ids(world, "TOPIC ADD t body 0 HEADERS 1 kind", fits)) == 1
    assert ids(world, "TOPIC ADD t body 0 HEADERS 1 kind", other) == []


def test_wrong_filters_are_named(world: World) -> None:
    """T60.3 A pattern that fits nothing is refused: `-ERR the pattern '<pattern>' fits nothing:
    write ranges as in [a-c]`.
    """
    text = b"-ERR the pattern 'x[c-a]' fits nothing: write ranges as in [a-c]\r\n"
    assert world("TOPIC SUBSCRIBE t q FILTER kind x[c-a]") == text
    many = " ".join(f"n{i} x" for i in range(9))
    assert b"FILTER with up to 8 pairs" in world(f"TOPIC SUBSCRIBE t q FILTER {many}")


@pytest.mark.parametrize(
    "line",
    [
        "TOPIC SUBSCRIBE t q FILTER",
        "TOPIC SUBSCRIBE t q FILTER kind",
        "TOPIC SUBSCRIBE t q FILTER Kind x",
        f"TOPIC SUBSCRIBE t q FILTER kind {'x' * 129}",
        "TOPIC SUBSCRIBE t q FILTER kind a kind b",
        "TOPIC SUBSCRIBE t q FILTER kind x[c-a]*",
        "TOPIC SUBSCRIBE t q OTHER kind a",
        f"TOPIC SUBSCRIBE {'t' * 256} q",
        f"TOPIC SUBSCRIBE t {'q' * 513}",
        f"TOPIC SUBSCRIBE t q FILTER {' '.join(f'n{i} x' for i in range(9))}",
        "TOPIC",
        "TOPIC WHAT",
        "TOPIC SUBSCRIBE t",
        "TOPIC UNSUBSCRIBE t q FILTER",
        "TOPIC LIST t",
        "TOPIC LIST COUNT 0",
        "TOPIC LIST COUNT 1 COUNT 2",
        "TOPIC LIST CURSOR x",
        "TOPIC ADD t body",
        "TOPIC ADD t body x",
        "TOPIC ADD t body 0 NO",
    ],
)
def test_wrong_words(world: World, line: str) -> None:
    """T60.2 The name of a topic has 1 to 255 bytes, that of a queue that subscribes 1 to 512."""
    assert world(line).startswith(b"-ERR "), line
    assert world.value("TOPIC LIST") == LISTED


def test_most_subscriptions(world: World) -> None:
    """T60.2 A topic has at most 4,096 subscriptions, and a node knows at most 50,000."""
    for i in range(OF_TOPIC_MAX):
        world.n.topics.put(Subscription(b"t", b"q%d" % i, [], 1, world.n.node_id, False))
    assert world("TOPIC SUBSCRIBE t more").startswith(b"-ERR topic 't' has 4096 subscriptions")
    assert world("TOPIC SUBSCRIBE t q7 FILTER a b") == b":1\r\n"
    for i in range(SUBSCRIPTIONS_MAX - OF_TOPIC_MAX):
        world.n.topics.put(Subscription(b"t%d" % i, b"q", [], 1, world.n.node_id, False))
    assert world("TOPIC SUBSCRIBE u q").startswith(b"-ERR 50000 queues are subscribed")


def test_list_in_pages(world: World) -> None:
    """T61.3 LIST replies with the next cursor, 0 at the end, and up to COUNT (100, at most 1000)
    rows: topic, queue, filters (names and patterns in turn), how many jobs came through the
    subscription since this node started, by ADD here, and the patterns of its keys.
    """
    for i in range(7):
        world(f"TOPIC SUBSCRIBE t{i % 2} q{i} FILTER kind {i}")
    ids(world, "TOPIC ADD t1 body 0 HEADERS 1 kind 3")
    cursor, rows = b"0", []
    while True:
        cursor, page = world.value(f"TOPIC LIST COUNT 3 CURSOR {cursor.decode()}")
        rows += page
        if cursor == b"0":
            break
        world("TOPIC UNSUBSCRIBE t0 q0")  # meanwhile
    assert [row[1] for row in rows] == [b"q%d" % i for i in range(7)]
    assert rows[3] == [b"t1", b"q3", [b"kind", b"3"], 1, []]
    assert [row[1] for row in world.value("TOPIC LIST TOPIC t1")[1]] == [b"q1", b"q3", b"q5"]


@pytest.mark.parametrize(
    ("before", "options", "error"),
    [
        ("PAUSE q2 in", "", b"PAUSED Queue paused in input, try later"),
        ("ADDJOB q2 b 0", "MAXLEN 1", b"MAXLEN Queue is already longer than the specified MAXLEN"),
        ("TUBE CREATE q2 fifo", "DELAY 3", b"ERR "),
        ("TUBE CREATE q2 tasks", "RETRY 0", b"ERR "),
    ],
)
def test_one_refuses_all(world: World, before: str, options: str, error: bytes) -> None:
    """T62.2 Each job is checked as by ADDJOB (R1.3 to R1.7, T1.2), before any is added: the first
    refusal is the reply, followed by `: queue '<queue>' of topic '<topic>', nothing was added`. So
    one queue that is paused, or longer than MAXLEN, refuses all.
    """
    for queue in ("q1", "q2", "q3"):
        world(f"TOPIC SUBSCRIBE t {queue}")
    world(before)
    count = len(world.n.jobs)
    reply = world(f"TOPIC ADD t body 0 {options}")
    assert reply.startswith(b"-" + error), reply
    assert reply.endswith(b": queue 'q2' of topic 't', nothing was added\r\n"), reply
    assert len(world.n.jobs) == count


def test_a_node_that_leaves_refuses(world: World) -> None:
    """T62.2 A node that leaves, or whose memory is at level 1 (R1.5), refuses all."""
    world("TOPIC SUBSCRIBE t q")
    world("CLUSTER LEAVING yes")
    refused = world("TOPIC ADD t body 0")
    assert refused.startswith(b"-NOREPL ") and refused.endswith(b": nothing was added\r\n")
    world("CLUSTER LEAVING no")
    world.n.limits.memory_bytes = world.n.used_bytes()
    full = b"-OOM used memory is above 75 % of 'maxmemory': let jobs end"
    assert world("TOPIC ADD t body 0").startswith(full)
    assert lengths(world, "q") == [0]


def test_one_frame(make_world: Callable[..., World]) -> None:
    """T62.3 All jobs are added in one turn, and so in one frame of the journal (J3.1): after a
    crash this node has all or none.
    """
    world = make_world()
    world("TUBE CREATE tube tasks")
    for queue in ("q1", "tube", "q2"):
        world(f"TOPIC SUBSCRIBE t {queue}")
    kinds(world)
    assert len(ids(world, "TOPIC ADD t body 0 HEADERS 1 a b")) == 3
    found = kinds(world)
    assert [found.count(kind) for kind in (ADD, LIFE, TASK_ADD)] == [2, 2, 1]


def test_options_of_tubes(world: World) -> None:
    """T62.4 PRI and UTUBE are for the tubes whose type has them, and mean nothing to the others.
    REPLICATE is for queues: a tube has SYNC. HEADERS stay with the jobs of queues and of tubes
    of type tasks.
    """
    for name, kind in (("plain", "fifo"), ("ordered", "fifottl"), ("apart", "utube")):
        world(f"TUBE CREATE {name} {kind}")
    world("TUBE CREATE work tasks")
    for queue in ("queue", "plain", "ordered", "apart", "work"):
        world(f"TOPIC SUBSCRIBE t {queue}")
    found = ids(world, "TOPIC ADD t body 0 PRI 7 UTUBE x HEADERS 1 kind a")
    shown = []
    for id in found:
        row = world.value(f"SHOW {id.decode()}")
        shown.append(dict(zip(row[::2], row[1::2], strict=True)))
    by_queue = {row[b"queue"]: row for row in shown}
    assert by_queue[b"ordered"][b"pri"] == by_queue[b"work"][b"pri"] == 7
    assert by_queue[b"apart"][b"utube"] == b"x"
    for name in ("queue", "work"):
        assert world.value(f"GETJOB WITHMETA FROM {name}")[0][-1] == [b"kind", b"a"]
    for words in ("UNIQUE k", "LIMIT k 1", "RATE k 1/s", "GROUP g", "WITHNEW"):
        assert world(f"TOPIC ADD t body 0 {words}").startswith(b"-ERR TOPIC ADD takes no ")


def test_a_word_that_is_no_option(world: World) -> None:
    """T62.4 Another word: `-ERR syntax error: TOPIC ADD has no option '<word>': it takes
    <options>`."""
    for words in ("BOGUS", "TTL 5 BOGUS 7"):
        assert world(f"TOPIC ADD t body 0 {words}") == (
            b"-ERR syntax error: TOPIC ADD has no option 'BOGUS': it takes REPLICATE, TTL, RETRY,"
            b" DELAY, MAXLEN, DEDUPE, DEDUPETTL, ASYNC, PRI, UTUBE, ATTEMPTS, BACKOFF, DEAD, KEEP,"
            b" TIMELIMIT, ONEXPIRY, HEADERS\r\n"
        )
    assert world("TOPIC ADD t body 0 TTL") == b"-ERR syntax error: TTL needs a value\r\n"
    assert world.value("TOPIC ADD t body 0 ASYNC") == []


def test_keys(world: World) -> None:
    """T62.6 A DEDUPE key holds for each queue separately (Z4): where a job has it, its id is in
    the reply and no job is added.
    """
    world("TOPIC SUBSCRIBE t q1")
    first = ids(world, "TOPIC ADD t body 0 DEDUPE k")
    world("TOPIC SUBSCRIBE t q2")
    again = ids(world, "TOPIC ADD t body 0 DEDUPE k")
    assert again[0] == first[0] and len(again) == 2
    assert lengths(world, "q1", "q2") == [1, 1]
    assert ids(world, "TOPIC ADD t body 0 DEDUPE k") == again
    assert lengths(world, "q1", "q2") == [1, 1]


def test_bodies_all_together(world: World) -> None:
    """T62.7 The body counts once for each queue: if all together have more than `max-body-bytes`,
    they are refused.
    """
    world.cfg.max_body_bytes = 100
    for queue in ("q1", "q2"):
        world(f"TOPIC SUBSCRIBE t {queue}")
    assert len(ids(world, "TOPIC ADD t", "x" * 50, "0")) == 2
    text = b"-ERR a body of 51 bytes for 2 queues: all together at most 100\r\n"
    assert world("TOPIC ADD t", "x" * 51, "0") == text


def test_the_memory_of_all_together(world: World) -> None:
    """T62.11 If the bodies of all jobs, and the memory of the jobs without them, are more than
    the rest of `maxmemory`, the ADD is refused as in C3.5.
    """
    for i in range(16):
        world(f"TOPIC SUBSCRIBE t q{i}")
    world.n.limits.memory_bytes = world.n.used_bytes() * 2
    body = "x" * (world.n.used_bytes() // 16)
    refused = world("TOPIC ADD t", body, "0")
    assert refused.startswith(b"-OOM ") and refused.endswith(b": nothing was added\r\n")
    assert len(world.n.jobs) == 0
    assert len(ids(world, "TOPIC ADD t", body[: len(body) // 8], "0")) == 16


def test_a_full_tube(world: World) -> None:
    """T7.1 An ADDJOB to it: `-MAXLEN tube '<name>' is full: its capacity is <n> tasks`."""
    world("TUBE CREATE small limfifottl CAPACITY 1")
    world("TOPIC SUBSCRIBE t small")
    assert len(ids(world, "TOPIC ADD t body 0")) == 1
    full = b"-MAXLEN tube 'small' is full: its capacity is 1 tasks"
    assert world("ADDJOB small body 0") == full + b"\r\n"
    refused = world("TOPIC ADD t body 0")
    assert refused == full + b": queue 'small' of topic 't', nothing was added\r\n"


def test_figures(world: World) -> None:
    """T62.9 INFO has a section Topics: topics, subscriptions, removals that are kept, bytes, ADDs,
    their jobs, and ADDs that no queue got.
    """
    before = world.n.used_bytes()
    for queue in ("q1", "q2"):
        world(f"TOPIC SUBSCRIBE t {queue}")
    world("TOPIC SUBSCRIBE u q1 FILTER kind x")
    world("TOPIC UNSUBSCRIBE t q2")
    ids(world, "TOPIC ADD t body 0")
    ids(world, "TOPIC ADD u body 0")
    info = world.info("topics")
    assert int(info["topic_bytes"]) > 3 * 400
    assert world.n.used_bytes() > before
    del info["topic_bytes"]
    assert info == {
        "topics": "2",
        "topic_subscriptions": "2",
        "topic_removals": "1",
        "topic_adds": "2",
        "topic_jobs": "1",
        "topic_adds_unheard": "1",
    }


def test_forgotten_by_flushall(make_world: Callable[..., World]) -> None:
    """T60.7 Topics and subscriptions count as used memory (M1). FLUSHALL and CLUSTER RESET forget
    them here.
    """
    world = make_world()
    world("TOPIC SUBSCRIBE t q")
    world("TOPIC SUBSCRIBE t gone")
    world("TOPIC UNSUBSCRIBE t gone")
    kinds(world)
    assert world("DEBUG FLUSHALL") == b"+OK\r\n"
    assert world.value("TOPIC LIST") == LISTED
    assert world.info("topics")["topic_bytes"] == "0"
    assert kinds(world).count(TOPIC) == 2


def test_removals_are_bounded(world: World) -> None:
    """T60.5 Of removals the 10,000 latest are kept."""
    for i in range(GONE_MAX):
        world.n.topics.put(Subscription(b"t%d" % i, b"q", [], 1, world.n.node_id, True))
    world("TOPIC SUBSCRIBE t q")
    world("TOPIC UNSUBSCRIBE t q")
    assert len(world.n.topics.gone) == GONE_MAX
    assert (b"t0", b"q") not in world.n.topics.gone and (b"t", b"q") in world.n.topics.gone


def test_tubes_of_other_leaders(world: World) -> None:
    """T62.10 (cluster) ADD runs at the leader of the topic's tubes: elsewhere the reply is
    `-TUBEHOME` (T17.3). So all tubes that get a job need one leader; with several: `-TUBESAPART
    tubes '<name>' and '<name>' of topic '<topic>' have different leaders, nothing was added: give
    them one leader with TUBE HOME`.
    """
    for name in ("a", "b"):
        world(f"TUBE CREATE {name} tasks")
        world(f"TOPIC SUBSCRIBE t {name}")
    world("TOPIC SUBSCRIBE t q")
    t = tubes_of(world.n)
    world.pass_ms(world.n.limits.node_timeout_ms)  # T60.8
    world.server.members.restore(OTHER, "10.0.0.2", 7712, 17712, 0)
    lose_home(world.n, t, t.by_name[b"b"], OTHER, 2)
    apart = (
        b"-TUBESAPART tubes 'a' and 'b' of topic 't' have different leaders, nothing was added: "
    )
    assert world("TOPIC ADD t body 0").startswith(apart)
    lose_home(world.n, t, t.by_name[b"a"], OTHER, 2)
    there = b"-TUBEHOME 10.0.0.2:7712 Tube 'a' has its leader there\r\n"
    assert world("TOPIC ADD t body 0") == there
    assert len(world.n.jobs) == 0
