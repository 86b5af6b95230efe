"""Clients, operators and bad luck.

Must not know: what is a fault of the node.
"""
