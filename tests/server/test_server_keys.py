"""ADDJOB with keys on a tube of type tasks (SPEC T40 to T44)."""

from __future__ import annotations

from typing import Any

import pytest

from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.msgs.packed import PLACES_MAX
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.policy import tubes_of
from world import World

KEYS = ("UNIQUE a", "LIMIT a 1", "RATE a 1/s", "GROUP a")
NO_KEYS = b"-NOTUBE UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks\r\n"


NO_END = (
    b"-ERR UNTIL must be done, start or a number of seconds above 0, at most 31622400, not '%s'\r\n"
)


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks") == b"+OK\r\n"
    return world


def bodies(world: World, count: int = 9, queue: str = "t") -> list[str]:
    got = world.value(f"GETJOB NOHANG COUNT {count} FROM {queue}")
    return [job[2].decode() for job in got or []]


def later(world: World, ms: int) -> None:
    world.pass_ms(ms)
    tick(world.n)
    assert world("DEBUG CHECK") == b"+OK\r\n"


@pytest.mark.parametrize("words", KEYS)
def test_keys_need_a_tube_of_type_tasks(world: World, words: str) -> None:
    """T40.5 `-NOTUBE UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks`."""
    world("TUBE CREATE f fifottl")
    assert world(f"ADDJOB q b 0 {words}") == NO_KEYS
    assert world(f"ADDJOB f b 0 {words}") == NO_KEYS
    assert world.value("QLEN f") == 0
    assert world(f"STAGE g 1 1 q b 0 {words}").startswith(b"-ERR")


def test_a_limit_bounds_the_tasks_at_work(tasks: World) -> None:
    """T41.2 Of a limit with n places at most n tasks are TAKEN at once."""
    ids = [tasks.add("t", f"b{i}", "LIMIT", "shop", "2") for i in range(4)]
    other = tasks.add("t", "free")
    assert bodies(tasks) == ["b0", "b1", "free"]
    assert bodies(tasks) == []
    assert tasks.value("QLEN t") == 2
    assert tasks("ACKJOB", ids[0]) == b":1\r\n"
    assert bodies(tasks) == ["b2"]
    tasks("NACK", ids[1])
    assert bodies(tasks) == ["b1"]  # its pri and number come first
    tasks("DELJOB", ids[1])
    assert bodies(tasks) == ["b3"]
    tasks("ACKJOB", other)
    later(tasks, 0)


def test_a_client_that_waits_gets_the_task_as_soon_as_there_is_a_place(tasks: World) -> None:
    first = tasks.add("t", "one", "LIMIT", "shop", "1")
    tasks.add("t", "two", "LIMIT", "shop", "1")
    assert bodies(tasks) == ["one"]
    waits = tasks.wire()
    assert tasks("GETJOB FROM t", by=waits) == b""
    tasks("ACKJOB", first)
    later(tasks, 0)
    assert b"$3\r\ntwo\r\n" in waits.hear()


def test_a_place_comes_back_when_the_time_to_work_is_over(tasks: World) -> None:
    tasks.add("t", "one", "LIMIT", "shop", "1", "RETRY", "5")
    tasks.add("t", "two", "LIMIT", "shop", "1")
    assert bodies(tasks) == ["one"]
    later(tasks, 4_000)
    assert bodies(tasks) == []
    later(tasks, 1_100)
    assert bodies(tasks) == ["one"]


def test_a_rate_gives_tokens_in_time(tasks: World) -> None:
    """T42.1 In any time t at most burst + rate x t tasks of a rate are taken."""
    for i in range(5):
        tasks.add("t", f"b{i}", "RATE", "api", "2/s", "2")
    assert bodies(tasks) == ["b0", "b1"]
    waits = tasks.wire()
    assert tasks("GETJOB FROM t", by=waits) == b""
    later(tasks, 499)
    assert waits.hear() == b""
    assert next_timer_ms(tasks.n) - tasks.n.now_ms == 1
    later(tasks, 1)
    assert b"$2\r\nb2\r\n" in waits.hear()
    later(tasks, 499)
    assert bodies(tasks) == []
    later(tasks, 1)
    assert bodies(tasks) == ["b3"]
    later(tasks, 60_000)
    assert bodies(tasks) == ["b4"]


def test_a_token_comes_though_nobody_waits_for_it(tasks: World) -> None:
    for i in range(2):
        tasks.add("t", f"b{i}", "RATE", "api", "2/s")
    assert bodies(tasks, 1) == ["b0"]
    later(tasks, 500)
    assert bodies(tasks, 1) == ["b1"]


