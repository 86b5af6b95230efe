"""What an operator's programs read of the node over HTTP: metrics and health (SPEC O1, O2).

Must not know: clients and commands.
"""
