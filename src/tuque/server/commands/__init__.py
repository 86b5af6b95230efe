"""RESP commands about jobs, queues, leases and sessions: checks, the call into core, the reply.

Must not know: IPROTO.
"""
