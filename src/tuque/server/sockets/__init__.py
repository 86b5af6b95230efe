"""What the server asks of the system: time, waiting, host names, listeners; connections.

Must not know: what the bytes mean.
"""
