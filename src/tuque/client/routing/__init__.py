"""Which node a call goes to: one at a time, the leader of a tube, the node where most jobs are
added.

Must not know: sockets.
"""
