"""The table of methods: what each call is on the wire, and what its reply means.

Must not know: connections.
"""
