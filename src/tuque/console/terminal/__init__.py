"""One connection that keeps the type of every reply, and replies as text.

Must not know: subcommands.
"""
