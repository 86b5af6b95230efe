"""tools/run_tests.py: which parts run, what becomes of failures, and the page that it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import run_tests
from run_tests import Part

FLAKY = """
from pathlib import Path

def test_once():
    ran = Path(__file__).with_suffix(".ran")
    is_second = ran.exists()
    ran.touch()
    assert is_second

def test_never():
    assert False
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with one file of tests, in place of this one."""
    (tmp_path / "out").mkdir()
    (tmp_path / "test_it.py").write_text(FLAKY)
    support = str(run_tests.ROOT / "tests" / "support")
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {support!r})\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "OUT", tmp_path / "out")
    monkeypatch.setattr(run_tests, "FLAKES", tmp_path / "out" / "flaky.txt")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p no:cacheprovider --rootdir={tmp_path}")
    yield tmp_path


def part_of(place: Path) -> Part:
    """Its tests, with the plugins of this project."""
    (place / "conftest.py").open("a").write('pytest_plugins = ["budget", "failed"]\n')
    return Part("sources", ["-m", "pytest", "-q", "test_it.py"], on_sources=True)


def test_what_failed_is_run_once_more(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    part = part_of(place)
    part.words += ["--continue-on-collection-errors", "test_gone.py"]
    (place / "test_gone.py").write_text("import no_such_module\n")
    run_tests.run([part], "5")
    assert set(part.failed) == {
        "test_it.py::test_once",
        "test_it.py::test_never",
        "test_gone.py",  # a file that cannot be read
    }
    assert not part.is_broken
    passed, broken = run_tests.run_again([part], "5")
    assert passed == ["test_it.py::test_once"]
    assert set(broken) == {"test_it.py::test_never", "test_gone.py"}
    line = (place / "out" / "flaky.txt").read_text()
    assert line.startswith("test_it.py::test_once (20")
    assert "PYTHONHASHSEED=5; process of its own; " in line
    assert "passed alone" in capfd.readouterr().out


def test_many_failures_are_not_run_again(place: Path) -> None:
    many = {f"test_it.py::test_{number}": {"how": ""} for number in range(5)}
    part = Part("sources", [], on_sources=True, report={"failed": many})
    assert run_tests.run_again([part], "5") == ([], list(many))
    assert list((place / "out").iterdir()) == []


def test_a_program_that_breaks_is_told_from_a_test_that_fails() -> None:
    assert Part("x", [], code=2).is_broken
    assert not Part("x", [], code=run_tests.NOTHING).is_broken
    assert Part("x", [], code=1).is_broken
    assert not Part("x", [], code=1, report={"failed": {"t": {}}}).is_broken
    assert Part("x", [], code=3, report={"failed": {"t": {}}}).is_broken


def test_parts_run_only_where_they_are_needed() -> None:
    names = {
        words: [part.name for part in run_tests.quick_parts(words.split(), 2, "")]
        for words in ("", "tests/sim", "tests/core", "tests/sim/test_sim_flaws.py")
    }
    assert names[""] == names["tests/sim"] == ["compiled", "sources"]
    assert names["tests/core"] == ["compiled"]
    assert names["tests/sim/test_sim_flaws.py"][-1] == "sources"
    compiled, sources = run_tests.quick_parts(["-k", "some"], 2, "")
    assert compiled.words[-2:] == ["-k", "some"]
    assert "some" in sources.words and "tests/sim/test_sim_flaws.py" in sources.words
    (only,) = run_tests.quick_parts(["tests/core"], 2, "they were changed")
    assert only.on_sources


def test_a_file_of_the_sources_alone_needs_no_second_part(place: Path) -> None:
    (place / "test_it.py").write_text("pytestmark = pytest.mark.sources\n" + FLAKY)
    (only,) = run_tests.quick_parts(["test_it.py::test_once"], 2, "")
    assert only.on_sources and only.words[-1] == "test_it.py::test_once"


def test_directories_are_in_memory_if_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "MEMORY", tmp_path)
    monkeypatch.setattr(run_tests, "MEMORY_MIN", 1)
    parts = [Part("compiled", []), Part("sources", [])]
    with run_tests.in_memory(parts):
        (place,) = tmp_path.iterdir()
        for part in parts:
            (word,) = part.words
            assert word == f"--basetemp={place / part.name}"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(run_tests, "MEMORY_MIN", 1 << 62)
    with run_tests.in_memory([full := Part("compiled", [])]):
        assert full.words == []


def test_the_result_is_written_into_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "figures.md"
    page.write_text(f"before\n{run_tests.BEGIN}\nold\n{run_tests.END}\nafter\n")
    monkeypatch.setattr(run_tests, "FIGURES", page)
    report = {"counts": {"passed": 1234}, "failed": {"t::a": {}}, "factor": 1.5, "times": {}}
    part = Part("compiled", [], seconds=61.4, report=report)
    run_tests.write_result([part], ["failed: t::a"], "9")
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "| compiled | 61 | 1,234 passed, 1 failed |" in text
    assert "- failed: t::a" in text
    run_tests.write_result([part], [], "9")
    assert "passed. The reference loop took 1.50 times" in page.read_text()
    assert page.read_text().count(run_tests.BEGIN) == 1


def test_the_page_has_its_block() -> None:
    text = run_tests.FIGURES.read_text("utf-8")
    assert text.count(run_tests.BEGIN) == text.count(run_tests.END) == 1


def test_a_part_of_the_deep_run_is_named_and_writes_no_result(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    with pytest.raises(SystemExit, match="no such part: fuz"):
        run_tests.deep(["fuz"], 2, "5")
    good = Part("good", ["-c", "pass"], is_pytest=False)
    bad = Part("bad", ["-c", "raise SystemExit(3)"], is_pytest=False)
    monkeypatch.setattr(run_tests, "deep_parts", lambda jobs: [good, bad])
    monkeypatch.setattr(run_tests, "FIGURES", place / "figures.md")
    assert run_tests.deep(["good"], 2, "5") == 0
    assert run_tests.deep(["good", "bad"], 2, "5") == 1
    assert not (place / "figures.md").exists()


def test_budgets_judge_runs_on_the_compiled_modules(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"times": {"tests/golden/test_a.py::test_it": 50.0}, "factor": 1.0}
    assert run_tests.over_budget([Part("sources", [], on_sources=True, report=report)]) == []
    assert capsys.readouterr().out == ""
    (line,) = run_tests.over_budget([Part("compiled", [], report=report)])
    assert line == "golden: 50 slot-seconds of 5"
    assert "tests/golden/test_a.py::test_it" in capsys.readouterr().out


def test_reports_of_parts_are_added_up() -> None:
    one = Part("x", [], report={"times": {"a": 1.0}, "exempt": ["a"], "factor": 2.0})
    two = Part("y", [], report={"times": {"b": 2.0}, "exempt": [], "factor": 1.5})
    assert run_tests.merged([one, two]) == ({"a": 1.0, "b": 2.0}, frozenset({"a"}), 1.5)
    json.dumps(one.report)
