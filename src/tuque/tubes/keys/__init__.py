"""Keys of tasks (SPEC T40 to T44): lanes, places, tokens, turns of groups, unique keys.

Must not know: nodes, sessions, the journal.
"""
