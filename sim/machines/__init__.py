"""A machine and its process: the real server on simulated sockets, clocks and disks.

Must not know: judges' reasons.
"""
