"""Links to other nodes: dialled, accepted, proved, written and read (SPEC B, K3, K4).

Must not know: clients.
"""