def test_nothing_is_due_while_all_wait_for_places(tasks: World) -> None:
    tasks.add("t", "one", "LIMIT", "shop", "1", "RETRY", "100000")
    before = next_timer_ms(tasks.n)
    for i in range(20):
        tasks.add("t", f"b{i}", "LIMIT", "shop", "1")
    assert bodies(tasks) == ["one"]
    assert bodies(tasks) == []
    assert next_timer_ms(tasks.n) >= min(before, tasks.n.now_ms + 100)


def test_groups_take_turns(tasks: World) -> None:
    """T43.1 Groups that have a task which may go take turns, by deficit round robin."""
    for i in range(6):
        tasks.add("t", f"noisy{i}", "GROUP", "noisy", "WEIGHT", "2")
    tasks.add("t", "quiet", "GROUP", "quiet")
    tasks.add("t", "urgent", "GROUP", "noisy", "WEIGHT", "2", "PRI", "0")
    tasks.add("t", "last", "GROUP", "noisy", "WEIGHT", "2", "PRI", "9")
    assert bodies(tasks, 5) == ["noisy0", "noisy1", "quiet", "noisy2", "noisy3"]
    assert bodies(tasks) == ["noisy4", "noisy5", "urgent", "last"]


def lanes_that_may_go_no_longer(tasks: World) -> bytes:
    """A task is at work, two groups have places, and then the limit has one place; its id."""
    for name in ("a", "b", "c"):
        tasks.add("t", name, "GROUP", name, "LIMIT", "few", "3")
        if name == "a":
            ((_, id, _),) = tasks.value("GETJOB NOHANG FROM t")
    tasks.add("t", "d", "GROUP", "c", "LIMIT", "few", "1")
    assert tasks("DEBUG CHECK") == b"+OK\r\n"
    assert isinstance(id, bytes)
    return id


def test_lanes_that_wait_again_at_a_take_are_counted(tasks: World) -> None:
    """T41.4 If these are more than the places, no task of the limit goes before they are fewer."""
    id = lanes_that_may_go_no_longer(tasks)
    t = tubes_of(tasks.n)
    before, of_driver = t.bytes_used, t.by_name[b"t"].driver.bytes_used
    assert bodies(tasks) == []
    grown = t.by_name[b"t"].driver.bytes_used - of_driver
    assert t.bytes_used - before == grown > 0
    assert tasks("DEBUG CHECK") == b"+OK\r\n"
    assert tasks.value("ACKJOB", id) == 1
    assert bodies(tasks) == ["b"]
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


def test_figures_change_nothing(tasks: World) -> None:
    """O10.1 A queue is meant if it exists here, or a job of it is known here."""
    lanes_that_may_go_no_longer(tasks)
    t = tubes_of(tasks.n)
    driver = t.by_name[b"t"].driver
    assert isinstance(driver, Tasks)
    tasks.pass_ms(7_000)
    before = (t.bytes_used, driver.bytes_used, driver.line.count, driver.keys())
    rows = tasks.value("QLIST SORT oldest")[1]
    assert rows[0][6] == 7_000, "oldest-ms"
    assert (t.bytes_used, driver.bytes_used, driver.line.count, driver.keys()) == before
    assert driver.line.count == 2
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


@pytest.mark.parametrize("key", ["LIMIT k 1", "RATE k 1/h"])
def test_who_waits_for_a_key_is_late(tasks: World, key: str) -> None:
    """S2.4 If READY tasks wait for a LIMIT or a RATE, it is at least the age of the next task of
    the limit, and of the rate, for which tasks have waited longest (T47.2).

    O3.3 In a tube `oldest-ms` is the age of the tasks that S2.4 names."""

    def ages() -> tuple[int, int]:
        return tasks.value("QSTAT t")[-3], tasks.value("QLIST")[1][0][6]

    def add(body: str, words: str) -> None:
        assert len(tasks.value("ADDJOB", "t", body, "0", *words.split())) == 40

    add("at work", key)
    assert bodies(tasks) == ["at work"]
    assert ages() == (0, 0)
    tasks.pass_ms(5_000)
    add("held", key)
    tasks.pass_ms(5_000)
    add("held too", key)
    tasks.pass_ms(70_000)
    assert ages() == (75, 75_000), "nothing else is READY"
    add("free", "PRI 9")
    tasks.pass_ms(4_000)
    assert ages() == (79, 79_000)
    assert bodies(tasks) == ["free"]
    add("free", "PRI 9")
    assert tasks.value("TUBE TRUNCATE t") == 5
    assert ages() == (0, 0)
    add("free", "")
    tasks.pass_ms(4_000)
    assert ages() == (4, 4_000), "the next one"
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


