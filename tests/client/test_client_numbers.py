"""What is no number, or no key, is refused by the name of its argument before anything is sent."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tuque import Client, aio
from tuque.client.commands import (
    calls,
    dead,
    groups,
    schedules,
    staged,
    topics,
    tubes,
    work,
)
from tuque.client.commands.calls import seconds, whole
from tuque.client.transport.conn import Conn
from tuque.client.url import settings
from tuque.errors import ConfigError
from tuque.worker import App

ID = "D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1"
NO_TIMES: tuple[Any, ...] = (math.nan, math.inf, "5", timedelta(seconds=5), True)
NO_COUNTS: tuple[Any, ...] = (math.nan, math.inf, 1.5, "5", True)

# by call and argument
TIMES: dict[str, Callable[[Any], object]] = {
    "addjob delay": lambda v: calls.addjob("q", "b", delay=v),
    "addjob keep": lambda v: calls.addjob("q", "b", keep=v),
    "addjob time_limit": lambda v: calls.addjob("q", "b", time_limit=v),
    "addjob ttl": lambda v: calls.addjob("q", "b", ttl=v),
    "updatejob ttl": lambda v: work.updatejob(ID, ttl=v),
    "addjob backoff": lambda v: calls.addjob("q", "b", backoff=(1, v, 0.5)),
    "addjob_new delay": lambda v: staged.addjob_new("q", "b", delay=v),
    "stage delay": lambda v: staged.stage("t", "a", "q", "b", ttl_ms=1, delay=v),
    "topic_add delay": lambda v: topics.topic_add("t", "b", delay=v),
    "schedule_add every_s": lambda v: schedules.schedule_add("q", "n", "b", every_s=v),
    "group_create keep": lambda v: groups.group_create("q", 2, keep=v),
    "nack delay": lambda v: calls.nack(ID, delay=v),
    "release delay": lambda v: work.release((ID, "1.1.aaaaaa"), delay=v),
    "fail delay": lambda v: work.fail(ID, "1.1.aaaaaa", delay=v),
    "updatejob delay": lambda v: work.updatejob(ID, body="b", delay=v),
    "create ttl": lambda v: tubes.create("t", "fifottl", ttl=v),
    "create ttr": lambda v: tubes.create("t", "fifottl", ttr=v),
    "put delay": lambda v: tubes.put("t", "b", delay=v),
    "put wait": lambda v: tubes.put("t", "b", wait=v),
    "take wait": lambda v: tubes.take("t", v),
    "touch increment": lambda v: tubes.touch("t", 1, v),
    "release_task delay": lambda v: tubes.release("t", 1, delay=v),
    "tube_cfg ttr": lambda v: tubes.tube_cfg(ttr=v),
}
COUNTS: dict[str, Callable[[Any], object]] = {
    "addjob timeout_ms": lambda v: calls.addjob("q", "b", timeout_ms=v),
    "addjob retry": lambda v: calls.addjob("q", "b", retry=v),
    "addjob maxlen": lambda v: calls.addjob("q", "b", maxlen=v),
    "addjob replicate": lambda v: calls.addjob("q", "b", replicate=v),
    "addjob attempts": lambda v: calls.addjob("q", "b", attempts=v),
    "addjob pri": lambda v: calls.addjob("q", "b", pri=v),
    "addjob limit": lambda v: calls.addjob("q", "b", limit=("k", v)),
    "addjob group": lambda v: calls.addjob("q", "b", group=("k", v)),
    "addjob dedupe_ttl": lambda v: calls.addjob("q", "b", dedupe="k", dedupe_ttl=v),
    "topic_add timeout_ms": lambda v: topics.topic_add("t", "b", timeout_ms=v),
    "getjob timeout_ms": lambda v: calls.getjob("q", timeout_ms=v),
    "result wait_ms": lambda v: work.result(ID, wait_ms=v),
    "waitjob wait_ms": lambda v: work.waitjob(ID, wait_ms=v),
    "waitjob count": lambda v: work.waitjob(ID, count=v),
    "dead_replay rate": lambda v: dead.dead_replay_page("d", "0", dead.DeadFilters(), rate=v),
    "at_once rate": dead.at_once,
}


@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
@pytest.mark.parametrize("row", TIMES)
def test_what_is_no_time_is_refused_by_name(row: str, value: Any) -> None:
    name = row.split()[1]
    kind = ValueError if isinstance(value, float) else TypeError
    said = f"{name} must be a number of seconds"
    with pytest.raises(kind, match=re.escape(said)) as caught:
        TIMES[row](value)
    assert str(caught.value).endswith(f"not {value!r}")


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("row", COUNTS)
def test_what_is_no_whole_number_is_refused_by_name(row: str, value: Any) -> None:
    said = f"{row.split()[1]} must be a whole number, not {value!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        COUNTS[row](value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=repr)
def test_a_key_is_taken_until_a_time(value: float) -> None:
    said = f"^unique_until must be a number of seconds, not {value!r}$"
    with pytest.raises(ValueError, match=said):
        calls.addjob("q", "b", unique="k", unique_until=value)


def test_numbers_of_any_kind_are_taken() -> None:
    assert [seconds("delay", value) for value in (5, 5.0, Decimal("2.5"))] == [5, 5, "2.500"]
    assert seconds("delay", 10**400) == 10**400  # the node says what is too much
    assert whole("count", 7) == 7


UNKNOWN: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (calls.addjob, {"until": 5}, "addjob() got an unexpected keyword argument 'until'; did you mean"
     " 'unique_until'?"),
    (calls.addjob, {"on": "keep"}, "addjob() got an unexpected keyword argument 'on'; did you mean"
     " 'unique_on'?"),
    (calls.addjob, {"bogus": 5}, "addjob() got an unexpected keyword argument 'bogus'"),
    (staged.addjob_new, {"bogus": 5}, "addjob_new() got an unexpected keyword argument 'bogus'"),
    (schedules.schedule_add, {"name": "n", "unique_on": "keep"},
     "schedule_add() got an unexpected keyword argument 'unique_on'"),
    (calls.addjob, {"limit": 5}, "limit must be a tuple of a key and a number of tasks, not 5"),
    (calls.addjob, {"limit": ("k",)},
     "limit must be a tuple of a key and a number of tasks, not ('k',)"),
    (calls.addjob, {"rate": "10/s"},
     "rate must be a tuple of a key, a rate as '10/s' and perhaps a burst, not '10/s'"),
    (calls.addjob, {"group": ("k", 1, 2)},
     "group must be a tuple of a key and a weight, not ('k', 1, 2)"),
    (calls.addjob, {"headers": [("a", "b")]},
     "headers must be a mapping of names to text, not [('a', 'b')]"),
    (calls.addjob, {"backoff": 5},
     "backoff must be a tuple of the first wait, the longest and a random share, not 5"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "given", "said"), UNKNOWN, ids=[row[2] for row in UNKNOWN])
def test_what_the_call_does_not_know_is_named(
    build: Callable[..., object], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        build("q", body="b", **given)


@pytest.mark.parametrize("value", [math.nan, -1, "5", True], ids=repr)
def test_a_timeout_is_a_number_of_seconds(value: Any) -> None:
    kind = TypeError if isinstance(value, str | bool) else ValueError
    with pytest.raises(kind, match=rf"^timeout must be .* not {re.escape(repr(value))}$"):
        calls.qlen("q", timeout=value)
    with pytest.raises(ConfigError, match="^timeout must be more than 0 and at most 86400 seconds"):
        settings(timeout=value if value is not True else -1)


def test_a_very_long_timeout_is_none() -> None:
    assert calls.qlen("q", timeout=1e30).timeout_s == math.inf


@pytest.mark.parametrize("value", [None, 5, ["a"]], ids=repr)
def test_what_is_no_job_no_tube_and_no_word_is_named(value: Any) -> None:
    with pytest.raises(
        TypeError, match=f"^a job or its id is needed, not {re.escape(repr(value))}$"
    ):
        calls.ackjob(value)
    with (
        Client("tuque://127.0.0.1:1") as client,
        pytest.raises(
            TypeError, match=f"^name: text or bytes are needed, not {re.escape(repr(value))}$"
        ),
    ):
        client.tube(value)
    if value is not None:
        with pytest.raises(TypeError, match="^a client URL is a str, not "):
            Client(value)


def test_a_value_that_cannot_be_sent_is_named() -> None:
    wire = Conn(settings().seeds[0])
    for words, said in (
        (
            ("GETJOB", "COUNT", None),
            "GETJOB: the value of COUNT must be text, bytes or a number, not None",
        ),
        (
            ("TUBE", "ACK", b"t", []),
            "TUBE ACK: an argument must be text, bytes or a number, not []",
        ),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
            wire.pack([("PING",), words])  # type: ignore[list-item]  # the mistake under test
        assert wire.unanswered == 0


def test_connections_are_a_whole_number() -> None:
    for value in (math.nan, 1.5, "5", 0):
        with pytest.raises(ConfigError, match="^max_connections must be 1 to 65535, not"):
            settings(max_connections=value)  # type: ignore[arg-type]  # what is tested


def test_both_clients_and_pipelines_refuse_it_before_they_connect() -> None:
    """Nothing listens at the address: a call that was sent would fail otherwise."""
    url = "tuque://127.0.0.1:1"
    said = "^every_s must be a number of seconds, not nan$"
    with Client(url) as client, pytest.raises(ValueError, match=said):
        client.schedule_add("q", "n", "b", every_s=math.nan)
    with Client(url) as client, pytest.raises(ValueError, match=said):
        client.pipeline().schedule_add("q", "n", "b", every_s=math.nan)

    async def ask() -> None:
        async with aio.Client(url) as other:
            await other.schedule_add("q", "n", "b", every_s=math.nan)

    with pytest.raises(ValueError, match=said):
        asyncio.run(ask())


@pytest.mark.parametrize("make", [Client, aio.Client])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"retry": 3}, "retry must be a tuque.Retry, not 3"),
        ({"name": 5}, "name must be a str, not 5"),
        ({"name": b"x"}, "name must be a str, not b'x'"),
        ({"follow": "no"}, "follow must be True or False, not 'no'"),
        ({"discover": "no"}, "discover must be True or False, not 'no'"),
        ({"on_cancel": 5}, "on_cancel must be a function, not 5"),
        ({"on_order": 5}, "on_order must be a function, not 5"),
    ],
)
def test_an_argument_of_a_client_is_checked_at_once(
    make: Any, words: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        make("tuque://127.0.0.1:1", **words)


@pytest.mark.parametrize("version", [b"x", 1.5])
def test_the_version_of_an_app_is_checked_at_once(version: Any) -> None:
    with pytest.raises(TypeError, match=f"^version must be a str, not {re.escape(repr(version))}$"):
        App("tuque://127.0.0.1:1", version=version)


def test_a_whole_number_over_64_bits_is_refused_by_name() -> None:
    for build in (
        lambda value: calls.addjob("q", "x", timeout_ms=value),
        lambda value: calls.getjob("q", timeout_ms=value),
    ):
        build(2**63 - 1)
        with pytest.raises(ValueError, match="^timeout_ms must be a whole number of 64 bits, not"):
            build(2**63)


def test_a_lone_surrogate_is_refused_by_name() -> None:
    for name, build in (
        ("queue", lambda text: calls.addjob(text, "x")),
        ("body", lambda text: calls.addjob("q", text)),
    ):
        build("\udcff")  # a byte that is not UTF-8
        with pytest.raises(ValueError, match=rf"^{name}: .* as UTF-8: '\\ud800'$"):
            build("\ud800")
