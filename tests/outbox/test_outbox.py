"""The outbox: what is committed becomes jobs, each once and in order; what is not does not."""

from __future__ import annotations

import threading
from typing import Any
from urllib.request import urlopen

import outbox_shop as shop
import pytest
from sqlalchemy import text

from lab import RealServer
from tuque import Client
from tuque.cli.programs import free_port
from tuque.errors import ConfigError
from tuque.outbox import relay as relays
from tuque.outbox.alchemy import connector
from tuque.outbox.main import Meter, listening
from tuque.outbox.relay import Relay
from tuque.outbox.rows import LostSlot, Tables
from tuque.worker.app.codec import decode
from until import until


def added(engine: Any, *numbers: int, group: str = "", **options: Any) -> None:
    """Commits these calls."""
    with engine.begin() as db:
        for number in numbers:
            shop.outbox.add(db, shop.welcome.options(**options).call(number), group=group)


def taken(node: RealServer, queue: str = "mail") -> list[int]:
    """The numbers of the jobs of a queue, in their order, which are acknowledged."""
    found: list[int] = []
    with Client(node.url) as client:
        while jobs := client.getjob(queue, count=1000, nohang=True):
            found += [decode(job.body).args[0] for job in jobs]
            client.ackjob(*[job.id for job in jobs])
    return found


@pytest.fixture
def relay(engine: Any, own_node: RealServer) -> Any:
    made = Relay(connector(engine), own_node.url)
    yield made
    made.close()


