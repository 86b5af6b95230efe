"""What all messages between nodes are (SPEC B3)."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, array_like=True, gc=False):
    """A message to one peer."""
