"""What changes at the home of a tube goes to all other nodes (SPEC T17, T18).

Must not know: what callers may do with a task.
"""
