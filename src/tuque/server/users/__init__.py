"""Users: what each may do, their passwords, their file, tenants and guards (SPEC N).

Must not know: connections, commands, RESP and IPROTO.
"""
