"""The client: typed calls over RESP for threads (`sync`) and for asyncio (`aio`, its source).

`commands` defines each call on the wire, `transport` turns bytes into replies, `routing` and
`retry` decide; only `transport.sockets` and `transport.streams` do I/O.

Must not know: the server.
"""
