"""SPEC C7.7, L2: glob patterns, what they match and what they cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.server.config.patterns import Glob, end_of, matches


def slowly(pattern: str, name: str) -> bool:
    """The meaning, in the shortest form: every way to split the name at a star is tried."""
    if pattern == "":
        return name == ""
    if pattern[0] == "*":
        return any(slowly(pattern[1:], name[i:]) for i in range(len(name) + 1))
    if name == "":
        return False
    end = end_of(pattern, 0)
    return is_one(pattern[:end], name[0]) and slowly(pattern[end:], name[1:])


def is_one(element: str, char: str) -> bool:
    if element == "?":
        return True
    if len(element) < 3:
        return element[-1] == char
    is_not = element[1] in "^!"
    members = element[2 if is_not else 1 : -1]
    found = False
    while members:
        if members[1:2] == "-" and len(members) > 2:
            found |= members[0] <= char <= members[2]
            members = members[3:]
        else:
            found |= members[0] == char
            members = members[1:]
    return found != is_not


@given(st.text("ab*?[]^!-\\c", max_size=8), st.text("abc-]^[\\*", max_size=7))
def test_a_pattern_matches_as_it_is_defined(pattern: str, name: str) -> None:
    assert matches(pattern, name) == slowly(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("", "", True),
        ("*", "", True),
        ("a*b*c", "abbcc", True),
        ("a*bc*c", "abc", False),
        ("[a-c]?[^x]", "bzy", True),
        ("[^]a]", "b", False),
        ("[", "[", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("*\\", "a\\", True),
        ("ü*ß", "üßß", True),
    ],
)
def test_patterns_and_names(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize("pattern", ["*" + "[!b]" * 31 + "z*", "*" + "?" * 126 + "z", "*[a-z]b*"])
def test_a_name_is_looked_through_once(pattern: str) -> None:
    """T60.3 A comparison takes a step for each character of the value, whatever the pattern."""
    for size in (1_000, 10_000):
        glob = Glob(pattern)
        assert not glob.matches("a" * size)
        assert glob.steps <= size + 3 * len(pattern) + 8


@pytest.mark.parametrize(
    "pattern", ["*a" * 64, "*" + "a?" * 60 + "b", "*[" + "a-b" * 40 + "]z", "*" + "a" * 120 + "b"]
)
def test_a_costly_pattern_is_counted(pattern: str) -> None:
    """L2.1 a costlier one counts as several."""
    glob = Glob(pattern)
    assert glob.matches("a" * 255) is (pattern == "*a" * 64)
    assert glob.steps <= len(pattern) * 255 + 8
    units = glob.units()
    assert units >= 2 and glob.units() == 0
    assert glob.steps < 4
