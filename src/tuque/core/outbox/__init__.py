"""Journal records and events of a change, encoded at the moment of the change.

Must not know: files, threads.
"""
