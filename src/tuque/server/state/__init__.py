"""Everything one server has: its node, clients, workers, settings and figures.

Must not know: commands.
"""
