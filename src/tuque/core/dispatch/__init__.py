"""The entry points of core: messages to their rules, timers, jobs from the journal, FLUSHALL.

Must not know: sockets, files.
"""
