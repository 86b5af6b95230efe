"""`tuque cluster` and `tuque tubes`: what many nodes say, as one picture.

Must not know: the server's inside.
"""
