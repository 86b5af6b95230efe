"""How figures look: numbers and times as text, verdicts as sentences, charts, templates."""
