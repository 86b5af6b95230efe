"""Journal records and events: encoded at the moment of the change, decoded after a restart.

Must not know: files, threads.
"""
