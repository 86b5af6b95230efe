"""What the jobs of a chain carry: the steps that follow, and what is before them (SPEC U11).

A step that follows is the name of a task, or a group: the names of its tasks. Knows no broker and
no app.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.options import Options

CHAIN_HEADER: Final = "tuque-chain"  # the steps that follow, as JSON
AFTER_HEADER: Final = "tuque-after"  # the job of the step before
CHILD_HEADER: Final = "tuque-child"  # of a child in a chain: its group, which that step names
NEXT: Final = "tuque-next"  # in the result of a step: the job or group that follows
NAMES_BYTES: Final = 1_024  # as a header
KEEP_S: Final = 86_400.0  # of an outcome, at least: somebody must see it

OnFail = Literal["stop", "wait", "continue"]


class GroupEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group among the steps that follow: the tasks of its children."""

    g: list[str]
    f: OnFail = "stop"  # what a failure of a child does
    k: float | None = None  # how long a group that is over stays


Entry = str | GroupEntry
_entries: Final = msgspec.json.Decoder(list[Entry])


def header_of(entries: Sequence[Entry]) -> str:
    """The steps that follow, for a header."""
    return json.dumps(msgspec.to_builtins(entries), separators=(",", ":"))


def entries_of(header: str) -> list[Entry]:
    """The steps that follow; ValueError if the header does not say them."""
    try:
        found = _entries.decode(header)
    except msgspec.MsgspecError as err:
        raise ValueError(f"the header {CHAIN_HEADER} is none of a chain: {err}") from None
    if not found:
        raise ValueError(f"the header {CHAIN_HEADER} is none of a chain: it names no step")
    return found


def next_of(value: Any) -> str | None:
    """The id of the next step, if a step has returned that."""
    if isinstance(value, dict) and len(value) == 1:
        found = value.get(NEXT)
        return found if isinstance(found, str) else None
    return None


def kept(call: Call[Any]) -> Options:
    """The options of a child or a step: its outcome is kept until it has been seen."""
    keep_s = max(KEEP_S, call.task.keep_s(call.options))
    return replace(call.options, keep_s=keep_s)
