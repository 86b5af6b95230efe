"""Tubes: queues with the policies of Tarantool's queue module (SPEC T).

`policy` implements the hooks of core.

Must not know: sockets, files, clocks.
"""