def test_what_is_committed_is_sent_once_and_in_order(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    added(engine, *range(1200))
    assert relay.drain() == 1200 and relay.drain() == 0
    assert taken(own_node) == list(range(1200))
    with engine.begin() as db:
        assert (
            db.execute(text("SELECT count(*) FROM tuque_outbox WHERE sent IS NULL")).scalar() == 0
        )


def test_what_is_rolled_back_is_never_a_job(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    with pytest.raises(ZeroDivisionError), engine.begin() as db:
        shop.outbox.add(db, shop.welcome.call(1))
        raise ZeroDivisionError
    assert relay.drain() == 0 and taken(own_node) == []


def test_an_error_of_a_call_is_raised_in_the_transaction(engine: Any) -> None:
    with engine.begin() as db:
        late, named = shop.welcome.options(pri=10), shop.welcome.options(key="a")
        for call in (shop.limited.call(1), named.call(1), late.call(1)):
            with pytest.raises(TypeError, match="is not for an outbox"):
                shop.outbox.add(db, call)
        with pytest.raises(TypeError, match="takes a call of a task"):
            shop.outbox.add(db, 1)


def test_a_worker_runs_what_was_sent_with_its_options(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    options: dict[str, Any] = {"keep_s": 60, "dead": "grave", "retry_s": 17, "pri": 1}
    added(engine, 7, attempts=9, headers={"tenant": "a"}, **options)
    relay.drain()
    with Client(own_node.url) as client:
        (job,) = client.getjob("mail", nohang=True)
        info = client.show(job.id)
    envelope = decode(job.body)
    assert (envelope.task, envelope.args, envelope.max_deliveries) == (
        "outbox_shop.welcome",
        [7],
        9,
    )
    assert info is not None and info.retry_s == 17 and info.ttl_s > 10**9 and info.pri == 1
    work = info.work
    assert work is not None and (work.attempts, work.keep_s, work.dead) == (9, 60, "grave")
    assert work.headers == {"tenant": "a", "tuque-task": "outbox_shop.welcome"}


def test_the_row_says_the_id_of_its_job(engine: Any, own_node: RealServer, relay: Relay) -> None:
    with engine.begin() as db:
        ticket = shop.outbox.add(db, shop.welcome.call(1))
    with engine.begin() as db:
        assert shop.outbox.job(db, ticket) is None
    relay.drain()
    with engine.begin() as db:
        id = shop.outbox.job(db, ticket)
    with Client(own_node.url) as client:
        (job,) = client.getjob("mail", nohang=True)
    assert job.id == id


def test_a_delay_counts_from_when_it_is_sent(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    added(engine, 1, delay_s=60)
    relay.drain()
    assert taken(own_node) == []
    with Client(own_node.url) as client:
        assert client.qlist(names=["mail"]).rows[0].delayed == 1


def test_a_refused_row_waits_with_what_follows_in_its_group(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    with Client(own_node.url) as client:
        client.tube("tube").create("fifo")
    added(engine, 1, group="a", queue="tube")
    added(engine, 2, 3, group="a")
    added(engine, 4, group="b")
    assert relay.drain() == 1 and taken(own_node) == [4]
    assert relay.refused == 1
    with engine.begin() as db:
        error, tries = db.execute(
            text("SELECT error, tries FROM tuque_outbox WHERE queue = 'tube'")
        ).one()
        assert "is a tube" in error and tries == 1
        db.execute(text("UPDATE tuque_outbox SET not_before = 0, queue = 'mail'"))
    assert relay.drain() == 3 and taken(own_node) == [1, 2, 3]


def test_only_the_relay_that_owns_the_slot_writes(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    if engine.dialect.name != "sqlite":
        pytest.skip("the second one waits for the lock of the first")
    added(engine, 1)
    relay.drain()
    other = Relay(connector(engine), own_node.url)
    assert other.drain() == 0
    added(engine, 2)
    with pytest.raises(LostSlot):
        relay.drain()
    assert other.drain() == 1 and taken(own_node) == [1, 2]
    other.close()


def test_it_stays_with_the_node_that_knows_the_versions(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    added(engine, 1)
    relay.drain()
    relay.close()
    with engine.begin() as db:
        db.execute(text("UPDATE tuque_outbox_slot SET node = 'another'"))
    with pytest.raises(ConfigError, match="no node of .* has the id another"):
        relay.drain()


def test_a_database_that_was_put_back_sends_again_and_not_nothing(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    for number in range(3):
        added(engine, number)
        relay.drain()
    relay.close()
    with engine.begin() as db:  # as it was after the first
        db.execute(text("DELETE FROM tuque_outbox WHERE id > 1"))
        db.execute(text("UPDATE tuque_outbox_slot SET batch = 2"))
    added(engine, 7, 8)
    assert relay.drain() == 2 and taken(own_node) == [0, 1, 2, 7, 8]


def test_a_batch_that_a_crash_left_comes_first_under_its_number(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    added(engine, 1)
    relay.drain()
    relay.close()
    added(engine, 2, 3)
    tables = Tables(connector(engine)())
    batch = tables.own(0, "gone").batch
    first, second = tables.fresh(0, 10)
    tables.begin_batch(0, "gone", batch + 1, "its", {first.id: "D-its"})  # and it was killed
    tables.connection.close()
    assert relay.drain() == 2
    with Client(own_node.url) as client, engine.begin() as db:
        jobs = [job.id for job in client.qpeek("mail", 3)]
        found = db.execute(text("SELECT job FROM tuque_outbox ORDER BY id")).scalars().all()
    assert found == jobs, "what was staged anew has other ids"
    assert taken(own_node) == [1, 2, 3]
    relay.close()
    with engine.begin() as db:  # it was killed when it was published, and nobody knew
        db.execute(text(f"UPDATE tuque_outbox SET sent = NULL WHERE id = {second.id}"))
        found = db.execute(text(f"SELECT batch FROM tuque_outbox WHERE id = {second.id}")).scalar()
        db.execute(text(f"UPDATE tuque_outbox_slot SET batch = {found}"))
    assert relay.drain() == 1 and taken(own_node) == []


def test_what_a_crash_left_staged_is_published_under_its_ids(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    added(engine, 1)
    relay._open(False)
    attempt, _, jobs = relay._stage(relay._tables.fresh(0, 10))
    relay._tables.begin_batch(0, relay._owner, relay._batch + 1, attempt, jobs)
    relay.close()  # it was killed before PUBLISH
    other = Relay(connector(engine), own_node.url)
    assert other.drain() == 1
    with Client(own_node.url) as client:
        assert [job.id for job in client.getjob("mail", nohang=True)] == list(jobs.values())
    other.close()


def test_a_commit_is_announced_and_seen_at_once(
    engine: Any, own_node: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine.dialect.name == "postgresql":
        monkeypatch.setattr(relays, "FIRST_POLL_S", 3600.0)
    made = Relay(connector(engine), own_node.url)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        added(engine, 0)
        until(lambda: made.sent == 1)
        added(engine, 1)
        until(lambda: made.sent == 2)
    finally:
        made.stop()
        added(engine, 2)  # ends its wait
        thread.join()


def test_its_figures_are_those_of_the_database(
    engine: Any, own_node: RealServer, relay: Relay
) -> None:
    added(engine, 1, 2)
    relay.drain()
    added(engine, 3)
    added(engine, 4, queue="mail")
    meter = Meter(relay)
    page = meter.page("/metrics?x=1", "")
    assert page is not None and page.status == 200
    lines = page.body.decode().splitlines()
    assert {"tuque_outbox_rows 2", "tuque_outbox_sent_total 2"} <= set(lines)
    assert "tuque_outbox_refused_total 0" in lines
    (oldest,) = (line for line in lines if line.startswith("tuque_outbox_oldest_seconds "))
    assert 0 <= float(oldest.split()[1]) < 60
    with engine.begin() as db:
        db.execute(text("UPDATE tuque_outbox SET created = 0"))
    page = meter.page("/metrics", "")
    assert page is not None and b"tuque_outbox_oldest_seconds 1" in page.body
    page = meter.page("/other", "")
    assert page is not None and page.status == 404


def test_the_figures_are_served(engine: Any, relay: Relay) -> None:
    port = free_port()
    listener = listening(Meter(relay), port)
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            assert b"tuque_outbox_rows 0\n" in page.read()
        with pytest.raises(ConfigError, match="choose another --metrics-port"):
            listening(Meter(relay), port)
    finally:
        listener.close()


def test_without_the_database_there_are_no_figures(own_node: RealServer) -> None:
    def connect() -> Any:
        raise OSError("no route")

    page = Meter(Relay(connect, own_node.url)).page("/metrics", "")
    assert page is not None and page.status == 503 and b"no route" in page.body


def test_effects_of_a_job_happen_once(engine: Any) -> None:
    with engine.begin() as db:
        assert shop.outbox.once(db, "D-1")
    with pytest.raises(ZeroDivisionError), engine.begin() as db:
        assert shop.outbox.once(db, "D-2")
        raise ZeroDivisionError
    with engine.begin() as db:
        assert not shop.outbox.once(db, "D-1") and shop.outbox.once(db, "D-2")


def test_rows_that_were_sent_go_after_a_day(engine: Any, relay: Relay) -> None:
    added(engine, 1, 2)
    relay.drain()
    tables = Tables(connector(engine)())
    assert tables.sweep(0) == 0 and tables.waiting() == (0, 0.0)
    tables.run("UPDATE tuque_outbox SET sent = sent - 90000000")
    assert tables.sweep(0) == 2
    tables.connection.close()
