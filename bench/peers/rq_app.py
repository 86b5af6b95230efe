"""The task for RQ; it keeps no results."""

import os

from mark import mark
from redis import Redis
from rq import Queue

queue = Queue("bench", connection=Redis.from_url(os.environ["BENCH_REDIS"]))


def work(number):
    """One byte."""
    mark()


def enqueue(number):
    """Adds one."""
    queue.enqueue(work, number, result_ttl=0)
