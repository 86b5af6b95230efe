"""All state of one node: its jobs, queues, peers, timers and outboxes.

Must not know: sockets, clocks, tubes.
"""
