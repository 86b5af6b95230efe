"""Raw event files (SPEC E3), and the process that makes segments of them. Not compiled.

Must not know: what a job may do.
"""
