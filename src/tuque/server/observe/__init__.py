"""What the node keeps of its past: rings of points, and a survey of its queues (SPEC O).

Knows the core, and neither clients nor sockets.
"""
