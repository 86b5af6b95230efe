"""The command line for people: one module for each family of commands.

Must not know: the packages of a node; how the answers of nodes are merged.
"""
