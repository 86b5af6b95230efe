"""Waiting for sockets, the steady clock, host names, listeners; what all connections share.

Must not know: what the bytes mean.
"""
