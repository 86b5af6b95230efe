"""[U1] Pydantic models among arguments and results, if the program has imported pydantic (U1.4).

Decides how they become plain data and come back. Never imports pydantic itself: a program whose
tasks name its models has done so.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

import msgspec

BOUNDS_OF: Final = ("pydantic", "annotated_types")
BY_NAME_SINCE: Final = (2, 11)  # the version that reads fields by name also where they have aliases


class Adapted:
    """A type that only pydantic can restore, such as a union with a model.

    If `is_plain`, msgspec restores it, and pydantic only looks whether it is within its bounds.
    """

    def __init__(self, hint: Any, is_plain: bool = False) -> None:
        self.hint = hint
        self.is_plain = is_plain
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
        try:
            with _type_errors():
                return value.model_dump(mode="json", round_trip=True)
        except ValueError as err:
            if "utf-8" not in str(err):
                raise
            raise TypeError(f"{err}: declare these bytes as pydantic.Base64Bytes") from None
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def restored(hint: Any, data: Any) -> Any:
    """Plain data as a model, for msgspec; other types are left to it."""
    if not is_model(hint):
        return data
    with _type_errors():
        return hint.model_validate(data, **_by_name())


def converted_by(adapted: Adapted, data: Any) -> Any:
    """Plain data in a type that only pydantic can restore; ValueError if it does not fit."""
    if adapted.is_plain:
        data = msgspec.convert(data, adapted.hint, strict=True, str_keys=True, dec_hook=restored)
    with _type_errors():
        return adapted.adapter.validate_python(data, **_by_name())


def same_models(sent: Any, got: Any, is_same: Callable[[Any, Any], bool]) -> bool:
    """Whether two models that are not equal have the same in all fields, such as nan."""
    if not is_model(type(got)) or type(sent) is not type(got):
        return False
    if sent.__pydantic_private__ != got.__pydantic_private__:
        return False
    return is_same(
        {**sent.__dict__, **(sent.model_extra or {})}, {**got.__dict__, **(got.model_extra or {})}
    )


@contextmanager
def _type_errors() -> Iterator[None]:
    """A model that pydantic cannot use, such as one with a name that is not defined yet."""
    try:
        yield
    except sys.modules["pydantic"].PydanticUserError as err:
        raise TypeError(str(err).partition("\n")[0]) from None


def resolved(hint: Any) -> Any:
    """The type, as `converted` takes it; TypeError if nothing can restore it."""
    try:
        msgspec.json.Decoder(hint, dec_hook=restored)
    except TypeError:
        if not _has_model(hint):
            raise
        return _adapted(hint)
    if "pydantic" in sys.modules and _has_bounds(hint):
        with suppress(TypeError):  # nothing that pydantic can look at: it has no bounds there
            return _adapted(hint, is_plain=True)
    return hint


def _adapted(hint: Any, is_plain: bool = False) -> Adapted:
    try:
        return Adapted(hint, is_plain)
    except Exception as err:  # pydantic has errors of its own for types
        raise TypeError(str(err)) from None


@cache
def _by_name() -> dict[str, bool]:
    version = sys.modules["pydantic"].VERSION.split(".")
    return {"by_name": True} if tuple(map(int, version[:2])) >= BY_NAME_SINCE else {}


def _has_bounds(hint: Any, depth: int = 8) -> bool:
    """[U1] Whether a hint has bounds for pydantic, such as `Field(gt=0)` (U1.7)."""
    for word in getattr(hint, "__metadata__", ()):
        if type(word).__module__.partition(".")[0] in BOUNDS_OF:
            return True
    return depth > 0 and any(_has_bounds(part, depth - 1) for part in typing.get_args(hint))


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
