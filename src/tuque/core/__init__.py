"""What decides: jobs, queues, timers and the rules of SPEC.md. Plain state and functions.

Time comes in as `n.now_ms`, chance as `n.rng`; what must happen outside is left in outboxes.

Must not know: clocks, sockets, files, threads, chance, texts of replies.
"""
