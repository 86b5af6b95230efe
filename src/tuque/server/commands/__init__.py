"""Commands of clients, over RESP and IPROTO: checks, the call into core or tubes, the reply.

Must not know: sockets, the order of a turn.
"""
