"""A whole cluster in one process and one thread: real rules, simulated world, seeds that repeat.

`engine` orders what happens, `machines` gives the server its ground, `workload` the clients.
`plans` draws from a seed what shall happen, judges judge. `python -m tuque.sim` runs seeds.

Must not know: sockets, threads, the real clock.
"""
