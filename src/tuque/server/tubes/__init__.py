"""TUBE and its subcommands (SPEC T15, T16), callbacks and drivers of other packages.

Must not know: what a task may do; which node may lead.
"""
