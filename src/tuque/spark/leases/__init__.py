"""What a stream takes from each node, when it is acknowledged, how a task reads it.

Must not know: Spark.
"""
