"""Arguments of a task: plain data in a body, the declared types again when the job runs.

Decides the type of each argument, and which values would not survive the way. Such a value is
refused before the job is added. Knows nothing of options, brokers and pools.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tuque.worker.app.codec import (
    Adapted,
    Codec,
    Envelope,
    converted_by,
    from_data,
    is_model,
    lost_in_json,
    plain,
    resolved,
    restored,
    same_models,
    to_data,
)

VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
UNTYPED: Final = object()  # no annotation, Any, or a type unknown to msgspec
EXACT: Final = (str, int, bool, type(None))  # values of these are mostly encoded unchanged
KINDS: Final[dict[type, str]] = {  # types whose values are never taken for each other
    **dict.fromkeys((bool, int, float), "number"),
    **{kind: kind.__name__ for kind in (str, bytes, list, dict, type(None))},
}
SCALARS: Final = (UNTYPED, Any, *EXACT, None, float, bytes, list, dict, tuple, set, frozenset)
CONTAINERS: Final = (list, dict, tuple, set, frozenset, typing.Union, types.UnionType)
NO_NUMBER: Final = 'JSON has no such number; codec="msgpack" has'
SHOWN_CHARS: Final = 60
INT64_MAX: Final = 2**63 - 1


# the arguments of a call: by their places, and by their names
Bound: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class BadArguments(Exception):
    """The data of a job does not fit the declared arguments of its task."""


class Arguments:
    """The signature of a task's function, with the type of each argument."""

    def __init__(self, function: Callable[..., Any], name: str, scope: Mapping[str, Any]) -> None:
        """`scope` has the local names where the function is defined.

        TypeError for an annotation that cannot be resolved: names the argument, and what to do.
        """
        self._name = name
        self.signature = inspect.signature(function)
        self._types = {
            parameter.name: _type_of(function, name, parameter, scope)
            for parameter in self.signature.parameters.values()
        }
        self._plain = list(self._types.items())  # those that are given by their places
        self._least = len(self._plain)
        for parameter in self.signature.parameters.values():
            if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
                self._least = len(self._plain) + 1  # none are plain
            elif parameter.default is not inspect.Parameter.empty:
                self._least -= 1

    def _are_plain(self, count: int, others: Any) -> bool:
        """Whether so many arguments, and `others` by name, are bound by their places alone."""
        return not others and self._least <= count <= len(self._plain)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], codec: Codec) -> None:
        """TypeError unless the task would receive each argument as given here."""
        if self._are_plain(len(args), kwargs):
            for (name, hint), value in zip(self._plain, args, strict=False):
                self._check_one(name, value, hint, codec)
            return
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as err:
            raise TypeError(f"task {self._name}: {err}") from None
        for name, value in bound.arguments.items():
            hint = self._types[name]
            kind = self.signature.parameters[name].kind
            if kind not in VARIADIC:
                self._check_one(name, value, hint, codec)
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                for at, one in enumerate(value):
                    self._check_one(f"{name}[{at}]", one, hint, codec)
            else:
                for key, one in value.items():
                    self._check_one(key, one, hint, codec)

    def check_step(self, returned: Any) -> None:
        """TypeError unless one argument is enough, and may be a result of that type (U11.1)."""
        try:
            bound = self.signature.bind(None)
        except TypeError as err:
            raise TypeError(
                f"task {self._name}: {err}: a step gets one argument, the result of the one before"
            ) from None
        for name in bound.arguments:
            hint = self._types[name]
            if _is_other_kind(returned, hint):
                raise TypeError(
                    f"task {self._name}: argument {name} is {_shown_type(hint)}, and the step "
                    f"before it returns {_shown_type(returned)}"
                )

    def _check_one(self, name: str, value: Any, hint: Any, codec: Codec) -> None:
        kind = type(value)
        if (
            kind in EXACT
            and (hint is UNTYPED or hint is kind)
            and (kind is not int or -INT64_MAX <= value <= INT64_MAX)
            and (kind is not str or value.isascii())
        ):
            return
        where = f"task {self._name}: argument {name}: {_shown(value)}"
        try:
            data = from_data(to_data(value, codec), codec)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as err:
            raise TypeError(f"{where} cannot be written as {codec}: {err}") from None
        try:
            arrived = converted(name, data, hint)
        except BadArguments as err:
            if data is None and isinstance(value, float):
                arrived = None  # JSON has no nan and no infinities
            elif codec == "json" and (lost := lost_in_json(value)) is not None:
                raise TypeError(f"{where} has {lost}: {NO_NUMBER}") from None
            else:
                raise TypeError(f"{where} would not be taken by the worker: {err}") from None
        try:
            same = is_same(value, arrived)
            part = name, value, arrived
            if not same:
                part = _first_difference(*part)
            elif arrived is not data:
                _check_whole(name, data, arrived, hint)
        except BadArguments as err:
            raise TypeError(f"{where} would not be taken by the worker: {err}") from None
        except RecursionError:
            raise TypeError(f"{where} is nested too deep") from None
        if not same:
            inner, sent, got = part
            where = f"task {self._name}: argument {inner}: {_shown(sent)}"
            advice = _advice(sent, hint, codec)
            raise TypeError(f"{where} would arrive as {_shown(got)}: {advice}")

    def bind(self, envelope: Envelope, is_result: bool = False) -> Bound:
        """The arguments of a job in their declared types; BadArguments if they do not fit.

        `is_result`: they are results of other tasks, of which a type may have some fields only.
        """
        made = converted if is_result else whole
        args = envelope.args
        if self._are_plain(len(args), envelope.kwargs):
            for at, (name, hint) in enumerate(self._plain[: len(args)]):
                if hint is not UNTYPED and not (type(args[at]) is hint and hint in EXACT):
                    args = [*args[:at], made(name, args[at], hint), *args[at + 1 :]]
            return tuple(args), {}
        bound = self.by_name(envelope, is_result)
        return bound.args, bound.kwargs

    def by_name(self, envelope: Envelope, is_result: bool = False) -> inspect.BoundArguments:
        """Like `bind`, by the names of the arguments."""
        made = converted if is_result else whole
        try:
            bound = self.signature.bind(*envelope.args, **envelope.kwargs)
        except TypeError as err:
            raise BadArguments(str(err)) from None
        for name, value in bound.arguments.items():
            hint = self._types[name]
            if hint is UNTYPED:
                continue
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(made(name, one, hint) for one in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: made(key, one, hint) for key, one in value.items()}
            else:
                bound.arguments[name] = made(name, value, hint)
        return bound


