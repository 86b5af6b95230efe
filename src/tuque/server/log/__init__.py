"""The log, what repeats in it once a minute; MONITOR, slow commands, latency. Not compiled.

Must not know: commands.
"""
