"""Jobs with copies on several nodes: added, copied, moved and acknowledged (SPEC R, A, Q, F).

Must not know: how messages travel.
"""
