"""Writes that nobody sees until all of them are published at once (SPEC Z).

Must not know: sockets, Spark.
"""
