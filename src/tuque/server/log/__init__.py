"""The log, the audit, and records of MONITOR, SLOWLOG and LATENCY. Not compiled.

Must not know: commands.
"""
