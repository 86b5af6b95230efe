"""The pump: one turn from the sockets that are ready to the bytes that go out (SPEC C8).

Must not know: what a job may do.
"""
