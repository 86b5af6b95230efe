"""Metrics as text: OpenMetrics 1.0, or the format 0.0.4 of Prometheus (SPEC O1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

OTHER: Final = "other"  # the label of all that have none of their own
LABEL_CHARS: Final = 128
_MARKED: Final = re.compile(r"~[0-9a-f]{10}\Z")

Value = int | float


class Family:
    """One metric: its name (of a counter without `_total`), kind, help, and lines."""

    __slots__ = ("help", "kind", "lines", "name")

    def __init__(self, name: str, kind: str, help: str) -> None:
        self.name = name
        self.kind = kind
        self.help = help
        self.lines: list[str] = []

    def add(self, value: Value, **labels: str) -> Family:
        """One value with its labels."""
        tail = "_total" if self.kind == COUNTER else ""
        self.lines.append(f"{self.name}{tail}{labelled(labels)} {number(value)}\n")
        return self

    def add_histogram(
        self, buckets: Sequence[int], bounds: Sequence[float], sum: float, **labels: str
    ) -> Family:
        """Values by bucket: `buckets` has one count more than `bounds`, for the rest."""
        seen = 0
        for i, count in enumerate(buckets):
            seen += count
            bound = number(float(bounds[i])) if i < len(bounds) else "+Inf"
            self.lines.append(f"{self.name}_bucket{labelled({**labels, 'le': bound})} {seen}\n")
        tail = labelled(labels)
        self.lines.append(f"{self.name}_sum{tail} {number(sum)}\n")
        self.lines.append(f"{self.name}_count{tail} {seen}\n")
        return self


def render(families: Iterable[Family], is_open: bool) -> bytes:
    """All families as text; one without a value is left out."""
    out: list[str] = []
    for family in families:
        if not family.lines:
            continue
        tail = "_total" if family.kind == COUNTER and not is_open else ""
        out.append(f"# TYPE {family.name}{tail} {family.kind}\n")
        out.append(f"# HELP {family.name}{tail} {family.help.translate(_ESCAPES)}\n")
        out += family.lines
    if is_open:
        out.append("# EOF\n")
    return "".join(out).encode()


def labelled(labels: dict[str, str]) -> str:
    """The labels in braces, or nothing."""
    if not labels:
        return ""
    pairs = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()])
    return "{" + pairs + "}"


def number(value: Value) -> str:
    """A value as both formats have it."""
    return repr(value)


def shown(name: bytes) -> str:
    """[O1] A name of bytes as a label that no other name has (O1.4)."""
    text = name.decode("utf-8", "backslashreplace")
    if len(text) <= LABEL_CHARS and text not in ("", OTHER) and not _MARKED.search(text):
        if text.encode("utf-8", "replace") == name:
            return text
    return f"{text[:LABEL_CHARS]}~{blake2b(name, digest_size=5).hexdigest()}"


def wants_open(accept: str) -> bool:
    """Whether the header Accept asks for OpenMetrics."""
    return "application/openmetrics-text" in accept
