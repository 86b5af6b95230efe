"""The client: typed calls over RESP for threads (`sync`) and for asyncio (`aio`).

`commands` says what each call is on the wire, `transport` turns bytes into answers, `routing`,
`transport.pool` and `retry` decide; only `sync` and `aio`, over sockets and streams, do I/O.

Must not know: the server.
"""
