"""The options of `format("tuque")`; every mistake is found in the driver.

Must not know: Spark, connections.
"""
