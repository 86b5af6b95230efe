"""One class per message between nodes (SPEC B3); msgspec makes them, so they are not compiled.

Must not know: how messages travel.
"""
