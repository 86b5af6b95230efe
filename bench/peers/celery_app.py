"""The task for Celery, without results."""

import os

from celery import Celery
from mark import mark

app = Celery("bench", broker=os.environ["BENCH_REDIS"])
app.conf.update(task_ignore_result=True, worker_enable_remote_control=False)


@app.task
def work(number):
    """One byte."""
    mark()


def enqueue(number):
    """Adds one."""
    work.delay(number)