def test_a_second_add_of_a_unique_key_meets_the_first(tasks: World) -> None:
    """T44.4 An ADDJOB with a key that is taken replies with the id of the task that has it, or
    had it first.
    """
    first = tasks.add("t", "one", "UNIQUE", "order-7")
    assert tasks.add("t", "two", "UNIQUE", "order-7") == first
    assert tasks.value("ADDJOB t three 0 WITHNEW UNIQUE order-7") == [first, 0]
    assert tasks.value("ADDJOB t three 0 WITHNEW UNIQUE order-8")[1] == 1
    assert tasks("ADDJOB t four 0 UNIQUE order-7 ON reject") == (
        b"-DUPLICATE %s has this UNIQUE key\r\n" % first
    )
    assert bodies(tasks) == ["one", "three"]
    assert tasks.add("t", "two", "UNIQUE", "order-7") == first  # at work: it has it still
    tasks("TUBE BURY t 0")  # T44.2: it is dead
    second = tasks.add("t", "two", "UNIQUE", "order-7")
    assert second != first
    assert tasks("TUBE CREATE u tasks") == b"+OK\r\n"
    assert tasks.add("u", "two", "UNIQUE", "order-7") not in (first, second)
    later(tasks, 0)
    tasks("TUBE TRUNCATE t")
    assert tubes_of(tasks.n).by_name[b"t"].driver.bytes_used == 0


def test_a_key_until_start_is_free_after_the_first_take(tasks: World) -> None:
    """T44.2 With UNTIL start it loses the key for good when it is first taken."""
    first = tasks.add("t", "one", "UNIQUE", "cache", "UNTIL", "start")
    assert tasks.add("t", "two", "UNIQUE", "cache", "UNTIL", "start") == first
    assert bodies(tasks) == ["one"]
    second = tasks.add("t", "two", "UNIQUE", "cache", "UNTIL", "start")
    assert second != first
    tasks("NACK", first)
    assert tasks.add("t", "three", "UNIQUE", "cache", "UNTIL", "start") == second
    assert bodies(tasks) == ["one", "two"]


@pytest.mark.parametrize("ends", ["ACKJOB $", "DELJOB $", "DEADLETTER $ lost", "nothing"])
def test_a_key_for_a_time_is_taken_whatever_becomes_of_the_task(tasks: World, ends: str) -> None:
    """T44.3 With UNTIL a number of seconds a key is taken for that time from the add, whatever
    becomes of the task. Then it is free, also while the task waits or is at work. T44.4 An
    ADDJOB with a key that is taken replies with the id of the task that has it, or had it first.
    """
    words = ("UNIQUE", "order-7", "UNTIL", "1.5")
    first = tasks.add("t", "one", *words)
    assert bodies(tasks) == ["one"]
    if ends != "nothing":
        assert not tasks(ends.replace("$", first.decode())).startswith(b"-")
        assert tasks.value("SHOW", first) is None
    later(tasks, 1_499)
    assert tasks.value("ADDJOB t two 0 WITHNEW", *words) == [first, 0]
    duplicate = b"-DUPLICATE %s has this UNIQUE key\r\n" % first
    assert tasks("ADDJOB t two 0 ON reject", *words) == duplicate
    assert tasks("ADDJOB t two 0 ON replace", *words) == duplicate
    assert bodies(tasks) == []
    later(tasks, 1)
    second, is_new = tasks.value("ADDJOB t two 0 WITHNEW", *words)
    assert (is_new, second == first) == (1, False)
    assert bodies(tasks) == ["two"]
    tasks("ACKJOB", first)  # at work: the key is the second one's, and stays so
    assert tasks.add("t", "three", *words) == second


def test_a_task_that_waits_is_replaced_while_its_key_is_taken_for_a_time(tasks: World) -> None:
    """T44.7 Of one that is TAKEN or BURIED the reply is that of T44.5. So it is of one that has
    ended (T44.3). The time of a key goes on."""
    words = ("UNIQUE", "u", "UNTIL", "60", "ON", "replace")
    first = tasks.add("t", "one", *words)
    later(tasks, 59_000)
    assert tasks.add("t", "two", *words) == first
    later(tasks, 1_000)
    assert tasks.add("t", "three", *words) != first
    assert bodies(tasks) == ["two", "three"]


