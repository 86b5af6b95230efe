"""What a task of type `tasks` carries (SPEC T40 to T50): keys, a schedule, a group, its work.

Must not know: nodes, sessions, the journal.
"""
