"""What `format("tuque")` may be told; every mistake is found in the driver.

Must not know: Spark, connections.
"""
