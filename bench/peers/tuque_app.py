"""The task for Tuque's worker."""

from mark import mark

from tuque.worker import App

app = App()


@app.task(queue="bench")
def work(number: int) -> None:
    """One byte."""
    mark()


def enqueue(number: int) -> None:
    """Adds one."""
    work.enqueue(number)
