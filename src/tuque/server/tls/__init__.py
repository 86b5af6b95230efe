"""TLS of the node's ports: certificates, which are read again when they change, and the thread in
which connections shake hands, so that the loop never waits for one (SPEC X).
"""
