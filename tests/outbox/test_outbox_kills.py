"""The outbox while relay, node and database are killed: no row is lost, and none is two jobs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outbox_shop as shop
import pytest
from postgres_lab import Postgres
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

from lab import RealServer
from tuque import Client
from tuque.worker.app.codec import decode
from until import until

KILLS = int(os.environ.get("OUTBOX_KILLS", "30"))
HERE = Path(__file__).parent
SEED = 53


class Producer:
    """Commits calls, one or a few at a time, while the database is there."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.committed: list[int] = []
        self.doubtful: set[int] = set()  # the reply to their COMMIT was lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            some = list(range(number, number + random.Random(number).choice((1, 1, 5, 40))))
            number = some[-1] + 1
            try:
                with self._engine.begin() as db:
                    for one in some:
                        group = f"group {one % 7}"
                        shop.outbox.add(db, shop.welcome.call(one), group=group)
            except DBAPIError:
                self.doubtful.update(some)
                self._engine.dispose()
                time.sleep(0.1)
            else:
                self.committed += some
                time.sleep(0.01)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Relaying:
    """The process of the relay."""

    def __init__(self, url: str, node: str, log: Path) -> None:
        self._words = [sys.executable, str(HERE / "outbox_relaying.py"), url, node]
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(self._words, env=env, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def taken(node: RealServer) -> list[int]:
    found: list[int] = []
    with Client(node.url) as client:
        while jobs := client.getjob("mail", count=1000, nohang=True):
            found += [decode(job.body).args[0] for job in jobs]
            client.ackjob(*[job.id for job in jobs])
    return found


def unsent(engine: Any) -> int:
    with engine.begin() as db:
        table = shop.outbox.table
        return len(db.execute(table.select().where(table.c.sent.is_(None))).all())


@pytest.mark.slow
def test_no_row_is_lost_and_none_is_two_jobs(_postgres: Postgres, tmp_path: Path) -> None:
    place = tmp_path / "node"
    place.mkdir()
    engine = create_engine(_postgres.url, pool_pre_ping=True)
    shop.metadata.drop_all(engine)
    shop.metadata.create_all(engine)
    dice = random.Random(SEED)
    with RealServer(place, "--appendonly", "yes", "--appendfsync", "always") as node:
        relay = Relaying(_postgres.url, node.url, tmp_path / "relay.log")
        producer = Producer(engine)

        def kill_relay() -> None:
            relay.kill()
            relay.start()

        def kill_node() -> None:
            node.kill()
            node.start()

        def kill_database() -> None:
            _postgres.kill()
            _postgres.start()

        kinds: list[Callable[[], None]] = [kill_relay, kill_node, kill_database]
        try:
            for number in range(KILLS):
                time.sleep(dice.uniform(0.3, 1.2))
                kinds[number % 3]()
            producer.end()
            until(lambda: unsent(engine) == 0, lambda: (tmp_path / "relay.log").read_text()[-3000:])
        finally:
            producer.end()
            relay.kill()
        jobs = taken(node)
    engine.dispose()
    assert [n for n, times in Counter(jobs).items() if times > 1] == []
    assert set(producer.committed) - set(jobs) == set()
    assert set(jobs) - set(producer.committed) <= producer.doubtful
    for group in range(7):
        some = [one for one in jobs if one % 7 == group]
        assert some == sorted(some)
    print(f"{KILLS} kills, {len(jobs)} jobs")
