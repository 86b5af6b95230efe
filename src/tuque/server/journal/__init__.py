"""The journal as the pump sees it: the thread that writes, syncs and rewrites. Not compiled.

Must not know: clients.
"""
