"""The protocol between nodes: frames, handshake, keys, ranges of fields (SPEC B).

Must not know: sockets.
"""
