"""Which task of type `tasks` is next (SPEC T40 to T50): limits, partitions, unique keys.

Must not know: nodes, sessions, the journal.
"""
