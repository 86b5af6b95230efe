"""The web console: pages that show and change a cluster, made by the server, for browsers.

Must not know: how nodes are asked and their answers merged; the packages of a node.
"""
