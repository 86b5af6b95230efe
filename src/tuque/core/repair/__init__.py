"""Lost copies, forgotten nodes, leaving, short memory (SPEC K5-K7, M3, Q11, Q12).

Must not know: sockets; which nodes belong to the cluster.
"""
