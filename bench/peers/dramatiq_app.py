"""The task for Dramatiq."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from mark import mark

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))


@dramatiq.actor
def work(number):
    """One byte."""
    mark()


def enqueue(number):
    """Adds one."""
    work.send(number)
