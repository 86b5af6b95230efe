"""Procedures of tubes: one table for both doors, and their arguments out of words or values.

Must not know: sockets, sessions, what a procedure does.
"""