def _type_of(
    function: Callable[..., Any], task: str, parameter: inspect.Parameter, scope: Mapping[str, Any]
) -> Any:
    """[U1] The declared type of one argument, or UNTYPED (U1.5)."""
    if parameter.annotation is inspect.Parameter.empty:
        return UNTYPED
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        hint = typing.get_type_hints(holder, known, dict(scope), include_extras=True)[
            parameter.name
        ]
        if hint is Any or isinstance(hint, typing.TypeVar):
            return UNTYPED
        hint = resolved(hint)  # also resolves the names in fields of classes
    except (NameError, AttributeError) as err:
        raise TypeError(
            f"task {task}: the type of argument {parameter.name} cannot be resolved: {err}. "
            "The worker needs it to convert the argument: import it outside of "
            "`if TYPE_CHECKING:`, and define it before the task"
        ) from None
    except TypeError:
        return UNTYPED  # such as `Decimal | str`: only plain data can arrive
    except RecursionError:
        return UNTYPED
    return hint


def returned_type(function: Callable[..., Any], task: str, scope: Mapping[str, Any]) -> Any:
    """[U1] The declared type of the result (U1.5); UNTYPED: there is none, or only plain data.

    TypeError for an annotation that cannot be resolved.
    """
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return", UNTYPED)
    if annotation is UNTYPED:
        return UNTYPED
    holder = types.SimpleNamespace(__annotations__={"return": annotation})
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        hint = typing.get_type_hints(holder, known, dict(scope), include_extras=True)["return"]
        if hint is Any:
            return Any  # it is kept (U1.9)
        if hint in (typing.NoReturn, typing.Never) or isinstance(hint, typing.TypeVar):
            return UNTYPED
        return resolved(hint)
    except (NameError, AttributeError) as err:
        raise TypeError(
            f"task {task}: the type of its result cannot be resolved: {err}. "
            "Who reads the result needs it to convert it: import it outside of "
            "`if TYPE_CHECKING:`, and define it before the task"
        ) from None
    except (TypeError, RecursionError):
        return UNTYPED


