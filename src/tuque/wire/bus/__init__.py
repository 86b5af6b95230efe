"""The protocol between nodes (SPEC B): messages, handshake, seal.

Must not know: sockets.
"""
