"""Operations on tasks and tubes (SPEC T2-T6, T8, T10, T11), and their effects.

Must not know: sockets, passwords.
"""