def wanted_type(hint: Any) -> Any:
    """A type that somebody asks for, as `converted` takes it; TypeError if nothing can make it."""
    return hint if hint is UNTYPED or hint is Any else resolved(hint)


def converted(name: str, value: Any, hint: Any) -> Any:
    """Plain data in its declared type; BadArguments if it does not fit."""
    if hint is UNTYPED or (type(value) is hint and hint in EXACT):
        return value
    try:
        if not isinstance(hint, Adapted):
            return msgspec.convert(value, hint, strict=True, str_keys=True, dec_hook=restored)
        return converted_by(hint, value)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as err:
        raise BadArguments(f"argument {name}: {err}") from None


def whole(name: str, value: Any, hint: Any) -> Any:
    """[U2] As `converted`, and BadArguments if a part of the data would be lost (U2.19)."""
    made = converted(name, value, hint)
    if made is not value:
        _check_whole(name, value, made, hint)
    return made


def _check_whole(name: str, value: Any, made: Any, hint: Any) -> None:
    if _may_lose(hint) and (lost := _lost(name, value, made)) is not None:
        raise BadArguments(f"{lost}: the type of this argument has no such field")


def _may_lose(hint: Any) -> bool:
    """Whether a type may have fields: of those it leaves out what it does not know."""
    if hint in SCALARS:
        return False
    if typing.get_origin(hint) in CONTAINERS:
        return any(map(_may_lose, typing.get_args(hint)))
    return True


def _lost(name: str, data: Any, got: Any) -> str | None:
    """The first part of plain data that is not in the value made of it; None if all is."""
    if isinstance(data, dict):
        return _lost_field(name, data, got)
    if not isinstance(data, list) or isinstance(got, str | bytes | bytearray):
        return None
    if isinstance(got, set | frozenset):  # in another order
        pairs = [(one, list(got)) for one in data if isinstance(one, dict | list)]
        for one, others in pairs:
            found = [_lost(f"{name}[]", one, other) for other in others]
            if found and None not in found:
                return found[0]
        return None
    if isinstance(got, msgspec.Struct):  # with array_like
        tags = isinstance(got.__struct_config__.tag, str | int)
        got = [None] * tags + [getattr(got, field) for field in got.__struct_fields__]
        if len(data) > len(got):
            return f"{name}[{len(got)}]"
    if not isinstance(got, list | tuple):
        return None
    for at, (one, other) in enumerate(zip(data, got, strict=False)):
        if (lost := _lost(f"{name}[{at}]", one, other)) is not None:
            return lost
    return None


def _lost_field(name: str, data: dict[str, Any], got: Any) -> str | None:
    """`_lost` of a dictionary, which became one or an object."""
    if isinstance(got, dict) and len(got) == len(data):
        pairs = list(zip(data.items(), got.values(), strict=True))
    else:
        fields = fields_of(got)
        if fields is None:
            return None
        for key in data:
            if key not in fields:
                return f"{name}.{key}"
        pairs = [(item, fields[item[0]]) for item in data.items()]
    for (key, one), other in pairs:
        lost = _lost(f"{name}.{key}", one, other) if isinstance(one, dict | list) else None
        if lost is not None:
            return lost
    return None


def fields_of(value: Any) -> dict[str, Any] | None:
    """What an object was made of by their names in data; None if it is no object with fields."""
    kind = type(value)
    if isinstance(value, dict):
        return value
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        found = {name: getattr(value, field) for name, field in names}
        config = value.__struct_config__
        return found if config.tag is None else {**found, config.tag_field or "": None}
    if is_model(kind):  # its serializers name its fields, and its values are plain there
        dumped = plain(value)
        return dumped if isinstance(dumped, dict) else None
    if dataclasses.is_dataclass(value):
        return {name: getattr(value, name, None) for name in _field_names(value)}
    attributes = getattr(kind, "__attrs_attrs__", None)
    return attributes and {one.name: getattr(value, one.name, None) for one in attributes}


def _is_other_kind(returned: Any, hint: Any) -> bool:
    """Whether no value of the one type is one of the other; False if that is not plain to see."""
    kinds = [
        KINDS.get(kind) if isinstance(kind, type) else None
        for kind in (typing.get_origin(returned) or returned, typing.get_origin(hint) or hint)
    ]
    return None not in kinds and kinds[0] != kinds[1]


