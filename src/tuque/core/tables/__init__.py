"""What a node keeps apart from jobs and queues: leases, staged writes, keys, work. Plain data.

Must not know: nodes; when any of it changes.
"""
