"""Replies at once and later: commands that wait for copies, redirected clients, long commands.

Must not know: the words of commands.
"""
