"""The simulated world: events, network lines, clocks, disks, and what clients requested and got.

Must not know: nodes.
"""
