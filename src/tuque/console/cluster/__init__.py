"""`tuque cluster` and `tuque tubes`: the state of many nodes in one picture.

Must not know: the server's inside.
"""
