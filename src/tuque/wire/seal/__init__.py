"""The bus under a secret: keys of a link, codes of its frames (SPEC B1, B2).

Must not know: sockets, messages.
"""
