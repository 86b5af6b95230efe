"""Jobs, queues, timers and the rules about them: plain state and functions that decide (spec/).

Time comes in as `n.now_ms`, chance as `n.rng`; what must happen outside is left in outboxes.

Must not know: clocks, sockets, files, threads, chance, texts of replies.
"""
