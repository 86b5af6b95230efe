"""What leaves memory, declared: messages of the bus, each field with its bounds.

Must not know: nodes, rules.
"""
