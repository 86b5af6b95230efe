"""Commands of operators, and the table that names all commands' functions. Not compiled.

Must not know: the order of a turn.
"""
