"""Commands: their table, bounds and rights; words in, typed requests or errors out.

Must not know: nodes.
"""
