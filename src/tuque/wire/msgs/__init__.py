"""Who a node says that it is (SPEC B1); msgspec makes the class, so it is not compiled.

Must not know: sockets.
"""