def test_what_keeps_a_key_is_seen_and_can_be_deleted(tasks: World) -> None:
    """T44.8 SHOW of a task that keeps a key has unique, until-ms, and in `key-of` the id of the
    first task. TUBE DELETE and DELJOB of it free the key. TUBE BURY: `-WRONGTUBE task <number>
    keeps a UNIQUE key: delete it to free the key`.
    """
    first = tasks.add("t", "one", "UNIQUE", "u", "UNTIL", "1.5")
    end_ms = tasks.n.now_ms + 1_500
    shown = tasks.value("SHOW", first)
    fields = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (fields[b"until"], fields[b"until-ms"]) == (b"1.5", end_ms)
    tasks("DELJOB", first)
    (id,) = tasks.value("JSCAN QUEUE t")[1]
    shown = tasks.value("SHOW", id)
    fields = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (fields[b"unique"], fields[b"until-ms"], fields[b"key-of"]) == (b"u", end_ms, first)
    assert fields[b"status"] == b"DELAYED"
    assert tasks("TUBE BURY t 1") == (
        b"-WRONGTUBE task 1 keeps a UNIQUE key: delete it to free the key\r\n"
    )
    for words in ("ACKJOB", "NACK", "ENQUEUE"):
        assert tasks(words, id) == b":0\r\n"
    assert tasks("START", id).startswith(b"*1\r\n-")
    assert b"is the keeper of a UNIQUE key" in tasks("UPDATEJOB", id, "PRI", "3")  # T1.11
    later(tasks, 0)
    assert tasks.add("t", "two", "UNIQUE", "u") == first
    assert tasks("TUBE DELETE t 1").startswith(b"*")
    assert tasks.add("t", "two", "UNIQUE", "u") != first
    later(tasks, 0)


def test_a_delayed_task_has_its_unique_key(tasks: World) -> None:
    first = tasks.add("t", "one", "UNIQUE", "k", "DELAY", "5")
    assert tasks.add("t", "two", "UNIQUE", "k") == first
    later(tasks, 6_000)
    assert bodies(tasks) == ["one"]
    tasks("ACKJOB", first)
    assert tasks.add("t", "two", "UNIQUE", "k") != first


def test_show_has_the_keys(tasks: World) -> None:
    """T40.7 SHOW of such a task has, in place of utube, those of unique and until, ..."""
    words = "UNIQUE u UNTIL start LIMIT l 3 RATE r 10/m 4 GROUP g WEIGHT 2"
    id = tasks.add("t", "b", *words.split())
    shown = tasks.value("SHOW", id)
    fields = dict(zip(shown[::2], shown[1::2], strict=True))
    wanted = {
        b"unique": b"u", b"until": b"start", b"limit": b"l", b"places": 3, b"rate": b"r",
        b"token-us": 6_000_000, b"burst": 4, b"group": b"g", b"weight": 2,
    }  # fmt: skip
    assert {name: fields.get(name) for name in wanted} == wanted
    assert b"utube" not in fields
    plain = tasks.value("SHOW", tasks.add("t", "plain"))
    assert not set(plain[::2]) & {*wanted, b"utube"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("LIMIT a 0", b"-ERR LIMIT must be a number from 1 to 1000000, not '0'\r\n"),
        (
            "LIMIT a",
            b"-ERR syntax error: LIMIT takes a key and a number from 1 to %d\r\n" % PLACES_MAX,
        ),
        (
            "RATE a",
            b"-ERR syntax error: RATE takes a key and n/s, n/m or n/h, n from 1 to 1000000\r\n",
        ),
        ("RATE a 5", b"-ERR RATE must be n/s, n/m or n/h, n from 1 to 1000000, not '5'\r\n"),
        ("RATE a 0/s", b"-ERR RATE must be n/s, n/m or n/h, n from 1 to 1000000, not '0/s'\r\n"),
        ("RATE a 5/d", b"-ERR RATE must be n/s, n/m or n/h, n from 1 to 1000000, not '5/d'\r\n"),
        (
            "RATE a 1/h 1000000",
            b"-ERR RATE's burst must be a number from 1 to 277777, not '1000000'\r\n",
        ),
        ("GROUP a WEIGHT 0", b"-ERR WEIGHT must be a number from 1 to 1000, not '0'\r\n"),
        ("WEIGHT 3", b"-ERR WEIGHT needs a GROUP\r\n"),
        ("UNTIL done", b"-ERR UNTIL needs a UNIQUE key\r\n"),
        ("ON reject", b"-ERR ON needs a UNIQUE key\r\n"),
        ("UNIQUE a UNTIL never", NO_END % b"never"),
        ("UNIQUE a UNTIL 0", NO_END % b"0"),
        ("UNIQUE a UNTIL -1", NO_END % b"-1"),
        ("UNIQUE a UNTIL 31622400.001", NO_END % b"31622400.001"),
        ("UNIQUE a ON other", b"-ERR ON must be keep, reject or replace, not 'other'\r\n"),
        ("GROUP " + "x" * 256, b"-ERR GROUP key must be 1 to 255 bytes\r\n"),
    ],
)
def test_wrong_words_add_nothing(tasks: World, words: str, said: bytes) -> None:
    """T40.8 `-ERR WEIGHT needs a GROUP`."""
    assert tasks(f"ADDJOB t b 0 {words}") == said
    assert tasks.value("QLEN t") == 0


