"""From segments of events to tables, figures, the report and dead letters; compaction (SPEC E5, H).

Must not know: the broker's memory.
"""
