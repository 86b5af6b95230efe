"""Jobs that begin at a time, and jobs that expire at one (SPEC U1.16, U1.17)."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from tuque.errors import NoResult
from tuque.testing import TestApp
from tuque.worker import App, Options, Tasks, group
from tuque.worker.app.enqueue import Adding

ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))


def app_of(did: list[str]) -> App:
    app = App("tuque://127.0.0.1:1", defaults=Options(ttl_s=5000))

    @app.task(name="note", keep_s=600)
    def note(text: str) -> None:
        did.append(text)

    return app


def seconds(count: float) -> dt.timedelta:
    return dt.timedelta(seconds=count)


def test_a_job_begins_at_a_time() -> None:
    """U1.16 `enqueue_at` adds a job with the DELAY from now until that time, in whole seconds,
    rounded up; for a time that is over, 0. Now is what the clock of the producer shows.
    """
    did: list[str] = []
    with TestApp() as tuque:
        note = app_of(did).tasks["note"]
        note.enqueue_at((tuque.now + seconds(59.5)).astimezone(ZONE), "later")
        note.options(attempts=1).enqueue_at(tuque.now - seconds(3600), "over")
        asyncio.run(added_async(note, tuque.now))
        tuque.run_until_idle()
        assert did == ["over"]
        tuque.advance(59.4)
        tuque.run_until_idle()
        assert did == ["over", "soon", "soon, with options"]
        tuque.advance(0.6)
        tuque.run_until_idle()
        assert did[3:] == ["later"]


async def added_async(note: Any, now: dt.datetime) -> None:
    await note.enqueue_at_async(now + seconds(1), "soon")
    await note.options(attempts=1).enqueue_at_async(now + seconds(1), "soon, with options")


def test_a_job_expires_at_a_time() -> None:
    """U1.17 `expires_s` is TTL with ONEXPIRY drop; so is `expires`, the time from `enqueue` to
    that one.
    """
    did: list[str] = []
    with TestApp() as tuque:
        note = app_of(did).tasks["note"]
        prepared = note.options(expires=tuque.now + seconds(100))
        tuque.advance(60)
        handles = [prepared.enqueue("until then"), note.options(expires_s=39.5).enqueue("for 40 s")]
        last = note.options(expires=tuque.now + seconds(40.5)).enqueue("in time")
        tuque.advance(40)
        tuque.run_until_idle()
        assert did == ["in time"]
        assert last.status().state == "done"
        for handle in handles:
            with pytest.raises(NoResult):
                handle.result(1)
        assert not tuque.dead()
        with pytest.raises(ValueError, match=r"expires is a time to come, not .*: it is "):
            prepared.enqueue("too late")
        with pytest.raises(ValueError, match="the job would expire first"):
            late = note.options(expires=tuque.now + seconds(10))
            late.enqueue_at(tuque.now + seconds(10), "never")


def test_the_nearer_end_counts_alone() -> None:
    """U1.17 The nearer one counts alone."""
    app = App(defaults=Options(expires_s=100))
    soon = app.now + seconds(1000)
    group_of = Tasks(expires=soon)
    tasks = [
        app.task(name="defaults")(lambda: None),
        app.task(name="ttl", ttl_s=7)(lambda: None),
        group_of.task(name="group")(lambda: None),
        group_of.task(name="own", expires_s=6.5)(lambda: None),
    ]
    app.include(group_of)
    words = [Adding(one.call()).words()[2] for one in tasks]
    assert [one["ttl"] for one in words] == [100, 7, 1000, 7]
    assert [one.get("on_expiry") for one in words] == ["drop", None, "drop", "drop"]
    assert Adding(tasks[3].options(expires=soon).call()).words()[2]["ttl"] == 1000
    nearest = Adding(tasks[0].options(ttl_s=9).call()).words()[2]
    assert (nearest["ttl"], nearest.get("on_expiry")) == (9, None)


def test_what_becomes_of_a_job_is_said_once() -> None:
    """U1.17 One with `on_expiry="dead"` is a TypeError; of a farther place that does not count."""
    app = App(defaults=Options(ttl_s=60, on_expiry="dead"))
    drops = app.task(name="drops", expires_s=5)(lambda: None)
    assert Adding(drops.call()).words()[2]["on_expiry"] == "drop"
    kept = app.task(name="kept", ttl_s=60, on_expiry="drop")(lambda: None)
    assert Adding(kept.options(ttl_s=9).call()).words()[2]["on_expiry"] == "drop"
    with pytest.raises(TypeError, match="on_expiry='dead' goes with ttl_s"):
        drops.options(on_expiry="dead")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"expires": dt.datetime(2050, 1, 1)}, TypeError, "expires is a datetime with a zone"),
        ({"expires": "2050-01-01"}, TypeError, "expires is a datetime, not '2050"),
        ({"expires": dt.datetime.max.replace(tzinfo=dt.UTC), "ttl_s": 5}, TypeError, "ttl_s and e"),
        ({"expires_s": 5, "ttl_s": 5}, TypeError, "give one of ttl_s and expires_s"),
        ({"expires_s": 5, "ttl_s": 0}, TypeError, "give one of ttl_s and expires_s"),
        ({"expires_s": 5, "on_expiry": "dead"}, TypeError, "drop a job that waits too long"),
        ({"expires_s": "5"}, TypeError, "expires_s is a number of seconds, not '5'"),
        ({"expires_s": 0}, ValueError, "expires_s is more than 0 seconds, up to"),
        ({"expires_s": float("nan")}, ValueError, "expires_s is more than 0 seconds"),
        ({"expires_s": 5, "delay_s": 5}, ValueError, "the job would expire first"),
    ],
)
def test_wrong_times_are_refused_where_they_are_written(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """U1.17 One that is over then is a ValueError, one without a zone a TypeError where it is
    written, as are two of `expires_s`, `expires` and `ttl_s`.
    """
    task = App().task(name="t")(lambda: None)
    for use in (Options, Tasks, task.options):
        with pytest.raises(error, match=words):
            use(**options)  # type: ignore[operator]  # the mistake under test


def test_a_time_without_a_zone_is_refused() -> None:
    """U1.16 A time without a zone is a TypeError."""
    app = App()
    task = app.task(name="t")(lambda: None)
    with pytest.raises(TypeError, match="enqueue_at: the time is a datetime with a zone, not"):
        task.enqueue_at(dt.datetime(2050, 1, 1))  # the mistake under test
    with pytest.raises(TypeError, match="enqueue_at: the time is a datetime, not 60"):
        task.options(attempts=1).enqueue_at(60)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="its jobs cannot have expires"):
        app.schedule("s", task.options(expires=app.now + seconds(9)).call(), every_s=60)
    late = app.task(name="late", queue="other", expires=app.now + seconds(9))(lambda results: None)
    with pytest.raises(TypeError, match="cannot have expires"):
        group([task.call()]).then(late)


def test_the_body_is_kept_with_the_result_alone() -> None:
    app = App(defaults=Options(keep_body=True))
    kept = app.task(name="kept", keep_s=60)(lambda: None)
    assert Adding(kept.call()).words()[2]["keep_body"] is True
    without = app.task(name="without", keep_s=0)(lambda: None)
    assert "keep_body" not in Adding(without.call()).words()[2]
