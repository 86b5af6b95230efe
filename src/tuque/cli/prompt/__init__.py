"""`tuque cli`: one command, or a prompt with history, completion and hints.

Must not know: clusters.
"""
