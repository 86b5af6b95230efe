"""A shop of Celery: its tasks use what programs use. Its two URLs come from outside.

Each effect is a line in the file `effects` of SHOP_PLACE, so that no broker is asked what ran.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from celery import Celery, Task, chain, chord, group, signals
from celery.exceptions import Reject
from celery.schedules import crontab
from kombu import Queue

PLACE: Final = Path(os.environ.get("SHOP_PLACE", "."))
PRICE: Final = 10
OPEN: Final = 4  # orders that have not ended
PARTS: Final = 3  # of the chord of an order
TOTAL: Final = sum(PRICE + part for part in range(PARTS))
FAILURES: Final = 2  # of a mail, before it is sent
CRAWLS: Final = 6
RANKS: Final = (9, 0, 6, 3)

app = Celery("shop", broker=os.environ.get("SHOP_URL"), backend=os.environ.get("SHOP_RESULTS"))
app.conf.update(
    task_queues=[Queue("celery"), Queue("ranked", routing_key="ranked", max_priority=9)],
    task_routes={"shop.pick": {"queue": "ranked"}},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_transport_options={"priority_order": "desc", "retry": 3, "visibility_timeout": 3600},
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    beat_schedule={
        "stock": {"task": "shop.note", "schedule": 0.5, "args": ("stock",)},
        "night": {"task": "shop.note", "schedule": crontab(), "args": ("night",)},
    },
    beat_max_loop_interval=1,
    beat_schedule_filename=str(PLACE / "beat"),
)


def note(*words: object) -> None:
    """Writes one effect."""
    with (PLACE / "effects").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def effects() -> Counter[str]:
    """How often each effect was."""
    path = PLACE / "effects"
    return Counter(path.read_text().splitlines() if path.exists() else [])


class Audited(Task):  # type: ignore[misc]  # Celery has no types
    """Notes how each of its runs ends."""

    def on_success(self, retval: Any, task_id: str, *words: Any) -> None:
        note("on_success", self.name)

    def on_failure(self, exc: Exception, task_id: str, *words: Any) -> None:
        note("on_failure", self.name, repr(exc))

    def on_retry(self, exc: Exception, task_id: str, *words: Any) -> None:
        note("on_retry", self.name)


@app.task(name="shop.note")
def noted(word: str) -> None:
    """Of beat, and of links."""
    note(word)


@app.task(name="shop.price")
def price(order: int) -> int:
    """The first step of an order."""
    note("price", order)
    return PRICE


@app.task(name="shop.parcel")
def parcel(total: int, order: int, part: int) -> int:
    """A part of the chord of an order."""
    note("parcel", order, part)
    return total + part


@app.task(name="shop.packed")
def packed(parts: list[int], order: int) -> int:
    """The body of the chord of an order."""
    note("packed", order)
    return sum(parts)


@app.task(name="shop.invoice", base=Audited)
def invoice(total: int, order: int) -> str:
    """The last step of an order."""
    note("invoice", order, total)
    return f"{order}: {total}"


@app.task(name="shop.mail", bind=True, base=Audited, max_retries=5)
def mail(self: Any, to: str) -> int:
    """Is sent at the third try."""
    note("mail", to, self.request.retries)
    if self.request.retries < FAILURES:
        raise self.retry(exc=OSError("the mail server is busy"), countdown=0.1)
    return int(self.request.retries)


@app.task(name="shop.refund", base=Audited, autoretry_for=(OSError,), max_retries=1)
def refund(order: int) -> None:
    """Fails for good."""
    raise ValueError(f"order {order} has no payment")


@app.task(name="shop.remind")
def remind(due: str) -> bool:
    """Whether it ran at its time or later."""
    return datetime.now(UTC) >= datetime.fromisoformat(due)


@app.task(name="shop.crawl", rate_limit="4/s")
def crawl(page: int) -> float:
    """When it ran."""
    return time.time()


@app.task(name="shop.pick")
def pick(rank: int) -> None:
    """In the order of ranks."""
    note("pick", rank)


@app.task(name="shop.long", bind=True)
def long(self: Any, seconds: float) -> str:
    """Takes its time."""
    note("long begins", self.request.id)
    time.sleep(seconds)
    note("long ends", self.request.id)
    return "done"


@app.task(name="shop.refuse")
def refuse() -> None:
    """Rejects its message."""
    note("refuse")
    raise Reject("the address is unknown", requeue=False)


@signals.task_prerun.connect
def _prerun(task: Any, **kwargs: Any) -> None:
    note("prerun", task.name)


@signals.task_retry.connect
def _retried(sender: Any, **kwargs: Any) -> None:
    note("retried", sender.name)


@signals.task_failure.connect
def _failed(sender: Any, **kwargs: Any) -> None:
    note("failed", sender.name)


@signals.task_revoked.connect
def _revoked(sender: Any, expired: bool, **kwargs: Any) -> None:
    note("expired" if expired else "revoked by hand", sender.name)


def order(number: int) -> Any:
    """A chain with a chord in it."""
    parcels = (parcel.s(number, part) for part in range(PARTS))
    return chain(price.s(number), chord(parcels, packed.s(number)), invoice.s(number))


def before_the_worker() -> None:
    """What waits for the worker: priorities, a task that is revoked, one that has expired."""
    for rank in RANKS:
        pick.apply_async((rank,), priority=rank)
    noted.apply_async(("too late",), expires=datetime.now(UTC) - timedelta(seconds=1))


def outcomes(wait_s: float) -> dict[str, object]:
    """What became of one day of the shop: the same for each broker."""
    due = datetime.now(UTC) + timedelta(seconds=1)
    later = remind.apply_async((due.isoformat(),), eta=due)
    revoked = noted.apply_async(("revoked",), countdown=2)
    revoked.revoke()
    begun = order(7).delay()
    sent = mail.delay("you@example.org")
    lost = refund.apply_async((3,), link_error=noted.si("link_error"))
    linked = price.apply_async((8,), link=noted.si("link"))
    found: dict[str, object] = {
        "order": begun.get(timeout=wait_s),
        "mail": sent.get(timeout=wait_s),
        "refund": str(lost.get(timeout=wait_s, propagate=False)),
        "refund state": lost.state,
        "remind": later.get(timeout=wait_s),
        "link": linked.get(timeout=wait_s),
        "group": group(price.s(n) for n in range(20, 25)).delay().get(timeout=wait_s),
    }
    bad = chord([price.s(30), refund.s(31)], packed.s(30)).delay()
    try:
        bad.get(timeout=wait_s)
    except Exception as err:
        found["bad chord"] = type(err).__name__
    times = group(crawl.s(page) for page in range(CRAWLS)).delay().get(timeout=wait_s)
    found["crawl is slow"] = max(times) - min(times) > (CRAWLS - 2) / 4
    refuse.delay()
    return found


def terminated(wait_s: float) -> str:
    """The state of a task that was ended while it ran; for pools of processes."""
    result = long.delay(60)
    until(lambda: effects()[f"long begins {result.id}"], wait_s)
    result.revoke(terminate=True, signal="SIGKILL")
    until(lambda: result.state == "REVOKED", wait_s)
    return str(result.state)


def until(fact: Any, wait_s: float) -> None:
    """Waits for it."""
    end_s = time.monotonic() + wait_s
    while not fact():
        if time.monotonic() > end_s:
            raise TimeoutError("it did not come true")
        time.sleep(0.05)


def missing() -> list[str]:
    """The effects of the orders that were taken, which were not."""
    seen = effects()
    left: list[str] = []
    for number, _ in taken():
        parcels = [f"parcel {number} {part}" for part in range(PARTS)]
        asked = [f"price {number}", *parcels, f"packed {number}", f"invoice {number} {TOTAL}"]
        left += [text for text in asked if not seen[text]]
    return left


def taken() -> list[list[str]]:
    """Number and id of the orders that were taken."""
    return [line.split() for line in (PLACE / "orders").read_text().splitlines()]


def take_orders() -> None:
    """Adds orders until the shop closes; an order whose broker is away is added again."""
    number = 0
    while not (PLACE / "closed").exists():
        if number - invoices() >= OPEN:
            time.sleep(0.02)
            continue
        number += 1
        while True:
            try:
                result = order(number).delay()
                break
            except Exception as err:
                note("not added", number, type(err).__name__)
        with (PLACE / "orders").open("a") as file:
            file.write(f"{number} {result.id}\n")


def invoices() -> int:
    """How many orders have ended."""
    return sum(name.startswith("invoice") for name in effects())


def results(wait_s: float) -> list[str]:
    """What is wrong with the results of the orders that were taken."""
    wrong = []
    for number, id in taken():
        found = app.AsyncResult(id).get(timeout=wait_s)
        if found != f"{number}: {TOTAL}":
            wrong.append(f"order {number}: {found}")
    return wrong
