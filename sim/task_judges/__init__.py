"""Judges of tubes of type `tasks`: keys, schedules, groups of jobs, topics (SPEC T40 to T62).

Must not know: how the world is made.
"""
