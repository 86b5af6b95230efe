"""What a tube is: options, counters, grants, changes, state of its replicas; all tubes of a node.

Must not know: when any of it changes.
"""
