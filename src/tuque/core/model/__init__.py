"""The parts of a job: states, task, id, timers, orders, work, tombstone, counters.

Must not know: nodes, queues and clients.
"""
