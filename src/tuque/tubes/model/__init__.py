"""State of tubes: options, counters, grants, changes, replicas, votes. Plain data.

Must not know: when any of it changes.
"""
