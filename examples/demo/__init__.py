"""The main job on real input: every Python file of the standard library is parsed by workers.

`python -m demo` starts nodes, a producer and workers, kills some of them, and then
counts by itself whether anything was lost. It uses the product from the outside only: programs,
the client, and the event files.

Must not know: the server's inside.
"""
