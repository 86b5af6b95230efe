"""Glob patterns as in Redis: `*`, `?`, `[a-z]`, `[^a]` and `\\` before any of these."""

from typing import Final

MOST: Final = 128  # characters of a pattern; no name is longer


def matches(pattern: str, name: str) -> bool:
    """Whether the name matches, in at most len(pattern) * len(name) steps."""
    at, i = 0, 0
    star, mark = -1, 0
    while i < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, mark = at, i
            at += 1
            continue
        end = one(pattern, at, name[i])
        if end > 0:
            at, i = end, i + 1
        elif star >= 0:
            mark += 1
            at, i = star + 1, mark
        else:
            return False
    return pattern[at:].strip("*") == ""


def one(pattern: str, at: int, char: str) -> int:
    """The index after the pattern element that matches the character; 0: no match."""
    if at >= len(pattern):
        return 0
    first = pattern[at]
    if first == "?":
        return at + 1
    end = pattern.find("]", at + 2) if first == "[" else -1
    if end > 0:
        return end + 1 if is_in(pattern[at + 1 : end], char) else 0
    if first == "\\" and at + 1 < len(pattern):
        at += 1
    return at + 1 if pattern[at] == char else 0


def is_in(members: str, char: str) -> bool:
    """Whether the character is in the bracket expression."""
    is_not = members[0] in "^!"
    i = 1 if is_not else 0
    found = False
    while i < len(members):
        if members[i + 1 : i + 2] == "-" and i + 2 < len(members):
            found = found or members[i] <= char <= members[i + 2]
            i += 3
        else:
            found = found or members[i] == char
            i += 1
    return found != is_not
