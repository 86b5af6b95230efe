"""Figures over HTTP: the text formats of Prometheus, and a small bounded listener (SPEC O1, O2).

Must not know: what is measured. The node, the worker and programs with Spark use it.
"""
