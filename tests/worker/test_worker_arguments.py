"""Arguments: what is enqueued arrives equal and in its declared type, or is refused by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import subprocess
import sys
import uuid
from collections import OrderedDict, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tuque
from tuque.worker import App
from tuque.worker.app.codec import CODECS, Codec, decode
from tuque.worker.pools.execute import Attempt, Call, instant, of_pipe, to_pipe
from world import World

if TYPE_CHECKING:
    from nowhere import Ghost


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Point(msgspec.Struct):
    x: float
    tags: tuple[str, ...] = ()


@dataclasses.dataclass
class Order:
    number: int
    due: dt.date | None
    point: Point


@dataclasses.dataclass
class BigOrder(Order):
    extra: int = 0


class Pair(NamedTuple):
    left: int
    right: str


class Text(str):
    """A class that no codec knows."""


HINTS: list[Any] = [
    int,
    float,
    str,
    bytes,
    bool,
    Decimal,
    uuid.UUID,
    Colour,
    Level,
    Word,
    Point,
    Order,
    Pair,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    tuple[int, str],
    tuple[bytes, ...],
    set[int],
    frozenset[str],
    set[tuple[int, int]],
    dict[int, float],
    dict[str, bytes],
    dict[Colour, Order],
    dict[float, int],
    dict[bytes, int],
    list[dt.date | None],
    int | str | None,
    float | None,
    list[Order],
    Decimal | str,
    list[Any],
    dict[str, Any],
    Any,
    object,
]
ZONES = st.sampled_from(
    [None, dt.UTC, ZoneInfo("Europe/Berlin"), dt.timezone(dt.timedelta(hours=-3, seconds=7))]
)
ODD: list[Any] = [
    *Colour,
    *Level,
    *Word,
    Pair(1, "a"),
    BigOrder(1, None, Point(0.5)),
    Text("t"),
    (1, 2),
    {1: 2},
    {"1": 2},
    {True: 1},
    {1.0: 2},
    {(1, 2)},
    [math.nan],
    {None: 1},
    OrderedDict(a=1),
    defaultdict(int, a=1),
    {2**70},
    frozenset([b"x"]),
    [[[()]]],
]
wild = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=9) | st.text(),
    st.text(st.characters(codec=None), max_size=4),  # surrogates among them
    st.datetimes(timezones=ZONES) | st.dates() | st.times() | st.timedeltas() | st.decimals(),
    st.sampled_from(ODD),
)
LOOSE: dict[Any, st.SearchStrategy[Any]] = {
    Any: wild,
    object: wild,
    list[Any]: st.lists(wild, max_size=3),
    dict[str, Any]: st.dictionaries(st.text(max_size=3), wild, max_size=3),
}


def cases(hint: Any) -> st.SearchStrategy[tuple[Any, Any]]:
    """The hint with values of it, and with others."""
    mostly = LOOSE[hint] if hint in LOOSE else st.from_type(hint)
    return st.tuples(st.just(hint), mostly | wild)


values = st.sampled_from(HINTS).flatmap(cases)


def task_of(hint: Any) -> Any:
    def function(what: Any) -> None:
        pass

    function.__annotations__ = {"what": hint}
    return App("tuque://127.0.0.1:1").task(name="t")(function)


def is_equal(sent: Any, got: Any) -> bool:
    """As an observer sees it, who knows nothing of how values travel."""
    if isinstance(sent, list | tuple):
        return len(sent) == len(got) and all(map(is_equal, sent, got))
    if isinstance(sent, dict):
        return len(sent) == len(got) and all(
            any(is_equal(k, k2) and is_equal(v, v2) for k2, v2 in got.items())
            for k, v in sent.items()
        )
    if isinstance(sent, set | frozenset):
        return len(sent) == len(got) and all(any(is_equal(a, b) for b in got) for a in sent)
    if isinstance(sent, Point | Order):
        return type(sent) is type(got) and is_equal(
            list(msgspec.structs.astuple(sent)) if isinstance(sent, Point) else vars(sent),
            list(msgspec.structs.astuple(got)) if isinstance(got, Point) else vars(got),
        )
    if isinstance(sent, dt.datetime) and sent.tzinfo is not None:
        return bool(sent.astimezone(dt.UTC) == got.astimezone(dt.UTC))
    if isinstance(sent, float | Decimal) and sent != sent:
        return bool(got != got)
    return bool(sent == got)


@settings(max_examples=150, deadline=None)
@given(values)
@pytest.mark.parametrize("codec", CODECS)
def test_a_value_arrives_equal_or_is_refused_by_the_name_of_its_argument(
    codec: Codec, case: tuple[Any, Any]
) -> None:
    arrives_or_is_refused(codec, *case)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(values)
@pytest.mark.parametrize("codec", CODECS)
def test_many_values_arrive_equal_or_are_refused(codec: Codec, case: tuple[Any, Any]) -> None:
    arrives_or_is_refused(codec, *case)


def arrives_or_is_refused(codec: Codec, hint: Any, value: Any) -> None:
    """Through the codec, and on to a child process."""
    task = task_of(hint)
    prepared = task.options(codec=codec)
    try:
        body = task.body(prepared._options, (value,), {})
    except TypeError as err:
        assert "argument what" in str(err)
        return
    call = Call(decode(body), Attempt("D-id", "q", "t", 1, 5, 0, 0, instant(0.0)))
    for envelope in (call.envelope, of_pipe(to_pipe(call)).envelope):
        (got,) = task.bind(envelope)[0]
        assert is_equal(value, got), (hint, value, got)
        assert isinstance(value, type(got)) or (type(value), type(got)) == (int, float)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (bytes, b"\x00\xff"),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (Decimal, Decimal("1.50")),
        (Decimal, Decimal("NaN")),
        (Colour, Colour.RED),
        (Order, Order(1, dt.date(2026, 1, 2), Point(0.5, ("a",)))),
        (dict[int, str], {1: "a"}),
        (list[dict[int, Point]] | None, [{1: Point(1.5)}]),
        (dt.datetime, dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))),
        (dict[str, int], OrderedDict(a=1)),
        (float, 7),
    ],
)
def test_what_the_declared_type_can_hold_arrives(codec: Codec, hint: Any, value: Any) -> None:
    task = task_of(hint)
    (got,) = task.bind(decode(task.body(task.options(codec=codec)._options, (value,), {})))[0]
    assert is_equal(value, got)


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (float, math.nan, 'would arrive as None .* codec="msgpack" has'),
        (float, -math.inf, 'would arrive as None .* codec="msgpack" has'),
        (list[float], [1.0, math.nan], "has nan: JSON has no such number"),
        (Any, {1: "a"}, r"would arrive as {'1': 'a'} \(dict\): give the argument a type"),
        (Any, dt.datetime(2026, 1, 1), r"would arrive as '2026-01-01T00:00:00' \(str\)"),
        (Any, (1, 2), r"would arrive as \[1, 2\] \(list\)"),
        (Any, b"x", r"would arrive as 'eA==' \(str\)"),
        (str, "\ud800", "cannot be written as json: .*surrogates"),
        (str, Text("x"), "cannot be written as json"),
        (int, "1", "would not be taken by the worker: argument what: Expected `int`, got `str`"),
        (float, 2**53 + 1, "would arrive as 9007199254740992.0"),
        (Order, BigOrder(1, None, Point(0)), "would arrive as Order"),
        (Decimal | str, Decimal(1), r"would arrive as '1' \(str\)"),
        (Path, Path("x"), "cannot be written as json"),
    ],
)
def test_what_would_arrive_as_another_value_is_refused(hint: Any, value: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=f"^task t: argument what: .*{reason}"):
        task_of(hint).enqueue(value)


class BigPoint(Point):
    more: int = 0


class Row(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (list[Order], [Order(1, None, BigPoint(0))], r"what\[0\]\.point: BigPoint.* as Point\("),
        (
            dict[str, Any],
            {"a": [1, (2,)]},
            r"what\['a'\]\[1\]: \(2,\) \(tuple\) would arrive as \[2\]",
        ),
        (Row, {"a": 1, "b": 2}, r"what: {'a': 1, 'b': 2} \(dict\) would"),
    ],
)
def test_the_error_names_the_part_that_would_be_another(hint: Any, value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^task t: argument {words}"):
        task_of(hint).enqueue(value)


def test_what_is_nested_too_deep_is_refused() -> None:
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit() // 2):
        value = [value]
    with pytest.raises(TypeError, match="^task t: argument what: .* is nested too deep$"):
        task_of(Any).enqueue(value)


def test_each_of_several_arguments_is_checked_and_converted() -> None:
    app = App("tuque://127.0.0.1:1")

    @app.task(name="t")
    def many(*points: Point, **dates: dt.date) -> None:
        pass

    body = many.body(many.defaults, (Point(1), Point(2)), {"a": dt.date(2026, 1, 2)})
    assert many.bind(decode(body)) == ((Point(1), Point(2)), {"a": dt.date(2026, 1, 2)})
    with pytest.raises(TypeError, match=r"argument points\[1\]: 7"):
        many.enqueue(Point(1), 7)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="argument b: 7"):
        many.enqueue(b=7)  # type: ignore[arg-type]  # the mistake under test


def test_a_type_that_cannot_be_resolved_is_an_error_where_the_task_is_defined() -> None:
    app = App("tuque://127.0.0.1:1")

    def haunted(when: dt.datetime, ghost: Ghost) -> None:
        pass

    def inner(ghosts: list[Ghost | None]) -> None:
        pass

    class Haunted(msgspec.Struct):
        ghost: Ghost

    def in_a_field(house: Haunted) -> None:
        pass

    for function, name in ((haunted, "ghost"), (inner, "ghosts"), (in_a_field, "house")):
        with pytest.raises(
            TypeError,
            match=f"argument {name} cannot be resolved: name 'Ghost' is not defined.*"
            "import it outside of `if TYPE_CHECKING:`",
        ):
            app.task(function)
    assert app.tasks == {}


def test_a_result_of_any_type_is_kept(world: World) -> None:
    """U1.9 The result of a task that returns `Any` is kept as that of any other type (`keep_s`),
    as plain data. That of a task without an annotation is not.
    """
    app = App("tuque://127.0.0.1:1")

    def anything() -> Any:
        return {"at": [1, 2.5, None]}

    def nothing_said():  # type: ignore[no-untyped-def]  # what is tested
        return 1

    kept, lost = app.task(anything), app.task(nothing_said)
    assert (kept.keep_s(kept.defaults), lost.keep_s(lost.defaults)) == (600, 0)
    world.at_work(app)
    handle = kept.enqueue()
    world.until(lambda: handle.status().state == "done")
    assert handle.result(1) == {"at": [1, 2.5, None]}


def test_an_unknown_result_type_is_refused() -> None:
    """U1.5 An annotation of an argument or of the result that cannot be resolved is a TypeError
    where the task is defined.
    """
    app = App("tuque://127.0.0.1:1")

    def haunted() -> Ghost:
        raise AssertionError

    async def later(when: dt.datetime) -> dict[str, Ghost]:
        raise AssertionError

    class Haunted(msgspec.Struct):
        ghost: Ghost

    def in_a_field() -> Haunted:
        raise AssertionError

    for function in (haunted, later, in_a_field):
        with pytest.raises(
            TypeError,
            match=f"{function.__name__}: the type of its result cannot be resolved: "
            "name 'Ghost' is not defined.*import it outside of `if TYPE_CHECKING:`",
        ):
            app.task(function)
    assert app.tasks == {}


def test_a_result_type_that_nothing_can_make_harms_no_argument() -> None:
    app = App("tuque://127.0.0.1:1")

    class Local(msgspec.Struct):
        when: dt.datetime

    @app.task(name="t")
    def fine(local: Local, when: dt.datetime) -> Decimal | str:
        raise AssertionError

    now = dt.datetime(2026, 1, 2)
    assert fine.bind(decode(fine.body(fine.defaults, (Local(now), now), {})))[0] == (
        Local(now),
        now,
    )


def test_a_module_with_such_a_task_says_so_when_the_worker_loads_it(tmp_path: Path) -> None:
    (tmp_path / "ghosts.py").write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from tuque.worker import App\n"
        "if TYPE_CHECKING:\n"
        "    from datetime import datetime\n"
        "app = App()\n"
        "@app.task\n"
        "def at(when: datetime) -> None: ...\n"
    )
    made = subprocess.run(
        [sys.executable, "-m", "tuque", "worker", "ghosts:app", "--app-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(tuque.__file__).parents[1])},
        check=False,
    )
    assert made.returncode == 1
    assert "task ghosts.at: the type of argument when cannot be resolved" in made.stderr
