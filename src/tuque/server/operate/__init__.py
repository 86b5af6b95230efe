"""What operators ask a node for: its queues as a list, its workers (SPEC O).

Must not change jobs.
"""
