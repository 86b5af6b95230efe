"""What a node keeps beside jobs and queues: leases, staged writes, keys, work, losses. Plain data.

Must not know: nodes; when any of it changes.
"""
