"""Tasks that Celery's worker still has."""

from __future__ import annotations

import os

from celery import Celery

url = os.environ.get("TUQUE_MOVED", "tuque://")
app = Celery("shop", broker=url, backend=f"tuque.celery.backend:Backend+{url}")
app.conf.update(broker_transport="tuque.celery.transport:Transport")


@app.task(name="shop.unmoved")
def unmoved(number: int) -> int:
    return number + 1


@app.task(name="shop.note")
def note(id: str) -> str:
    return f"failed: {id}"
