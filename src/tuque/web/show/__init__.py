"""How figures look: numbers and times as text, verdicts as sentences, charts, templates.

Must not know: pages; how figures are asked for.
"""
