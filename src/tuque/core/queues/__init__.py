"""Jobs of one node (SPEC G, V, Q, P, S, Z4): states, delivery, requeueing, what clients may see.

Must not know: how messages travel.
"""
