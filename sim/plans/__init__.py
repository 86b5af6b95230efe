"""From the number of a seed to a plan: which faults, how many nodes, what clients do.

Must not know: nodes.
"""
