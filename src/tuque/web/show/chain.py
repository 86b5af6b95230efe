"""The steps of a chain, as its jobs carry them: the next ones in a header, the next id in a result.

What programs of other making put there is shown as it is, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

HEADER: Final = "tuque-chain"  # the names of the steps that follow, as JSON (SPEC U11.1, U11.6)
AFTER: Final = "tuque-after"  # the job of the step before (SPEC U11.3)
NEXT: Final = "tuque-next"  # in the result of a step (SPEC U11.2)
MSGPACK_OPENS: Final = b"\xc1"  # how the worker begins a result in MessagePack
RESULT_MAX: Final = 1_024  # bytes of a result that may name the next step


def following(headers: Mapping[str, str]) -> list[str]:
    """[O14] The names of the steps that follow the job (O14.31); none if it is no step."""
    try:
        found = json.loads(headers.get(HEADER, "[]"))
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return []
    return [name for one in found if (name := _shown(one))]


def _shown(step: object) -> str:
    """The name of a step, or those of the tasks of a group; empty if it is neither."""
    if isinstance(step, str):
        return step
    names = step.get("g") if isinstance(step, dict) else None
    if not isinstance(names, list):
        return ""
    return "a group: " + ", ".join(one for one in names if isinstance(one, str))


def next_id(result: bytes | None) -> str:
    """[O14] The id of the next step that the result names (O14.31); empty if it names none."""
    if not result or len(result) > RESULT_MAX:
        return ""
    is_json = not result.startswith(MSGPACK_OPENS)
    try:
        value: Any = msgspec.json.decode(result) if is_json else msgspec.msgpack.decode(result[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    found = value.get(NEXT) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
