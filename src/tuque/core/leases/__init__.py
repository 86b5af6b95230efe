"""Groups lease jobs in numbered batches and commit them (SPEC Y).

Must not know: sockets, Spark.
"""
