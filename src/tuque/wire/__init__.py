"""Formats: RESP, IPROTO, frames and handshake of the bus, the command table, arguments.

Must not know: sockets.
"""
