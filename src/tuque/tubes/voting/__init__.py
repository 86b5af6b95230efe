"""Leaders that fail over by votes (SPEC T23 to T27).

Must not know sockets or files; clocks and chance come from the shell.
"""
