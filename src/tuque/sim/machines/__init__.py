"""A machine with its process: the twin of the server's pump, its links, its clients' connections.

Must not know: judges' reasons.
"""
