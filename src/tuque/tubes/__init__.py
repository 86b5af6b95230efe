"""Tubes: queues with the policies of Tarantool's queue module (SPEC T); `policy` is core's door.

Must not know: sockets, files, clocks.
"""
