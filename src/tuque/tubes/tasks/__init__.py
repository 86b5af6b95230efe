"""Operations on tasks and tubes, sessions and timers (SPEC T2-T6, T8, T10, T11).

Must not know: sockets, passwords.
"""
