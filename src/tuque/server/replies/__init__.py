"""Answers at once and later: what waits for copies, who is sent elsewhere, long commands.

Must not know: the words of commands.
"""
