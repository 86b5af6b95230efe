"""The app of a worker that is killed at work."""

from __future__ import annotations

import time

from tuque.worker import App

app = App()


@app.task(queue="exports", retry_s=300)
def export(seconds: float) -> None:
    time.sleep(seconds)
