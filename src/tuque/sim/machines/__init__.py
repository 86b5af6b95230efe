"""A machine with its process: the server that ships, on simulated sockets, clocks and disks.

Must not know: judges' reasons.
"""
