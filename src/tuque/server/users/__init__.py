"""Who may log in and what each user may do: the table of users, its words, its file, its guards.

Must not know: connections, commands, either door.
"""
