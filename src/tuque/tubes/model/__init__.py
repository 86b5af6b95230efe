"""State of tubes: options, counters, grants, changes, state of replicas; all tubes of a node.

Must not know: when any of it changes.
"""
