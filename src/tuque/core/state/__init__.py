"""What a node keeps of each topic: leases, staged writes, keys, demand, lost copies. Plain data.

Must not know: nodes; when any of it changes.
"""
