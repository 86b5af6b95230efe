"""The body of each task: one byte to a file that the benchmark watches."""

import os

FD = os.open(os.environ["BENCH_DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark() -> None:
    """One more task is done."""
    os.write(FD, b".")
