"""Runs of tasks at a leader, changes of their status, and their dead letters (SPEC T4, T48).

Must not know: sockets, passwords.
"""
