"""Jobs in their queues: states, delivery, requeueing, ends, views (SPEC G, V, Q, P, S, Z4).

Must not know: how messages travel.
"""
