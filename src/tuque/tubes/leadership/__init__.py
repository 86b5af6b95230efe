"""Which node leads a tube, how that changes, and how tubes come back (SPEC T14, T17-T22).

Must not know: sockets, files.
"""
