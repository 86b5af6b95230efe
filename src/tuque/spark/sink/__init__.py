"""Rows become jobs, in one of three modes.

Must not know: the broker's memory.
"""
