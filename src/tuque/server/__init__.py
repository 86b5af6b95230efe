"""The shell: sockets, threads and files around the core. One process, one loop (pump.py)."""
