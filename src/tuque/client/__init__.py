"""The client: typed calls over RESP for threads (`sync`) and for asyncio (`aio`).

`calls` and `admin` say what each call is on the wire, `conn` turns bytes into answers, `nodes`,
`pool` and `retry` decide; only `sync` and `aio`, over `sockets` and `streams`, do I/O. Nothing here
knows the server's code.
"""
