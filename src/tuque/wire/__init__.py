"""Formats of the client protocol: RESP, the command table, arguments. No I/O."""
