"""The worker's process: jobs are fetched, run and reported; heartbeats; crashes; its end.

Must not know: what a task does.
"""
