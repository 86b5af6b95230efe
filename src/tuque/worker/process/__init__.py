"""A task ended the process: which jobs ran, and what becomes of each.

Must not know: what a task does.
"""
