"""A task ended the process: who ran, and what becomes of each job.

Must not know: what a task does.
"""
