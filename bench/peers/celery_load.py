"""A program of Celery of which only the URLs change, and what is timed of it.

`celery_load.py WHAT COUNT` prints a figure: adds of tasks or of a batch per second, the seconds of
a chord, the middle of the milliseconds until a result is there.
"""

import os
import statistics
import sys
import time

from celery import Celery, chord
from mark import mark

import tuque.celery  # noqa: F401 - the schemes, which an installed Tuque adds by itself

URL = os.environ["BENCH_URL"]
own = URL.startswith("tuque://")
app = Celery("bench", broker=URL, backend=f"tuque.celery.backend:Backend+{URL}" if own else URL)
app.conf.update(
    worker_prefetch_multiplier=8,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="empty", ignore_result=True)
def empty(number):
    """One byte."""
    mark()


@app.task(name="kept")
def kept(number):
    """A result."""
    mark()
    return number


@app.task(name="size")
def size(numbers):
    """The end of a chord."""
    return len(numbers)


def rate(count, add):
    """Calls per second, after one that connects."""
    add(0)
    begin = time.perf_counter()
    for number in range(1, count):
        add(number)
    return (count - 1) / (time.perf_counter() - begin)


def batch(count):
    """Messages per second that leave together."""
    with app.amqp.Producer(app.connection_for_write()) as producer:
        producer.publish("", routing_key="bench.batch")
        begin = time.perf_counter()
        with producer.batch(max_size=1000):
            for number in range(count):
                producer.publish([number], routing_key="bench.batch")
        return count / (time.perf_counter() - begin)


def parts(count):
    """Seconds of a chord, from its call to its result."""
    kept.delay(0).get(timeout=60)
    begin = time.perf_counter()
    assert chord(kept.s(number) for number in range(count))(size.s()).get(timeout=120) == count
    return time.perf_counter() - begin


def wait(count):
    """Milliseconds from a call to its result."""
    found = []
    for number in range(count):
        begin = time.perf_counter()
        kept.delay(number).get(timeout=60)
        found.append(1000 * (time.perf_counter() - begin))
    return statistics.median(found)


TIMED = {
    "empty": lambda count: rate(count, empty.delay),
    "kept": lambda count: rate(count, kept.delay),
    "batch": batch,
    "chord": parts,
    "get": wait,
}

if __name__ == "__main__":
    print(TIMED[sys.argv[1]](int(sys.argv[2])))
