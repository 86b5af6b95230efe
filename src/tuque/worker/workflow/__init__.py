"""Chains and groups of calls whose ends are awaited together.

Must not know: how jobs are fetched and run.
"""
