"""Tasks of Tuque itself, beside those of Django."""

from __future__ import annotations

from tuque.worker import App

app = App("tuque://127.0.0.1:7711")


@app.task(queue="own")
def own() -> None:
    """Does nothing."""
