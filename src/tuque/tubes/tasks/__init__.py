"""What callers do with tasks and tubes (SPEC T2-T6, T8, T10, T11), and what changes then.

Must not know: sockets, passwords.
"""
