"""One request of IPROTO: rights, the procedure, the reply (SPEC I4-I6).

Must not know: RESP.
"""
