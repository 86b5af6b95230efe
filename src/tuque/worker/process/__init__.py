"""Crashes of the worker's process by a task: which jobs ran, and what follows for each.

Must not know: what a task does.
"""
