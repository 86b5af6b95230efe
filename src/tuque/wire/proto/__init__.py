"""The protocols of clients, RESP and IPROTO: bytes to values and back.

Must not know: commands.
"""
