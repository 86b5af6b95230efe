"""Which node a call goes to: one at a time, the home of a tube, the node that makes most jobs.

Must not know: sockets.
"""
