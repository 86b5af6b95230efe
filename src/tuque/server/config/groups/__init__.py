"""Options by theme: parts of the table in `options.py`.

Must not know: how values are found, what the server does with them.
"""
