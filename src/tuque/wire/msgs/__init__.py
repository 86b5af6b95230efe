"""The identity that a node presents (SPEC B1); msgspec makes the class, so it is not compiled.

Must not know: sockets.
"""
