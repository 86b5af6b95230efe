"""Keys of tasks at real nodes whose leader is killed: UNIQUE, LIMIT, RATE, GROUP (SPEC T40)."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest
from takes import Row, Span, events_of, is_within, most_at_once, takes_of

from lab import RealCluster, RealServer
from raw_resp import NULL
from tuque import Client
from tuque.errors import Error
from until import until

TIMEOUT_MS = 1_000


@pytest.fixture
def nodes(make_voters: Callable[..., RealCluster]) -> RealCluster:
    """Three voters that write what happens to jobs."""
    return make_voters(TIMEOUT_MS, "--events", "yes")


def now_ms() -> int:
    """Unix ms."""
    return round(time.time() * 1000)


@contextmanager
def at_once(work: Callable[[Any], None], *args: Any) -> Iterator[None]:
    """Do the work in a thread for each argument; all have ended without an error at the end."""
    failed: list[BaseException] = []

    def run(arg: Any) -> None:
        try:
            work(arg)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(arg,)) for arg in args]
    for thread in threads:
        thread.start()
    try:
        yield
    except AssertionError:
        assert not failed, failed  # why the block waited in vain
        raise
    finally:
        for thread in threads:
            thread.join(120)
    assert not failed, failed
    assert not any(thread.is_alive() for thread in threads)


# ---- UNIQUE


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000])
def test_many_adds_of_one_unique_key_make_one_job(nodes: RealCluster, count: int) -> None:
    """T44.1 One task of a tube has a unique key at a time."""
    ids: list[str] = []
    news: list[bool] = []
    unsure: list[Error] = []
    killed = threading.Event()

    def produce(number: int) -> None:
        """A third of them, over a client that begins at one node."""
        with Client(f"tuque://127.0.0.1:{nodes.nodes[number].port}", timeout=20.0) as client:
            for done in range(count // 3):
                if done == count // 6:
                    assert killed.wait(60)
                try:
                    job, is_new = client.addjob_new("t", f"{number} {done}", unique="one", ttl=0)
                except Error as error:
                    assert error.may_be_done, error
                    unsure.append(error)
                    continue
                ids.append(job)
                news.append(is_new)

    with at_once(produce, 0, 1, 2):
        until(lambda: len(ids) > count // 6, most_s=20)
        dead = nodes.kill_leader("t")
        killed.set()
    assert len(set(ids)) == 1
    assert sum(news) <= 1 and sum(news) + len(unsure) >= 1
    assert len(ids) + len(unsure) == count // 3 * 3 and len(unsure) <= 6
    dead.start()
    told = nodes.tube("t", nodes.nodes.index(nodes.leader("t")))
    assert (told[b"ready"], told[b"taken"], told[b"delayed"]) == (1, 0, 0)
    nodes.check()


# ---- limits, rates and turns of many tenants


NOISY = 12  # keys of the noisy tenant
SLOW = ("noisy-0", "noisy-1")  # whose jobs take long


class Shop:
    """Tenants that add jobs with keys of their own, and workers for all of them."""

    def __init__(self, nodes: RealCluster, tenants: int, each: int) -> None:
        self.nodes = nodes
        self.tenants = tenants
        self.each = each  # jobs of a quiet tenant
        self.tenant_of: dict[str, str] = {}  # by job id
        self.keys_of: dict[str, str] = {}
        self.attempts: Counter[int | None] = Counter()
        self.acked: set[str] = set()
        self.is_over = threading.Event()
        self.noisy = self.noisy_acked = 0
        self.lock = threading.Lock()
        self.at_work: Counter[str] = Counter()
        self.began: dict[str, float] = {}
        self.is_limited = self.is_paced = False  # a limit was reached, and a rate

    def add(self, client: Client, tenant: str, key: str) -> None:
        """One job; one that may have been added though no answer came is nobody's."""
        try:
            job = client.addjob(
                "t",
                tenant,
                limit=(key, 2),
                rate=(key, "10/s"),
                group=tenant,
                attempts=3,
                retry=60,
                ttl=0,
            )
        except Error as error:
            assert error.may_be_done, error
            return
        self.tenant_of[job], self.keys_of[job] = tenant, key

    def make_noise(self, _: int) -> None:
        """A tenant with a backlog of many limits and rates, which would keep all workers busy."""
        with Client(self.nodes.url, timeout=20.0) as client:
            while not self.is_over.wait(0.01):
                if self.noisy - self.noisy_acked < 200:
                    for number in range(NOISY):
                        self.add(client, "noisy", f"noisy-{number}")
                    self.noisy += NOISY

    def produce(self, first: int) -> None:
        """A third of the quiet tenants: now and then one job of each."""
        with Client(self.nodes.url, timeout=20.0) as client:
            for _ in range(self.each):
                for tenant in range(first, self.tenants - 1, 3):
                    self.add(client, f"quiet-{tenant}", f"quiet-{tenant}")
                time.sleep(0.3)  # it has a token again

    def work(self, _: int) -> None:
        """Take, work for a while, ack."""
        with Client(self.nodes.url, timeout=20.0) as client:
            while not self.is_over.is_set():
                for job in client.getjob("t", timeout_ms=200, with_meta=True):
                    self.attempts[job.attempt] += 1
                    key = self.keys_of.get(job.id, "")
                    self.see(key)
                    time.sleep(0.5 if key in SLOW else 0.02)
                    with self.lock:
                        self.at_work[key] -= 1
                    try:
                        client.ackjob(job)
                    except Error as error:
                        assert error.may_be_done or error.retryable, error
                    self.acked.add(job.id)
                    self.noisy_acked += job.body == b"noisy"

    def see(self, key: str) -> None:
        """A job of that key begins."""
        with self.lock:
            self.at_work[key] += 1
            began, self.began[key] = self.began.get(key, 0.0), time.monotonic()
            self.is_limited |= self.at_work[key] == 2 and key in SLOW
            self.is_paced |= self.began[key] - began < 0.15

    def quiet_left(self) -> int:
        """Jobs of quiet tenants that nobody has acked."""
        return sum(name != "noisy" for name in self.tenant_of.values()) - sum(
            self.tenant_of.get(job, "noisy") != "noisy" for job in list(self.acked)
        )


