"""`tuque queues`, `tuque workers` and `tuque top`: what a whole cluster does now.

Must not know: the server's inside.
"""
