"""Records of the journal read back: each is whole and within its length, or refused (SPEC J2).

Must not know: files; what becomes of a record.
"""
