"""What all nodes of a cluster say, asked and merged: nodes, queues, work, dead letters.

Must not know: how it is shown, in a terminal or a browser; the packages of a node.
"""
