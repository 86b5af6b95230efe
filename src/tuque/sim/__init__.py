"""A whole cluster in one process and one thread: real rules, simulated world, seeds that repeat.

`world` orders what happens, `network`, `disk` and `clock` are the machine rooms, `shell` is
the twin of the server's pump, `programs` are the clients. `swarm` draws from a seed what
shall happen, `faults` makes it happen, `checkers` judge. `python -m tuque.sim` runs seeds.
"""
