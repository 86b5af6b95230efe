"""Decodes journal records; one that is cut or exceeds its length is refused (SPEC J2).

Must not know: files; what becomes of a record.
"""
