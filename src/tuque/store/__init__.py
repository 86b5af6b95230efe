"""The journal on disk: formats, writing, loading, rewriting. Formats decide, disk.py does I/O."""
