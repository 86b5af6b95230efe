"""One seed from start to verdict, many of them, the score-card, the smallest plan that still fails.

Must not know: how a node works.
"""
