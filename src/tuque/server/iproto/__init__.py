"""One request of IPROTO: may it be, the procedure, the answer (SPEC I4-I6).

Must not know: RESP.
"""
