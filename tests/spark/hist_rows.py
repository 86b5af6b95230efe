"""Comparing tables of any order."""

from __future__ import annotations

from typing import Any


def keyed(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """A row as text that two engines agree about: doubles with nine digits."""
    return tuple(sorted((name, told(value)) for name, value in row.items()))


def told(value: Any) -> str:
    """One cell."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        return "[" + " ".join(map(told, value)) + "]"
    return str(value)


def same_rows(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Assert that both tables hold the same rows, and as often."""
    left, right = sorted(map(keyed, one)), sorted(map(keyed, other))
    for a, b in zip(left, right, strict=False):
        assert a == b
    assert len(left) == len(right)
