"""The style that a program can see, and proof that the program sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import limits  # noqa: E402  tools/ is put on the path above
import tidy  # noqa: E402  tools/ is put on the path above


def test_all_files_of_the_project_are_looked_at() -> None:
    """`make lint` runs it over them; here they would be looked at a second time."""
    files = tidy.tracked_files()
    assert Path(__file__) in files and tidy.SRC / "main.py" in files
    assert len(files) > 1000, "the list of files is too short to mean anything"
    assert not tidy.check_docs() + tidy.check_rooms()


CASES = [
    ("src/tuque/core/a.py", "import time\n", "time in deciding code"),
    ("src/tuque/core/a.py", "def f() -> None:\n    from os import path\n", "os in deciding code"),
    ("src/tuque/wire/a.py", "x = hash(b'a')\n", "hash() differs"),
    ("src/tuque/core/a.py", "for x in {1, 2}:\n    pass\n", "iteration over a set"),
    ("src/tuque/core/a.py", "a: set[int] = set()\nb = [x for x in a]\n", "iteration over a set"),
    ("src/tuque/core/jobs/a.py", "X = b'NOJOB Job not known'\n", "an error's text"),
    ("src/tuque/tubes/a.py", "X = b\"-ERR '%s' is a tube\"\n", "an error's text"),
    ("src/tuque/client/a.py", "import pickle\n", "pickle runs what it reads"),
    ("src/tuque/client/a.py", "eval('1')\n", "eval()"),
    ("src/tuque/client/a.py", "try:\n    pass\nexcept:\n    raise\n", "bare except"),
    (
        "src/tuque/client/a.py",
        "try:\n    pass\nexcept Exception:\n    pass\n",
        "swallows every error",
    ),
    ("src/tuque/client/a.py", "import os  # noqa: F401\n", "no rule or no reason"),
    ("src/tuque/client/a.py", "import os  # noqa\n\nX = os.sep\n", "no rule or no reason"),
    ("src/tuque/client/a.py", "x = 1  # type: ignore\n", "no rule or no reason"),
    ("src/tuque/client/a.py", "def handle_job() -> None: ...\n", "name it by its cause"),
    ("src/tuque/client/a.py", "class JobManager: ...\n", "name it by its cause"),
    ("src/tuque/client/a.py", "def f(): ...\n", "no return type"),
    (
        "src/tuque/server/a.py",
        "def f() -> None:\n    try:\n        g()\n    except OSError as e:\n        h(e)\n"
        "    except Exception as e:\n        h(e)\n",
        "e: caught as OSError above",
    ),
    ("tests/a.py", "x = 1\n" * 801, "801 lines"),
    ("sim/a.py", "x = 1\n" * 801, "801 lines"),
    ("tests/a.py", "f(*(a, b), c)\n", "a starred tuple"),
    ("tests/a.py", "x = {1, *[a, b]}\n", "a starred tuple"),
    ("src/tuque/client/a.py", "X = (*(1, 2), 3)\n", "a starred tuple"),
    ("tests/a.py", "def f():\n" + "    x = 1\n" * 50, "51 lines"),
    ("tests/a.py", "x = '" + "y" * 100 + "'\n", "columns"),
]


@pytest.mark.parametrize(("name", "text", "fault"), CASES)
def test_a_fault_is_seen(name: str, text: str, fault: str) -> None:
    faults = tidy.PythonFile(ROOT / name, text).check()
    assert any(fault in line for line in faults), faults


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/tuque/server/a.py", "# TODO later\n"),
        ("src/tuque/server/a.py", "raise NotImplementedError\n"),
        ("README.md", "see /home/someone/tuque\n"),
        ("constraints.txt", "--index-url https://example.invalid\n"),
        ("README.md", "space at the end \n"),
    ],
)
def test_a_bad_text_is_seen(name: str, text: str) -> None:
    assert tidy.check_text(ROOT / name, text)


def test_an_excuse_with_rule_and_reason_passes() -> None:
    text = "import os  # noqa: F401  others import it from here\n"
    assert tidy.PythonFile(ROOT / "tests/a.py", text).check() == []


def test_a_package_without_words_is_seen(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "one.py").touch()
    assert tidy.check_rooms(tmp_path) == []
    (tmp_path / "__init__.py").unlink()
    assert "no __init__.py" in tidy.check_rooms(tmp_path)[0]


def module(name: str, text: str = "") -> limits.Facts:
    """The facts of a module of that text under src/tuque; without one it is a subject."""
    path = tidy.SRC / f"{name}.py"
    file = tidy.PythonFile(path, text or "x = 1\n" * 200)
    return limits.facts_of(tidy.rel(path), file.text, file.tree, file.nodes)


def found(*modules: limits.Facts, **pages: str) -> dict[str, dict[str, float]]:
    """What does not keep the law, without what is short."""
    now = limits.measure(modules, {f"{name}.md": text for name, text in pages.items()})
    del now["short"]
    return {section: keys for section, keys in now.items() if keys}


@pytest.mark.parametrize(
    ("lines", "section"), [(149, "short"), (150, None), (800, None), (801, "long")]
)
def test_a_module_is_a_subject(lines: int, section: str | None) -> None:
    now = limits.measure([module("core/queues/a", "x = 1\n" * lines)], {})
    faults = limits.compare(now, {})
    assert len(faults) == (0 if section is None else 1)
    assert section is None or now[section] == {"src/tuque/core/queues/a.py": lines}
    assert limits.compare(limits.measure([module("core/__init__", "x = 1\n")], {}), {}) == []


def code(count: int) -> str:
    """A module with so many functions, and constants, which do not count."""
    return "".join(f"def f{i}() -> None: ...\nX{i} = {i}\n" for i in range(count))


def names(count: int) -> str:
    return ", ".join([f"f{i}" for i in range(count)] + [f"X{i}" for i in range(count)])


def test_the_face_of_a_package_has_a_limit() -> None:
    a = module("core/queues/a", code(41))
    inside = module("core/copies/b", f"from tuque.core.queues.a import {names(41)}\n")
    outside = module("server/loop/c", f"from tuque.core.queues.a import {names(40)}\n")
    assert "faces" not in found(a, inside, outside)
    # one more: through the module, in a layer of its own, and again through another module
    through = module("wire/bus/d", "from tuque.core.queues import a as q\nq.f40()\nq.X40\nq.f0()\n")
    assert found(a, inside, outside, through)["faces"] == {"core/queues": 41}


def test_a_face_counts_what_a_package_hands_on_and_a_flat_layer_as_one() -> None:
    folders = [module(f"{one}/__init__", "x = 1\n") for one in ("store", "core")]
    folders.append(module("core/node/node"))
    disk, frames = module("store/disk", code(21)), module("store/frames", code(20))
    taken = "from tuque.store.{} import {}\n"
    user = module(
        "server/loop/a", taken.format("disk", names(21)) + taken.format("frames", names(20))
    )
    assert found(*folders, disk, frames, user)["faces"] == {"store": 41}
    front = module("core/queues/__init__", f"from tuque.core.queues.a import {names(41)}\n")
    user = module("server/loop/a", f"from tuque.core.queues import {names(41)}\n")
    assert found(module("core/queues/a", code(41)), front, user)["faces"] == {"core/queues": 41}
    table = module("core/msgs", code(41))
    user = module("server/loop/a", f"from tuque.core.msgs import {names(41)}\n")
    assert "faces" not in found(*folders, table, user)


@pytest.mark.parametrize(
    ("name", "text", "heading", "old", "times"),
    [
        ("worker/process/box", "", "module", "worker/process/box", 1),
        ("worker/run/a", "class Herald: ...\n", "class in core tubes", "Herald", 1),
        ("spark/a", "class Herald: ...\n", None, "", 0),
        ("spark/a", "tell(x)\ndef tell_all() -> None: ...\n_TELL = 1\n", "name", "tell", 3),
        ("spark/a", "teller = retell = stellar = 1\n", None, "", 0),
        ("spark/a", "n.lives, m.lives, lives\n", "name", "n.lives", 1),
        ("spark/a", "import x\nx.NOBODY\nnobody = 1\n", "name", "NOBODY", 1),
        ("worker/run/a", "def f(away: int) -> None: ...\n", "name in worker", "away", 1),
        ("spark/a", "def f(away: int) -> None: ...\n", None, "", 0),
        ("spark/a", "facts('job_untold')\n", "log", "job_untold", 1),
        (
            "spark/a",
            '"""It stands\nup for it, and `stands up for`."""\n',
            "prose",
            "stands up for",
            1,
        ),
    ],
)
def test_an_old_name_is_counted(
    name: str, text: str, heading: str | None, old: str, times: int
) -> None:
    now = found(module(name, text))
    if heading is None:
        assert now == {}
        return
    section = next(one for one in now if one == heading or one.startswith(f"{heading} "))
    assert now[section][old] == times
    fault = f"{old}: {times} times; an old name"
    assert any(fault in line for line in limits.compare(now, {})), "it came back and nobody says so"


def test_the_prose_of_a_page_is_counted_without_its_code() -> None:
    page = "Jobs are set aside. `set aside`\n\n```\nset aside\n```\n[x](set aside)\n"
    assert found(docs=page) == {"prose": {"set aside": 1}}
    assert found(docs="The home is here. TUBE HOME")["prose"] == {"home (of a tube)": 1}


def test_markers_are_counted_per_thousand_words_of_a_page() -> None:
    words = "word " * 998
    assert found(one=f"{words} so many") == {}
    assert found(one=f"{words} so many. So\nmany") == {"markers": {"one.md": 2.0}}
    assert found(**{"spec/work": f"{words} so many, so many. Told."})["markers"] == {
        "spec/work.md": 3.0
    }


def test_a_figure_may_only_shrink() -> None:
    now = {"faces": {"a": 45.0, "b": 41.0}, "short": {"c": 100.0}}
    assert limits.compare(now, now) == []
    worse = {"faces": {"a": 44.0, "b": 41.0}, "short": {"c": 100.0}}
    assert limits.compare(now, worse) == [
        "a: 45 functions and classes for other layers, at most 40; it may stay at 44"
    ]
    better = {"faces": {"a": 46.0, "b": 41.0, "d": 50.0}, "short": {"c": 120.0, "e": 90.0}}
    assert limits.compare(now, better) == [
        "tools/limits.toml: write a = 45 in [faces]",
        "tools/limits.toml: d keeps the law: take it out of [faces]",
        "tools/limits.toml: e keeps the law: take it out of [short]",
    ]
    lower = limits.lowered(now, better)
    assert limits.compare(now, lower) == []
    assert limits.lowered(now, worse)["faces"]["a"] == 44, "the list may not grow by itself"


def test_the_list_is_read_as_it_is_written() -> None:
    """`--lower` writes it again; what a person wrote there stays in its order."""
    text = limits.LIMITS.read_text("utf-8")
    assert limits.as_toml(limits.listed()) == text
    olds = limits.old_names(limits.NAMES.read_text("utf-8"))
    assert {one.section for one in olds} == {"module", "class", "name", "log", "prose", "marker"}
    assert len(olds) > 300


def test_the_figures_of_the_house_are_printed() -> None:
    a = module("core/queues/a", code(3))
    b = module("server/loop/b", "from tuque.core.queues.a import f0, f1, X1\n")
    lines = limits.figures([module("core/__init__", "x = 1\n"), a, b])
    assert "modules in src, without __init__: 2" in lines
    assert "functions and classes from core to other layers: 2" in lines
    assert "widest faces: core/queues 2" in lines
