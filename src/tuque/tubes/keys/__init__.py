"""What tasks of type `tasks` carry (SPEC T40 to T50): keys, schedules, groups, lives; who is next.

Must not know: nodes, sessions, the journal.
"""
