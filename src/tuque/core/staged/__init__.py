"""Staged writes: invisible until all of them are published at once (SPEC Z).

Must not know: sockets, Spark.
"""
