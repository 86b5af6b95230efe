"""The app of the tests of keys: its tasks say a secret in every way."""

from __future__ import annotations

import os
from pathlib import Path

from tuque.worker import App, Reject, current_job

app = App()


def note(text: str) -> None:
    """Appends a line to OUT/did."""
    with (Path(os.environ["OUT"]) / "did").open("a") as file:
        file.write(f"{text}\n")


@app.task(queue="k", retry_s=60, keep_s=600)
def echo(text: str) -> str:
    """Returns it, after it was its progress and an argument of another job."""
    note(f"echo {len(text)}")
    current_job().progress(text)
    raises.options(attempts=1).enqueue(text)
    return text


@app.task(queue="k", retry_s=60)
def raises(text: str) -> int:
    note(f"raises {len(text)}")
    raise LookupError(text)


@app.task(queue="k", retry_s=60)
def rejects(text: str) -> int:
    note(f"rejects {len(text)}")
    raise Reject(text)


@app.task(queue="joined", retry_s=60)
def joined(texts: list[str]) -> str:
    return " ".join(texts)
