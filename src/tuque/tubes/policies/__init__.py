"""Which task of type `tasks` is next: limits, partitions, unique keys (SPEC T40 to T44, T47).

Must not know: nodes, sessions, the journal.
"""
