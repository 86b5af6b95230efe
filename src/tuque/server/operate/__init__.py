"""What operators ask a node for: its queues as a list, its workers, keys that wait (SPEC O, T47).

Must not change jobs.
"""
