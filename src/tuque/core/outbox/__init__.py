"""What the journal and the event stream must know of a change, encoded at the moment of the change.

Must not know: files, threads.
"""
