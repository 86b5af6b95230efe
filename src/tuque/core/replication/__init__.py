"""Jobs with copies on several nodes (SPEC R, A, Q): adding, copying, acknowledging.

Must not know: how messages travel.
"""
