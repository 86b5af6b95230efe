"""Everything one server has: its node, clients, settings and figures.

Must not know: commands.
"""
