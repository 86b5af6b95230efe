"""The worker's process: jobs are fetched, run and reported; crashes; its end.

Must not know: what a task does.
"""
