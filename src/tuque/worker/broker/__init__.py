"""The protocol between a worker and its broker: fetching, heartbeats, acks, dead letters.

Must not know: how a task runs.
"""
