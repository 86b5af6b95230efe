"""Whether a client may run a command, and how it logs in (SPEC N).

Must not know: what commands do, IPROTO's frames.
"""
