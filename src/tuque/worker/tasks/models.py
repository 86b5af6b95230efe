"""[U1] Pydantic models among arguments and results, if the program has imported pydantic (U1.4).

Decides how they become plain data and come back. Never imports pydantic itself: a program whose
tasks name its models has done so.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from functools import cache
from typing import Any, Final

import msgspec

BY_NAME_SINCE: Final = (2, 11)  # the version that reads fields by name also where they have aliases


class Adapted:
    """A type that only pydantic can restore, such as a union with a model."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self.adapter: Any = sys.modules["pydantic"].TypeAdapter(hint)

    def __repr__(self) -> str:
        return repr(self.hint)


def is_model(hint: Any) -> bool:
    """Whether a type is a model of pydantic."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return base is not None and isinstance(hint, type) and issubclass(hint, base)


def plain(value: Any) -> Any:
    """A model as plain data, for an encoder; TypeError for other values."""
    if is_model(type(value)):
        return value.model_dump(mode="json", round_trip=True)
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def restored(hint: Any, data: Any) -> Any:
    """Plain data as a model, for msgspec; other types are left to it."""
    return hint.model_validate(data, **_by_name()) if is_model(hint) else data


def converted_by(adapted: Adapted, data: Any) -> Any:
    """Plain data in a type that only pydantic can restore; ValueError if it does not fit."""
    return adapted.adapter.validate_python(data, **_by_name())


def resolved(hint: Any) -> Any:
    """The type, as `converted` takes it; TypeError if nothing can restore it."""
    try:
        msgspec.json.Decoder(hint, dec_hook=restored)
    except TypeError:
        if not _has_model(hint):
            raise
        try:
            return Adapted(hint)
        except Exception as err:  # pydantic has errors of its own for types
            raise TypeError(str(err)) from None
    return hint


@cache
def _by_name() -> dict[str, bool]:
    version = sys.modules["pydantic"].VERSION.split(".")
    return {"by_name": True} if tuple(map(int, version[:2])) >= BY_NAME_SINCE else {}


def _has_model(hint: Any, depth: int = 8) -> bool:
    """Whether a model is among the types of a hint."""
    if is_model(hint):
        return True
    if not depth:
        return False
    parts = list(typing.get_args(hint))
    if dataclasses.is_dataclass(hint):
        parts += [field.type for field in dataclasses.fields(hint)]
    return any(_has_model(part, depth - 1) for part in parts)
