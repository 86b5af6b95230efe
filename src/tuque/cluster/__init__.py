"""Who belongs to the cluster, heartbeats, removals, nodes.conf as text (SPEC K).

Must not know: sockets, files.
"""
