"""What calls all of core: one message to its rule, every timer, jobs from the journal, FLUSHALL.

Must not know: sockets, files.
"""
