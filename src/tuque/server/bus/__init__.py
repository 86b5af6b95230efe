"""Links to other nodes (SPEC B, K3, K4).

Must not know: clients.
"""
