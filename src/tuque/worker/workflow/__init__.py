"""Chains and groups of calls: made, enqueued, followed to their ends.

Must not know: how jobs are fetched and run.
"""
