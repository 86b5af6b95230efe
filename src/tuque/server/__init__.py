"""The shell: sockets, threads and files around the core. One process, one loop (`loop/pump.py`).

Must not know: what a job may do; how users see it (console, web).
"""
