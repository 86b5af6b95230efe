"""What decides: jobs, queues, timers and the rules of SPEC.md.

Plain state and functions. Nothing here reads a clock, a socket, a file or a
random source: time comes in as `n.now_ms`, chance as `n.rng`, and what must
happen outside is left in outboxes for the shell to carry out.
"""
