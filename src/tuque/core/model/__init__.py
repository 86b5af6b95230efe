"""The parts of a job: its states, its id, its timers, its tombstone, and its way in and out of the
node.

Must not know: nodes, queues and clients.
"""