def rounds_waited(rows: list[Row], tenant_of: dict[str, str], died_ms: int) -> list[int]:
    """For each job of a quiet tenant: how often another tenant had its turn meanwhile, at most.

    Turns count from when the job may go: its rate gives it a token 100 ms after its tenant's last
    take, and 100 ms after a new leader's first one (T42.4).
    """
    waits: dict[str, Counter[str]] = {}
    free_ms: Counter[str] = Counter()
    led_ms = 0
    found = []
    for row in rows:
        job, tenant = row["job_id"], tenant_of.get(row["job_id"], "noisy")
        if row["event"] == "added" and tenant != "noisy":
            waits[job] = Counter()
        elif row["event"] == "delivered":
            if led_ms == 0 and row["ts"] > died_ms:
                led_ms = row["ts"]
            for waiting, turns in waits.items():
                if row["ts"] >= max(free_ms[tenant_of[waiting]], led_ms) + 100:
                    turns[tenant] += 1
            free_ms[tenant] = row["ts"]
            if job in waits:
                turns = waits.pop(job)
                turns.pop(tenant, None)
                found.append(max(turns.values(), default=0))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("tenants", "each"), [(50, 25)])
def test_tenants_beside_a_noisy_one(nodes: RealCluster, tenants: int, each: int) -> None:
    """T43.2 so a task that may go waits for one round at most."""
    shop = Shop(nodes, tenants, each)
    with at_once(shop.make_noise, 0), at_once(shop.work, *range(8)):
        with at_once(shop.produce, 0, 1, 2):
            until(lambda: len(shop.acked) > 3 * tenants)
            dead = nodes.kill_leader("t")
            died_ms = now_ms()  # what it handed out, it handed out before
        until(lambda: shop.is_limited and shop.is_paced)
        until(lambda: shop.quiet_left() <= 0, lambda: f"{shop.quiet_left()} are left")
        shop.is_over.set()
    dead.start()
    nodes.leader("t")
    nodes.check()
    assert set(shop.attempts) == {1}, "an attempt was burnt"
    rows = events_of(nodes)
    assert not [row for row in rows if row["event"] in ("run-failed", "run-crashed", "dead")]
    assert [row["event"] for row in rows].count("home-changed") >= 1
    takes = takes_of(rows, [died_ms])
    by_key: dict[str, list[tuple[int, int]]] = {}
    for job, spans in takes.items():
        by_key.setdefault(shop.keys_of.get(job, ""), []).extend(spans)
    by_key.pop("", None)
    assert len(by_key) == tenants - 1 + NOISY
    most = {key: most_at_once(spans) for key, spans in by_key.items()}
    assert max(most.values()) == 2, most  # T41.2
    for key, spans in by_key.items():
        assert is_within([began for began, _ in spans], 1, 100), key  # T42.1
    waits = sorted(rounds_waited(rows, shop.tenant_of, died_ms))
    assert len(waits) > (tenants - 1) * each * 0.9
    assert waits[(len(waits) - 1) * 99 // 100] < 3, str(waits[-20:])
    assert shop.noisy > tenants, "the noise was none"


# ---- places over every kind of fault


class Workers:
    """Workers that end each take in another way."""

    def __init__(self, nodes: RealCluster) -> None:
        self.nodes = nodes
        self.ends: Counter[str] = Counter()
        self.done: set[str] = set()
        self.took_ms: dict[str, int] = {}  # when a job was taken last
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.next = cycle(HOW)

    def work(self, seed: int) -> None:
        chance = random.Random(seed)
        with Client(self.nodes.url, timeout=8.0) as client:
            while not self.is_over.is_set():
                try:
                    jobs = client.getjob("t", timeout_ms=200, start=True, worker=f"w{seed}")
                    for job in jobs:
                        self.took_ms[job.id] = now_ms()
                        time.sleep(chance.uniform(0, 0.03))
                        self.end(client, job)
                except Error as error:
                    self.ends[type(error).__name__] += 1

    def end(self, client: Client, job: Any) -> None:
        with self.lock:
            how = next(self.next)
        if how == "ack":
            client.ackjob(job)
        elif how == "done":
            client.done(job, job.run)
        elif how == "fail":
            client.fail(job, job.run, delay=0.05)
        elif how == "release":
            client.release((job, job.run))
        self.ends[how] += 1  # of a crash nobody hears: the job comes back after its retry time
        if how in ("ack", "done"):
            self.done.add(job.id)


# in turn, so that each of them comes; a crash keeps a place for a second, so it comes seldom
HOW = ("ack", "fail", "done", "release", "ack", "crash", "done", "fail", "ack", "release", "done")
LATE_MS = 1_000  # of rows that are written 20 ms after they happened, on a slow machine
FAULTS = ("kill", "stop", "restart", "restart all")


def hurt(nodes: RealCluster, kind: str) -> int:
    """One fault at the leader, and its end; when it no longer handed out tasks, in ms."""
    leader = nodes.leader("t")
    if kind == "kill":
        leader.kill()
        at_ms = now_ms()
        leader.start()
    elif kind == "stop":
        leader.stand_still()
        at_ms = now_ms()
        others = [i for i, node in enumerate(nodes.nodes) if node is not leader]
        try:
            until(lambda: any(nodes.tube("t", i).get(b"state") == b"RUNNING" for i in others))
        finally:
            leader.go_on()
    else:
        ending = nodes.nodes if kind == "restart all" else [leader]
        for node in ending:
            node.signal(signal.SIGTERM)
        for node in ending:
            node.wait()
        at_ms = now_ms()
        for node in ending:
            node.launch()
        for node in ending:
            until(node.is_ready, node.log)
    nodes.leader("t")
    return at_ms


@pytest.mark.parametrize(
    ("faults", "each"),
    [(("kill", "restart all"), 8), pytest.param(FAULTS * 2, 60, marks=pytest.mark.slow)],
)
def test_places_come_back_over_faults(
    nodes: RealCluster, faults: tuple[str, ...], each: int
) -> None:
    """T41.2 A place comes back when its task is TAKEN no longer, whatever the reason.

    T44.1 One task of a tube has a unique key at a time: also over leaders.
    """
    workers = Workers(nodes)
    jobs: list[str] = []
    faults_ms: list[int] = []
    kills: list[Span] = []

    def add(client: Client, count: int) -> None:
        for _ in range(count):
            job = client.addjob(
                "t", "x", limit=("k", 3), attempts=100, retry=1, ttl=0, backoff=(0.05, 0.1, 0)
            )
            jobs.append(job)

    with at_once(workers.work, *range(6)):
        with Client(nodes.url, timeout=20.0) as client:
            only, is_new = client.addjob_new("t", "only", unique="one", delay=600, ttl=0)
            assert is_new
            for kind in faults:
                before = len(workers.done)
                add(client, each)
                until(lambda n=before: len(workers.done) > n + each // 4, nodes.logs)
                faults_ms.append(hurt(nodes, kind))
                again = client.addjob_new("t", "again", unique="one", delay=600, ttl=0)
                assert again == (only, False)
                if kind == "kill":
                    kills.append((faults_ms[-1] - LATE_MS, faults_ms[-1]))
            left = [0]

            def is_done() -> bool:
                told = client.tube("t").info()
                left[0] = told.ready + told.taken + told.delayed
                return left[0] == 1 == told.delayed  # the one with a unique key

            until(is_done, lambda: f"be done: {left[0]} are left\n{nodes.logs()}", most_s=120)
        workers.is_over.set()
    for how in HOW:
        assert workers.ends[how] > 0, workers.ends
    nodes.check()
    judge_places(events_of(nodes), set(jobs), workers.took_ms, faults_ms, kills)


def judge_places(
    rows: list[Row],
    mine: set[str],
    took_ms: dict[str, int],
    faults_ms: list[int],
    kills: list[Span],
) -> None:
    """The three places were taken by three jobs at a time, and by no more."""
    takes = takes_of([row for row in rows if row["job_id"] in mine], faults_ms)
    assert mine <= set(took_ms), "each of them was taken"
    for job in mine - set(takes):  # its rows are gone with the node that it was taken from (E3.2)
        at_ms = took_ms[job]
        assert any(first <= at_ms <= last for first, last in kills), (job, at_ms, kills)
    most = most_at_once([span for spans in takes.values() for span in spans])
    assert most == 3, most


# ---- what waits costs nothing


@pytest.mark.parametrize(
    ("count", "span_s"), [(3_000, 0.6), pytest.param(100_000, 2, marks=pytest.mark.slow)]
)
def test_a_node_with_many_tasks_that_wait_is_idle(
    make_server: Callable[..., RealServer], count: int, span_s: float
) -> None:
    """T41.3 A task that may not go is in no table that a take looks at: the cost of a take does not
    grow with what waits."""
    node = make_server("--cluster-enabled", "no", "--appendonly", "no")
    wire, waiting = node.wire(), node.wire()

    def spent_ms() -> float:
        """CPU time of the node in a while in which nobody asks for anything."""
        before = node.cpu_ms()
        time.sleep(span_s)  # the time is what is measured
        return node.cpu_ms() - before

    assert wire("TUBE", "CREATE", "t", "tasks") == b"OK"
    empty_ms = spent_ms()
    for first in range(0, count, 1_000):
        for number in range(first, first + 1_000):
            wire.send("ADDJOB", "t", "x", 0, "TTL", 0, *key_of(number, count))
        for number in range(first, first + 1_000):
            assert isinstance(wire.read(), bytes), number
    while wire("GETJOB", "NOHANG", "COUNT", 1_000, "FROM", "t") != NULL:
        pass  # all that may go is taken
    waiting.send("GETJOB", "FROM", "t")
    told = wire("TUBE", "INFO", "t")
    row = dict(zip(told[::2], told[1::2], strict=True))
    assert row[b"ready"] == count // 2, "one task of each key waits"
    # a tick is 10 ms, a node that looks at them takes them all
    assert spent_ms() <= empty_ms + max(30, 30 * span_s)


def key_of(number: int, count: int) -> tuple[str | int, ...]:
    """A key with one place or token for two tasks."""
    key = number % (count // 2)
    return ("LIMIT", f"k{key}", 1) if key % 2 else ("RATE", f"k{key}", "1/h", 1)
