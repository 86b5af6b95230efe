"""The journal: formats of records and segments, replay, snapshots, repair (SPEC J).

Must not know: sockets, threads.
"""
