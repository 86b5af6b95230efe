"""Models of pydantic as arguments and results of tasks."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest

from lab import RealServer
from tuque.worker import App
from tuque.worker.app.arguments import BadArguments
from tuque.worker.app.codec import (
    CODECS,
    Codec,
    decode,
    pack,
    pack_result,
    unpack,
)
from tuque.worker.app.task import Task

pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed: make setup-dev")

app = App("tuque://127.0.0.1:1")


class Line(pydantic.BaseModel, extra="forbid"):
    price: Decimal
    at: dt.datetime
    note: str | None = pydantic.Field(default=None, alias="remark")

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as its manual says
    @property
    def cents(self) -> int:
        return int(self.price * 100)


class Order(pydantic.BaseModel, extra="forbid"):
    number: int
    lines: list[Line] = []


class Refund(pydantic.BaseModel):
    kind: Literal["refund"] = "refund"
    order: Order


@dataclass
class Pair:
    one: Order
    other: Refund | None


LINE = Line(price=Decimal("1.50"), at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), remark="x")
ORDER = Order(number=1, lines=[LINE])
REFUND = Refund(order=ORDER)


@app.task
def one(order: Order) -> Order:
    return order


@app.task
def some(orders: list[Order], by_name: dict[str, Line | None]) -> list[Order]:
    return orders


@app.task
def union(what: Order | Refund | int, *more: list[Order | str]) -> Order | Refund | None:
    return None


@app.task
def pair(pair: Pair) -> Pair:
    return pair


Name = Annotated[str, pydantic.StringConstraints(min_length=2)]


class Blob(pydantic.BaseModel):
    data: bytes = b""
    any_data: pydantic.Base64Bytes = b""
    number: float | None = 0.0


class Tree(pydantic.BaseModel):
    name: str
    kids: list[Tree] = []


class Early(pydantic.BaseModel):
    late: Late


Count = Annotated[int, pydantic.Field(gt=0, le=10)]


@app.task
def blob(blob: Blob) -> Blob:
    return blob


class Strict(pydantic.BaseModel):
    number: float


@app.task
def one_float(value: Strict) -> None:
    return None


@app.task
def forward(tree: Tree, early: Early | None = None) -> Tree:
    return tree


@app.task
def bounded(count: Count, counts: list[Count], name: Name = "ann") -> None:
    return None


class Late(pydantic.BaseModel):
    number: int


Early.model_rebuild()


class Unknown(pydantic.BaseModel):
    other: Missing  # type: ignore[name-defined]  # noqa: F821  # nobody defines it


@app.task
def unknown(unknown: Unknown) -> None:
    return None


def arrived(task: Task[..., Any], codec: Codec, *args: Any) -> tuple[Any, ...]:
    """The arguments as the worker passes them on."""
    body = task.options(codec=codec).call(*args)
    return task.bind(decode(task.body(body.options, body.args, body.kwargs)))[0]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("task", "args"),
    [
        (one, (ORDER,)),
        (some, ([ORDER, ORDER], {"a": LINE, "b": None})),
        (union, (ORDER,)),
        (union, (REFUND, [ORDER, "text"], [])),
        (union, (5,)),
        (pair, (Pair(ORDER, REFUND),)),
        (pair, (Pair(ORDER, None),)),
    ],
)
def test_models_arrive_as_models(codec: Codec, task: Task[..., Any], args: Any) -> None:
    """U1.4 Models of pydantic are written by `model_dump` and read by `model_validate`, in
    arguments, results and progress, also within lists, dictionaries, dataclasses and unions.
    """
    assert arrived(task, codec, *args) == args


def test_what_would_not_arrive_is_refused() -> None:
    class Special(Order):
        pass

    with pytest.raises(TypeError, match="argument order: .*would arrive as"):
        one.call(Special(number=1))
    with pytest.raises(TypeError, match="argument order: .* would not be taken"):
        one.call({"number": "many"})  # type: ignore[arg-type]  # is refused
    with pytest.raises(BadArguments, match="number"):
        one.bind(decode(b'{"task":"t","args":[{"number":"many"}]}'))
    with pytest.raises(BadArguments):
        union.bind(decode(b'{"task":"t","args":[{"number":"many"}]}'))


def test_names_of_models_may_be_defined_later() -> None:
    """U1.4 Models of pydantic are written by `model_dump` and read by `model_validate`"""
    args = (Tree(name="a", kids=[Tree(name="b")]), Early(late=Late(number=1)))
    for codec in CODECS:
        assert arrived(forward, codec, *args) == args
    with pytest.raises(TypeError, match="argument unknown: .* is not fully defined"):
        unknown.call(Unknown.model_construct(other=1))
    with pytest.raises(BadArguments, match="is not fully defined"):
        unknown.bind(decode(b'{"task":"t","args":[{"other":1}]}'))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_in_models(codec: Codec) -> None:
    """U1.1 An argument that would not arrive as it was given is a TypeError that names it"""
    fine = Blob(data="größe".encode())
    assert arrived(blob, codec, fine) == (fine,)
    fine = Blob.model_construct(data=b"", any_data=b"\xff\x00", number=None)
    assert arrived(blob, codec, fine) == (fine,)
    with pytest.raises(TypeError, match="argument blob: .* declare these bytes as pydantic.Base64"):
        blob.options(codec=codec).call(Blob(data=b"\xff"))
    with pytest.raises(TypeError, match="pydantic.Base64Bytes"):
        pack(Blob(data=b"\xff"), codec)


def test_numbers_in_models_that_json_lacks() -> None:
    for number in (math.nan, math.inf, -math.inf):
        (got,) = arrived(blob, "msgpack", Blob(number=number))
        assert str(got.number) == str(number)
        assert str(unpack(pack_result(Blob(number=number), "msgpack"))["number"]) == str(number)
        with pytest.raises(TypeError, match="argument blob"):
            blob.options(codec="json").call(Blob(number=number))
        with pytest.raises(ValueError, match="JSON has no"):
            pack_result(Blob(number=number), "json")
    with pytest.raises(TypeError, match="has nan: JSON has no such number"):
        one_float.call(Strict(number=math.nan))


@pytest.mark.parametrize("codec", CODECS)
def test_bounds_of_arguments_hold(codec: Codec) -> None:
    """
    U1.7 Bounds that pydantic knows, such as `Annotated[int, Field(gt=0)]`, hold for arguments at
    `enqueue` and in the worker, where the program has imported pydantic.
    """
    assert arrived(bounded, codec, 10, [1, 2], "bo") == (10, [1, 2], "bo")
    for args, name in (((0, []), "count"), ((1, [1, 11]), "counts"), ((1, [], "x"), "name")):
        with pytest.raises(TypeError, match=f"argument {name}: .* would not be taken"):
            bounded.options(codec=codec).call(*args)
    with pytest.raises(BadArguments, match="greater than 0"):
        bounded.bind(decode(b'{"task":"t","args":[0, []]}'))
    with pytest.raises(BadArguments, match="Expected `int`, got `str`"):
        bounded.bind(decode(b'{"task":"t","args":["5", []]}'))


def test_results_are_models_again(node: RealServer) -> None:
    real = App(node.url)
    for returns, value in ((Order, ORDER), (Order | Refund, REFUND), (list[Order], [ORDER])):
        for codec in CODECS:
            id = real.client.addjob("q", b"x", keep=60)
            real.client.done(id, "-", result=pack(value, codec))
            assert real.handle(id, returns).result(10) == value
    assert one.returns is Order
    assert unpack(pack(ORDER, "json"))["lines"][0]["price"] == "1.50"
    real.close()
