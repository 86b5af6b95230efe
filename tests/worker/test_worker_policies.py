"""Policies of tasks by key: the words that they become, and docs/policies.md (SPEC U1.8, T40)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lab import RealServer
from tuque import Client
from tuque.client.commands import calls
from tuque.errors import Duplicate, NoTube
from tuque.worker import App, Fair, Limit, Rate, TaskOptions, Unique
from tuque.worker.app.enqueue import Adding, Call
from tuque.worker.app.policies import key_of

DOCS = Path(__file__).resolve().parents[2] / "docs"


def words(options: TaskOptions, *args: Any) -> Any:
    """The options of addjob."""
    app = App("tuque://127.0.0.1:1")

    @app.task(name="invoice", queue="q", **options)
    def invoice(tenant: str, order: int = 1) -> None: ...

    return Adding(Call(invoice, invoice.defaults, args or ("n",), {})).words()[2]


def keys(options: TaskOptions, *args: Any) -> dict[str, Any]:
    """What the broker is asked for about keys."""
    asked = words(options, *args)
    return {
        name: asked.get(name) for name in ("unique", "limit", "rate", "group") if asked.get(name)
    }


def test_keys_are_made_of_arguments_and_headers() -> None:
    """U1.8 Keys of Unique, Limit and Rate begin with the name of the task or policy."""
    assert keys({"unique": Unique("order")}, "n", 7) == {"unique": "invoice:[7]"}
    assert keys({"unique": Unique("order")}, "n") == {"unique": "invoice:[1]"}
    assert keys({"unique": Unique(("tenant", "order"))}, "n", 7) == {"unique": 'invoice:["n", 7]'}
    assert words({"unique": Unique("order", on="replace")})["unique_on"] == "replace"
    assert "unique_on" not in words({"unique": Unique("order")})
    assert keys({"limit": Limit(2, "tenant")}, "n") == {"limit": ("invoice:n", 2)}
    assert keys({"limit": Limit(5)}, "n") == {"limit": ("invoice", 5)}
    assert keys({"limit": Limit(2, "tenant", name="api")}, "n") == {"limit": ("api:n", 2)}
    assert keys({"rate": Rate("10/s", "tenant")}, "n") == {"rate": ("invoice:n", "10/s")}
    assert keys({"rate": Rate("5/h", burst=9)}, "n") == {"rate": ("invoice", "5/h", 9)}
    assert keys({"group": Fair("tenant", weight=3)}, "n") == {"group": ("n", 3)}
    assert keys({"group": Fair("zone"), "headers": {"zone": "eu"}}, "n") == {"group": ("eu", 1)}


def test_a_long_key_is_its_hash() -> None:
    key = key_of("invoice", "a", {"a": "x" * 300})
    assert len(key) < 255
    assert key != key_of("invoice", "a", {"a": "x" * 301})


def test_a_name_that_is_none_is_an_error_where_the_task_is_defined() -> None:
    said = 'task invoice: Limit by "tenent": no such argument or header; there are tenant, order'
    with pytest.raises(TypeError, match=re.escape(said)):
        keys({"limit": Limit(2, "tenent")}, "n")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Unique(()), lambda: Fair(()), lambda: Limit(0), lambda: Limit(True),
        lambda: Rate("10"), lambda: Rate("0/s"),
        lambda: Rate("1/s", burst=0), lambda: Fair("a", weight=1001),
        lambda: Unique("a", until="never"), lambda: Unique("a", on="never"), lambda: Limit(1, 3),
        lambda: Unique("a", until=0), lambda: Unique("a", until=True),
        lambda: Unique("a", until=4e7),
        lambda: keys({"limit": 3}, "n"),
    ],
)  # fmt: skip
def test_wrong_policies(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        wrong()


def test_the_client_has_the_words() -> None:
    """T40 ADDJOB tube ... UNIQUE, LIMIT, RATE, GROUP."""
    call = calls.addjob(
        "t", b"x", unique="u", unique_until="start", unique_on="reject", limit=("l", 2),
        rate=("r", "10/s", 5), group=("g", 3),
    )  # fmt: skip
    words = b" ".join(one if isinstance(one, bytes) else str(one).encode() for one in call.args)
    assert words.endswith(
        b"UNIQUE u UNTIL start ON reject LIMIT l 2 RATE r 10/s 5 GROUP g WEIGHT 3"
    )
    assert calls.addjob("t", b"x", group="g").args[-2:] == ("GROUP", b"g")


def test_a_unique_may_be_for_a_time() -> None:
    """T44.3 With UNTIL a number of seconds a key is taken for that time from the add"""
    assert words({"unique": Unique("tenant", until=1.5)}, "n")["unique_until"] == 1.5
    for until, word in ((1.5, "1.500"), (60, 60), (60.0, 60)):
        assert calls.addjob("t", b"x", unique="u", unique_until=until).args[-1] == word


def test_what_keeps_a_key_is_no_job(node: RealServer, client: Client) -> None:
    """T44.8 SHOW of a task that keeps a key has unique, until-ms, and in `key-of` the id of the
    first task."""
    client.tube("kept").create("tasks")
    id = client.addjob("kept", b"x", unique="u", unique_until=60)
    info = client.show(id)
    assert info is not None and info.is_job and not info.key_of
    client.deljob(id)
    (keeper,) = client.jscan(queue="kept")
    info = client.show(keeper)
    assert info is not None and (info.key_of, info.is_job) == (id, False)
    assert client.addjob("kept", b"x", unique="u") == id


def test_docs_and_errors(node: RealServer, client: Client) -> None:
    """U1.8 A task with `unique`, `limit`, `rate` or `group` has its jobs in a tube of type `tasks`
    (T40), with the options of W1 as in a queue. The first `enqueue` makes that tube"""
    names: dict[str, Any] = {"__name__": "page"}
    page = (DOCS / "policies.md").read_text("utf-8")
    for at, text in enumerate(re.findall(r"```python\n(.*?)```", page, re.S)):
        example = text.replace("tuque://127.0.0.1:7711", node.url)
        exec(compile(example, f"policies.md, example {at + 1}", "exec"), names)
    (job,) = client.getjob("indexing")
    assert b"final" in job.body and b"draft" not in job.body
    with pytest.raises(Duplicate, match=re.escape(job.id)):
        names["index"].enqueue("home", "too late")
    with pytest.raises(TypeError, match=re.escape("its jobs cannot have Unique(on=)")):
        names["app"].schedule("night", names["index"].call("home", "x"), every_s=60)
    info = client.tube("exports").info()
    assert (info.type, info.ttr) == ("tasks", 30.0)
    report = names["report"]
    handles = report.enqueue_many([report.call("east", day) for day in ("mon", "tue", "wed")])
    assert len({handle.id for handle in handles}) == 3
    assert len(client.getjob("reports", count=9, nohang=True)) == 2
    client.tube("reports").truncate()
    client.tube("reports").drop()
    report.enqueue("east", "thu")  # made anew
    client.tube("reports").truncate()
    client.tube("reports").drop()
    assert len(report.enqueue_many([report.call("east", day) for day in ("fri", "sat")])) == 2
    assert len(client.getjob("reports", count=9, nohang=True)) == 2
    with pytest.raises(NoTube):
        client.addjob("plain", b"x", limit=("a", 1))
    first = client.addjob("exports", b"x", unique="a")
    with pytest.raises(Duplicate, match=re.escape(first)):
        client.addjob("exports", b"y", unique="a", unique_on="reject")
    names["app"].close()
