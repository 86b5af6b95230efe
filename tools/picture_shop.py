"""A shop at work, for the pictures of the console: queues, workers, failures, and one bad deploy.

All goes well until SLOW of its time is over; then a new version makes `images` slow, a worker is
lost, and some jobs are given up. Workers are coroutines that speak to the nodes as `tuque worker`
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time

import msgspec

from tuque.aio import Client
from tuque.client.commands.work import Run
from tuque.errors import ConnectionError, Error, NoReplica

STORY_S = 300.0
SLOW = 0.35  # of the story, before the deploy
BEAT_S = 3.0
LATE_S = 3600.0
REASONS = (
    "HTTPError: 503 Service Unavailable for https://hooks.example/orders/%d",
    "ReadTimeout: nothing read for %d s",
    "KeyError: 'vat_id' of order %d",
)


class Kind(msgspec.Struct, frozen=True):
    """Jobs of one queue: how many come each second, how long they run, which share fails."""

    queue: str
    task: str
    per_s: float
    takes_s: float
    slow_s: float
    fails: float = 0.0


KINDS = (
    Kind("images", "shop.images.thumbnail", 3.0, 0.9, 8.0),
    Kind("mail", "shop.mail.send", 3.0, 0.08, 0.08, 0.01),
    Kind("invoices", "shop.invoices.write", 1.0, 0.6, 0.6),
    Kind("webhooks", "shop.hooks.call", 2.0, 0.2, 0.2, 0.25),
    Kind("search", "shop.search.index", 2.0, 0.1, 0.1),
)
WORKERS = (
    ("web-1", 4, ("images",)),
    ("web-2", 4, ("images", "mail")),
    ("back-1", 3, ("invoices", "mail", "search")),
    ("hooks-1", 2, ("webhooks", "search")),
)
LOST = ("back-2", 1, ("exports",))


class Shop:
    """The shop; `latest` is the id of a job that was given up."""

    def __init__(self, urls: list[str], story_s: float) -> None:
        self.urls = urls  # of each node
        self.url = "tuque://" + ",".join(one.removeprefix("tuque://") for one in urls)
        self.slow_s = time.monotonic() + SLOW * story_s
        self.over = threading.Event()
        self.latest = ""
        self.random = random.Random(7)  # nothing is secret here

    def close(self) -> None:
        """Ends it; may be called by another thread."""
        self.over.set()

    @property
    def is_slow(self) -> bool:
        return time.monotonic() > self.slow_s

    async def open(self) -> None:
        """Until it is closed."""
        client = Client(self.url, max_connections=64)
        await self.prepare(client)
        tasks = [asyncio.create_task(self.sell(client, kind)) for kind in KINDS]
        tasks += [asyncio.create_task(self.work(*one)) for one in WORKERS]
        tasks += [asyncio.create_task(one) for one in (self.be_lost(), self.write_letters(client))]
        while not self.over.is_set():
            await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, Exception):
                raise found
        await client.close()

    async def prepare(self, client: Client) -> None:
        """What stands still: delayed jobs, a tube, a lease, a queue that is paused."""
        for number in range(12):
            await client.addjob("reports", f'{{"week": {number}}}', delay=LATE_S)
        for number in range(20):
            await client.addjob("newsletter", f'{{"to": {number}}}')
        for url in self.urls:
            async with Client(url, discover=False) as node:
                await node.pause("newsletter", "out")
        await client.execute("TUBE", "CREATE", "letters", "fifottl")
        await client.tube("statements").create("tasks")
        words = {"cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}
        await client.schedule_add("statements", "daily", "{}", **words)
        await client.schedule_add("statements", "refresh", "{}", every_s=1800)
        for number in range(40):
            await client.addjob("events", f"{number}")
        epoch = await client.lease_open("table", "spark-1", "events")
        await client.lease_next("table", epoch, 1, 40, ttl_ms=3_600_000)

    async def write_letters(self, client: Client) -> None:
        """A tube whose tasks come and go."""
        tube = client.tube("letters")
        while True:
            with contextlib.suppress(Error):
                await tube.put("a letter")
                task = await tube.take(timeout=1)
                if task is not None:
                    await asyncio.sleep(0.5)
                    await tube.ack(task)
            await asyncio.sleep(0.5)

    async def sell(self, client: Client, kind: Kind) -> None:
        """Adds jobs at random times."""
        number = 8000
        headers = {"tuque-task": kind.task, "tuque-codec": "json"}
        next_s = time.monotonic()
        while True:
            next_s += self.random.expovariate(kind.per_s)
            await asyncio.sleep(next_s - time.monotonic())
            number += 1
            body = f'{{"order": {number}, "size": 640}}'
            backoff = (2.0, 10.0, 0.2)
            with contextlib.suppress(ConnectionError, NoReplica):
                await client.addjob(
                    kind.queue, body, retry=120, attempts=2, backoff=backoff, headers=headers
                )

    async def work(self, name: str, slots: int, queues: tuple[str, ...]) -> None:
        """A worker with its slots, and its word each few seconds."""
        client = Client(self.url, max_connections=slots + 4)
        worker = Worker(self, client, f"{name}/{len(name) * 977}", slots, queues)
        try:
            await asyncio.gather(worker.say(), *(worker.take() for _ in range(slots)))
        finally:
            await client.close()

    async def be_lost(self) -> None:
        """A worker that is killed at work, some time after the deploy."""
        name, slots, queues = LOST
        client = Client(self.url)
        worker = Worker(self, client, f"{name}/4711", slots, queues)
        worker.busy = 1
        saying = asyncio.create_task(worker.say())
        await asyncio.sleep(1)
        headers = {"tuque-task": "shop.exports.csv"}
        id = await client.addjob(queues[0], '{"year": 2026}', retry=900, headers=headers)
        await client.getjob(queues[0])
        await client.start(id, worker=worker.name)
        await asyncio.sleep(max(0.0, self.slow_s - time.monotonic()) * 1.5)
        saying.cancel()
        await client.close()


class Worker:
    """What `tuque worker` says and does, with a sleep for the work."""

    def __init__(
        self, shop: Shop, client: Client, name: str, slots: int, queues: tuple[str, ...]
    ) -> None:
        self.shop = shop
        self.client = client
        self.name = name
        self.slots = slots
        self.queues = queues
        self.busy = self.done = self.failed = 0

    async def say(self) -> None:
        """WORKER HERE, each few seconds."""
        host, pid = self.name.split("/")
        while True:
            with contextlib.suppress(Error):
                await self.client.worker_here(
                    self.name,
                    host=host,
                    pid=int(pid),
                    app="shop 42" if self.shop.is_slow else "shop 41",
                    slots=self.slots,
                    busy=self.busy,
                    done=self.done,
                    failed=self.failed,
                    queues=self.queues,
                )
            await asyncio.sleep(BEAT_S)

    async def take(self) -> None:
        """One slot."""
        while True:
            try:
                jobs = await self.client.getjob(*self.queues, timeout_ms=5_000)
                for job in jobs:
                    (run,) = await self.client.start(job, worker=self.name)
                    if isinstance(run, Run):
                        await self.run(job.queue, job.id, run)
            except Error:
                await asyncio.sleep(1)

    async def run(self, queue: str, id: str, run: Run) -> None:
        """One job."""
        kind = next(one for one in KINDS if one.queue == queue)
        mean_s = kind.slow_s if self.shop.is_slow else kind.takes_s
        self.busy += 1
        try:
            await asyncio.sleep(mean_s * self.shop.random.uniform(0.6, 1.4))
        finally:
            self.busy -= 1
        if self.shop.random.random() >= kind.fails:
            self.done += 1
            await self.client.done(id, run.run)
            return
        self.failed += 1
        reason = self.shop.random.choice(REASONS) if queue == "webhooks" else REASONS[1]
        failed = await self.client.fail(
            id,
            run.run,
            reason=reason % self.shop.random.randrange(1, 9000),
            detail="Traceback (most recent call last): …",
        )
        if failed.became == "dead":
            self.shop.latest = id
