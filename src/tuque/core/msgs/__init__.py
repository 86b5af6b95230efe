"""What leaves memory, declared: messages, records and entries of tasks, with their bounds.

Must not know: nodes, rules.
"""
