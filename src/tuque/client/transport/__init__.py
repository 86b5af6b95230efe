"""One connection without its socket, and the sockets of both faces: blocking, and on an event loop.

Must not know: what a call means.
"""
