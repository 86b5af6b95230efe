"""Membership, heartbeats, removals, nodes.conf as text (SPEC K).

Must not know: sockets, files.
"""
