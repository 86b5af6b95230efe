"""`tuque spark` and its relatives: options, engines, progress, what is printed.

Must not know: how it is computed.
"""
