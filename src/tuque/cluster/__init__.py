"""Which nodes are in the cluster and which are alive: membership, heartbeats, nodes.conf (SPEC K).

Must not know: sockets, files.
"""
