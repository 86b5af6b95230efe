"""A driver of one's own (SPEC T3.5): the one that the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tuque.core.deliver import on_getjob
from tuque.core.node import Node
from tuque.core.procedures import check
from tuque.core.timers import tick
from tuque.tubes import admin, ops
from tuque.tubes.driver import Driver
from tuque.tubes.errors import TubeError
from tuque.tubes.hooks import tubes_of
from tuque.tubes.options import PutSpec, TubeOptions

PAGE = Path(__file__).parents[2] / "docs" / "tube-drivers.md"
NOW_MS = 1_700_000_000_000


def shown() -> type[Driver]:
    """The class that the page shows."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"__name__": "shown"}
    exec(code[1], names)
    found = names["Lifo"]
    assert isinstance(found, type) and issubclass(found, Driver)
    return found


def test_the_newest_first() -> None:
    n = Node(b"a" * 40, b"seed", NOW_MS)
    t = tubes_of(n)
    admin.register_driver(t, b"lifo", shown())
    tube = admin.create_tube(n, t, b"t", b"lifo", TubeOptions(), b"")
    spec = PutSpec()
    spec.ttr_ms = 1000
    for i in range(5):
        ops.put(n, t, tube, b"%d" % i, 0, spec, 1, 1)
        check(n)
    taken = [ops.take(n, t, tube, 1) for _ in range(3)]
    assert [task and task.number for task in taken] == [4, 3, 2]
    ops.release(n, t, tube, 1, 3, 0)
    ops.bury(n, t, tube, 1)
    check(n)
    assert [job.body for job in on_getjob(n, 2, [b"t"], 1)] == [b"3"]
    n.now_ms += 1020
    tick(n)
    check(n)
    assert [job.body for job in on_getjob(n, 2, [b"t"], 9)] == [b"4", b"3", b"2", b"0"]
    assert ops.kick(n, t, tube, 1) == 1
    ops.delete(n, t, tube, 1)
    check(n)


def test_a_type_has_one_driver() -> None:
    n = Node(b"a" * 40, b"seed", NOW_MS)
    with pytest.raises(TubeError) as e:
        admin.register_driver(tubes_of(n), b"fifo", shown())
    assert e.value.text == b'overriding registered driver "fifo"'
