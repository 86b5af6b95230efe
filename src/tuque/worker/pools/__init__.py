"""Where jobs run: threads, an event loop, child processes.

Must not know: brokers.
"""
