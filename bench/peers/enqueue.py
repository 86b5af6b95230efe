"""Enqueues tasks one by one and prints the rate per second: `enqueue.py APP COUNT`."""

import importlib
import sys
import time

app = importlib.import_module(sys.argv[1])
count = int(sys.argv[2])
app.enqueue(0)  # connects
begin = time.perf_counter()
for number in range(1, count):
    app.enqueue(number)
print((count - 1) / (time.perf_counter() - begin))