def test_a_fast_rate_has_a_burst_by_default(tasks: World) -> None:
    """T40.8 the burst is by default what comes in 20 ms, at least 1."""
    for i in range(30):
        tasks.add("t", f"b{i}", "RATE", "api", "1000/s")
    assert len(bodies(tasks, 50)) == 20


def test_a_tube_keeps_a_bounded_number_of_keys(tasks: World) -> None:
    """T40.6 A tube that knows 1,000,000 keys takes no more."""
    first = tasks.add("t", "b", "UNIQUE", "mine")
    driver = tubes_of(tasks.n).by_name[b"t"].driver
    assert isinstance(driver, Tasks)
    many: Any = dict.fromkeys(range(999_999))
    driver.uniques.claims.update(many)
    said = b"-OOM tube 't' has 1000000 keys, the most that a tube keeps\r\n"
    assert driver.keys() >= 1_000_000
    assert tasks("ADDJOB t b 0 GROUP g") == said
    assert tasks.add("t", "b", "UNIQUE", "mine") == first
    tasks.add("t", "plain")
    for number in range(999_999):
        del driver.uniques.claims[number]  # type: ignore[arg-type]  # which are no claims


def test_a_waiting_task_gets_another_body(tasks: World) -> None:
    """T44.7 With ON replace a task that is READY or DELAYED gets the body of the ADDJOB, and stays
    what it was otherwise: id, place, delay, keys and options. Of one that is TAKEN or BURIED the
    reply is that of T44.5."""
    words = ("UNIQUE", "u", "ON", "replace")
    id = tasks.add("t", "one", *words)
    tasks.add("t", "other")
    assert tasks.add("t", "two-two", *words) == id
    assert tasks.value("ADDJOB t three 0 WITHNEW", *words) == [id, 0]
    late = tasks.add("t", "late", "DELAY", "5", "UNIQUE", "v")
    assert tasks.add("t", "later", "UNIQUE", "v", "ON", "replace") == late
    assert tasks("DEBUG CHECK") == b"+OK\r\n"
    assert bodies(tasks) == ["three", "other"]
    wanted = b"-DUPLICATE %s has this UNIQUE key\r\n" % id
    assert tasks("ADDJOB t four 0", *words) == wanted
    later(tasks, 5_020)
    assert bodies(tasks) == ["later"]
    assert tasks("ADDJOB t b 0 UNIQUE u ON x").startswith(b"-ERR")


def test_maxlen_of_a_topic_counts_the_tasks_of_a_tube(tasks: World) -> None:
    """T1.1 MAXLEN counts READY tasks, at the leader: so the bound holds for all producers of the
    cluster, also while their tasks wait for copies (T18.5). A task that its keys hold back counts.
    """
    tasks("TOPIC SUBSCRIBE news t")
    tasks.add("t", "one", "LIMIT", "l", "1")
    assert bodies(tasks) == ["one"]
    tasks.add("t", "two", "LIMIT", "l", "1")
    assert tasks("TOPIC ADD news b 0 MAXLEN 1").startswith(b"-MAXLEN ")
    assert tasks("TOPIC ADD news b 0 MAXLEN 2").startswith(b"*1\r\n")
    assert tasks("TOPIC ADD news b 0 MAXLEN 2").startswith(b"-MAXLEN ")
    assert tasks.value("QLEN t") == 2
