"""Known flaws, each a switch that puts it into the node, and a load in which it shows.

Must not know: judges.
"""
