"""What leaves memory, declared: messages of the bus and rare journal records, with their bounds.

Must not know: nodes, rules.
"""
