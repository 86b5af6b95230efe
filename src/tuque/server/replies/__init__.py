"""Replies at once and later: texts of errors, waits for copies, redirects, long commands.

Must not know: the words of commands.
"""
