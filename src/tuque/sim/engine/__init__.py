"""The simulated world: what happens next, lines, clocks, disks, and what clients were told.

Must not know: nodes.
"""
