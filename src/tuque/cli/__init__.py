"""The command line for people: one module for each family of commands.

Must not know: the packages of a node; how nodes are asked and their answers merged.
"""
