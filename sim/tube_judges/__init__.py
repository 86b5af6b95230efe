"""Judges of tubes: replies to clients must match what the leader did, in its order.

Must not know: how the world is made.
"""
