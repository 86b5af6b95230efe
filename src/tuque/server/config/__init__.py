"""Options from files, environment and command line; the node's identity. Not compiled.

Must not know: the network.
"""
