"""`tuque journal`: check, repair, show and import the journal of a server that does not run.

Must not know: the network.
"""
