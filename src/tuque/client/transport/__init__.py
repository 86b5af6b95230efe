"""One connection without its socket, and sockets: of both faces, and of the command line.

Must not know: what a call means.
"""
