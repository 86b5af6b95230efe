"""The source of `format("tuque")` as Spark calls it; jobs as Arrow batches.

Must not know: how batches are leased.
"""
