"""What a worker and its broker say to each other: fetching, heartbeats, acks, dead letters.

Must not know: how a task runs.
"""
