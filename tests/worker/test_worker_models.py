"""Models of pydantic as arguments and results of tasks."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pytest
from lab import RealServer

from tuque.worker import App
from tuque.worker.tasks.arguments import BadArguments
from tuque.worker.tasks.codec import CODECS, Codec, decode, pack, unpack
from tuque.worker.tasks.task import Task

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


def arrived(task: Task[..., Any], codec: Codec, *args: Any) -> tuple[Any, ...]:
    """The arguments as the worker passes them on."""
    body = task.options(codec=codec).call(*args)
    return task.bind(decode(task.body(body.options, body.args, body.kwargs))).args


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
    """
    U1.4 Models of pydantic are written as `model_dump` says and come back by `model_validate`, in
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
