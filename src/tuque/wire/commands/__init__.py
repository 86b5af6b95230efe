"""Commands: their table, bounds, rights and rules; words in, typed requests or errors out.

Must not know: nodes.
"""
