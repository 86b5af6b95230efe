"""Jobs go to the nodes where clients wait (SPEC F).

Must not know: how messages travel.
"""
