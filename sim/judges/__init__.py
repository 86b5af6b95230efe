"""Judges of jobs, leases and writes, and the rare states that a run must meet.

Must not know: how the world is made.
"""
