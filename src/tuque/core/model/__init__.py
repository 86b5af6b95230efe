"""What a job is: its states, its id, its timers, its tombstone, and where it came from and went.

Must not know: nodes, queues and clients.
"""
