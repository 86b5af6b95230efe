"""Jobs with copies on several nodes (SPEC R, A, Q, F): adding, copying, moving, acknowledging.

Must not know: how messages travel.
"""
