"""The client: typed calls over RESP for threads (`sync`) and for asyncio (`aio`, its source).

`commands` defines each call on the wire, `transport` turns bytes into replies, `routing` and
`retry` decide; only `sync`, `aio` and `transport.raw_link` do I/O, over sockets and streams.

Must not know: the server.
"""
