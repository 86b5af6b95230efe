"""What the server asks of the system: time, waiting, names, listeners, TLS.

Must not know: what the bytes mean.
"""
