"""Types of tubes (SPEC T3): which task goes next, one driver per type.

Must not know: nodes, sessions.
"""
