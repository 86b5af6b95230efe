"""Bodies under keys of the program's own, so that the broker cannot make or read them.

Must not know: tasks, the broker.
"""