def _shown_type(hint: Any) -> str:
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def is_same(sent: Any, got: Any) -> bool:
    """Whether the received value equals the sent one.

    An instance of a subclass of `list`, `dict` or an Enum may arrive as the class itself, and an
    int as a float if declared so: they are equal.
    """
    if isinstance(got, list | tuple):
        return (
            isinstance(sent, type(got)) and len(sent) == len(got) and all(map(is_same, sent, got))
        )
    if isinstance(got, dict):
        return isinstance(sent, dict) and _same_items(sent, got)
    if isinstance(got, set | frozenset):
        if not isinstance(sent, type(got)) or len(sent) != len(got):
            return False
        found = {one: one for one in got}
        return all(one in found and is_same(one, found[one]) for one in sent)
    if isinstance(got, msgspec.Struct) or dataclasses.is_dataclass(got):
        return type(sent) is type(got) and _same_fields(sent, got)
    if isinstance(got, dt.datetime) and isinstance(sent, dt.datetime):
        return _same_instant(sent, got)
    if isinstance(got, float) and type(sent) is int:
        return sent == got
    if not isinstance(sent, type(got)) or isinstance(sent, bool) is not isinstance(got, bool):
        return False
    try:
        if sent == got or (sent != sent and got != got):  # nan
            return True
        return same_models(sent, got, is_same)
    except Exception:  # a user's class may do anything: not known to be equal
        return False


def _first_difference(name: str, sent: Any, got: Any) -> tuple[str, Any, Any]:
    """The innermost part that would not arrive unchanged, with its name."""
    while True:
        for inner, one, other in _parts(name, sent, got):
            if not is_same(one, other):
                name, sent, got = inner, one, other
                break
        else:
            return name, sent, got


def _parts(name: str, sent: Any, got: Any) -> list[tuple[str, Any, Any]]:
    """The parts of two values of one class in pairs; none if they differ as a whole."""
    if type(sent) is not type(got):
        return []
    if isinstance(got, list | tuple) and len(sent) == len(got):
        return [(f"{name}[{at}]", *pair) for at, pair in enumerate(zip(sent, got, strict=True))]
    if isinstance(got, dict) and sent.keys() == got.keys():
        return [(f"{name}[{key!r}]", sent[key], one) for key, one in got.items()]
    if isinstance(got, msgspec.Struct) or dataclasses.is_dataclass(got):
        missing = object()
        return [
            (f"{name}.{n}", getattr(sent, n, missing), getattr(got, n, missing))
            for n in _field_names(got)
        ]
    return []


def _field_names(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(value))


def _same_items(sent: dict[Any, Any], got: dict[Any, Any]) -> bool:
    """Compare dictionaries by items; the types of keys count, too: 1 is not "1" nor 1.0."""
    if len(sent) != len(got):
        return False
    keys = {key: key for key in got}
    return all(
        key in keys and is_same(key, keys[key]) and is_same(one, got[key])
        for key, one in sent.items()
    )


def _same_fields(sent: Any, got: Any) -> bool:
    missing = object()
    return all(
        is_same(getattr(sent, n, missing), getattr(got, n, missing)) for n in _field_names(got)
    )


def _same_instant(sent: dt.datetime, got: dt.datetime) -> bool:
    """Compare instants; the zone may arrive as its offset, or as UTC.

    In UTC, because a time in an hour that its zone has twice equals no other zone's.
    """
    if sent.tzinfo is None or got.tzinfo is None:
        return sent == got
    try:
        return sent.astimezone(dt.UTC) == got.astimezone(dt.UTC)
    except OverflowError:  # at the ends of the calendar
        return sent == got


def _shown(value: Any) -> str:
    """A value for an error: short, with its type."""
    try:
        text = repr(value)
    except Exception as err:
        text = f"<no repr: {type(err).__name__}>"
    text = ascii(text)[1:-1] if not text.isprintable() else text
    if len(text) > SHOWN_CHARS:
        text = text[: SHOWN_CHARS - 3] + "..."
    return f"{text} ({type(value).__name__})"


def _advice(value: Any, hint: Any, codec: Codec) -> str:
    """Advice about a value that would arrive as another one."""
    if codec == "json" and isinstance(value, float):
        return NO_NUMBER
    if hint is UNTYPED:
        return (
            "give the argument a type that the worker can make of JSON or msgpack, "
            "or pass plain data"
        )
    return "pass plain data, or a value of exactly the declared type"
