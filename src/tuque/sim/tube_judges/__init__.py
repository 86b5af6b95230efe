"""Judges of tubes: what clients were told must be what the home did, in its order.

Must not know: how the world is made.
"""
