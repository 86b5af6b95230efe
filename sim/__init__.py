"""A whole cluster in one process and one thread: real rules, simulated world, seeds that repeat.

`engine` orders events, `machines` runs the real server on simulated sockets, disks and clocks,
`workload` has the clients, `plans` draws the plan of a seed, judges check the run.
`python -m sim` runs seeds.

Must not know: sockets, threads, the real clock.
"""
