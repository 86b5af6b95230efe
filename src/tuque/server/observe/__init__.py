"""What the node keeps of its past: rings of points, and a survey of its queues (SPEC O).

Must not know: clients, sockets.
"""
