"""Changes on the leader of a tube go to all other nodes (SPEC T17, T18).

Must not know: what callers may do with a task.
"""
