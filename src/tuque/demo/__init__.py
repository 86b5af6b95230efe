"""The main job on real input: every Python file of the standard library is parsed by workers.

`python -m tuque.demo` starts a node, a producer and two workers, kills one of them, and then
counts by itself whether anything was lost. It uses the product from the outside only: programs,
the client, and the event files.
"""
