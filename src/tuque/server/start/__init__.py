"""Parts of the start: the journal is loaded, the bus and the clients' ports open. Not compiled.

Must not know: commands.
"""
