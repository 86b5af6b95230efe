"""The only module below the server that opens files, and its twin in memory. Not compiled.

Must not know: what is in the files.
"""
