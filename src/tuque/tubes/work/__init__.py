"""Runs of tasks at a leader, and their dead letters (SPEC T48).

Must not know: sockets, passwords.
"""
