"""Parts of the start: the journal is loaded, the bus opens, IPROTO's users are read. Not compiled.

Must not know: commands.
"""
