"""The journal as the pump sees it, the thread that writes it, and `tuque journal`. Not compiled.

Must not know: clients.
"""
