"""Two distributions from one tree: what is in which, and what is said when one does not fit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from console_node import Run
from setuptools import find_namespace_packages

import tuque
import tuque.server
from tuque.cli.dev import mode_of
from tuque.lazygroup import NODE

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


def project(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


def packages(name: str) -> set[str]:
    """Those of a distribution."""
    found = project(name)["tool"]["setuptools"]["packages"]["find"]
    ways = {key: found[key] for key in ("include", "exclude") if key in found}
    made = find_namespace_packages(str(SRC), **ways)
    return {one for one in made if "__pycache__" not in one}


def links(place: Path, names: set[str]) -> Path:
    """A folder with links to these parts of the package."""
    (place / "tuque").mkdir(parents=True)
    for name in names:
        (place / "tuque" / name).symlink_to(SRC / "tuque" / name)
    return place


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A folder with the users' side."""
    return links(tmp_path / "users", {one.name for one in SRC.glob("tuque/*")} - NODE)


def run(
    code: str, places: list[Path], argv: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python where only these folders have a Tuque, but for complete ones behind them."""
    return subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.argv[1:] = {list(argv)!r}; {code}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_both_have_one_version() -> None:
    one = tuque.__version__
    assert tuque.server.__version__ == one
    users = project("pyproject.toml")["project"]
    assert users["optional-dependencies"]["server"] == [f"tuque-node=={one}"]
    assert project("node/pyproject.toml")["project"]["dependencies"][0] == f"tuque=={one}"


def test_both_have_all_packages_and_share_none() -> None:
    ours, of_node = packages("pyproject.toml"), packages("node/pyproject.toml")
    assert {one.split(".")[1] for one in of_node} == NODE
    assert not ours & of_node
    whole = {one for one in find_namespace_packages(str(SRC)) if "__pycache__" not in one}
    assert ours | of_node == {one for one in whole if ".egg-info" not in one}


def test_the_users_side_requires_three_packages() -> None:
    wanted = project("pyproject.toml")["project"]["dependencies"]
    names = {re.split("[<>=]", one)[0] for one in wanted}
    assert names == {"click", "hiredis", "msgspec"}


def test_the_compiler_of_the_node_finds_the_types_of_all_that_both_require() -> None:
    projects = [project(name) for name in ("pyproject.toml", "node/pyproject.toml")]
    required = {line for one in projects for line in one["project"]["dependencies"]}
    assert required - {f"tuque=={tuque.__version__}"} <= {*projects[1]["build-system"]["requires"]}


def test_a_node_in_another_folder_is_found(users: Path, tmp_path: Path) -> None:
    node = links(tmp_path / "node", set(NODE))
    done = run("import tuque.core.model.job as job; print(job.__file__)", [users, node])
    assert done.stdout.startswith(str(node)), done.stderr


def test_a_complete_tuque_elsewhere_is_not_mixed_in(users: Path, tmp_path: Path) -> None:
    """Its modules would be of another version."""
    node = links(tmp_path / "node", {*NODE, "__init__.py"})
    done = run("import tuque; print(tuque.__path__)", [users, node])
    assert str(node) not in done.stdout, done.stderr


MISSING = "import sys; sys.modules.update(dict.fromkeys({!r}));".format(
    [f"tuque.{name}" for name in sorted(NODE)]
)


@pytest.mark.parametrize("words", ["server", "journal check .", "selftest"])
def test_without_the_node_a_command_says_what_to_install(words: str, users: Path) -> None:
    done = run(f"{MISSING} from tuque.main import main; main()", [users], tuple(words.split()))
    assert done.returncode == 1
    assert done.stderr == (
        "Error: this needs the node, which is not installed; run: pip install 'tuque[server]'\n"
    )


def test_without_the_node_the_rest_works(users: Path) -> None:
    """The client, the worker and the help of the prompt, whose table is the node's."""
    code = "import tuque.worker, tuque.aio; from tuque.main import main; main()"
    done = run(f"{MISSING} {code}", [users], ("cli", "help", "ADDJOB"))
    assert done.stdout.startswith("ADDJOB queue body ms-timeout"), done.stderr


def test_without_the_node_tests_say_what_to_install(users: Path) -> None:
    done = run(f"{MISSING} from tuque.testing import TestApp", [users])
    assert done.stderr.endswith("tuque.testing needs the node: pip install 'tuque[testing]'\n")


def test_without_a_library_its_module_says_what_to_install() -> None:
    needed = {
        "tuque.django": ("django", "django"),
        "tuque.dramatiq": ("dramatiq", "dramatiq"),
        "tuque.outbox.alchemy": ("sqlalchemy", "sqlalchemy"),
        "tuque.sentry": ("sentry_sdk", "sentry"),
        "tuque.taskiq": ("taskiq", "taskiq"),
    }
    code = (
        "import importlib, sys\n"
        "for module, library in zip(sys.argv[1::2], sys.argv[2::2]):\n"
        "    sys.modules[library] = None\n"
        "    try: importlib.import_module(module)\n"
        "    except Exception as err: print(err)"
    )
    words = [word for module, (library, _) in needed.items() for word in (module, library)]
    done = run(code, [SRC], tuple(words))
    said = done.stdout.splitlines()
    for (module, (_, extra)), line in zip(needed.items(), said, strict=True):
        assert line.startswith(f"{module} needs ") and line.endswith(
            f"pip install 'tuque[{extra}]'"
        )


@pytest.mark.parametrize("words", ["server", "selftest"])
def test_a_node_of_another_version_is_told(words: str, users: Path, tmp_path: Path) -> None:
    node = links(tmp_path / "node", set(NODE) - {"server"})
    text = (SRC / "tuque" / "server" / "__init__.py").read_text()
    (node / "tuque" / "server").mkdir()
    (node / "tuque" / "server" / "__init__.py").write_text(
        text.replace(f'"{tuque.__version__}"', '"0.3.2"')
    )
    done = run("from tuque.main import main; main()", [users, node], (words,))
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: tuque {tuque.__version__} and tuque-node 0.3.2 do not fit: "
        "pip install -U 'tuque[server]'\n"
    )


def test_the_selftest_passes_a_job_through_a_node(
    tuque: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUQUE__REQUIREPASS", "0f1e2d3c4b5a69788796a5b4c3d2e1f0")
    done = tuque("selftest")
    assert (done.returncode, done.stderr) == (0, b"")
    first, last = done.stdout.decode().splitlines()
    assert re.fullmatch(
        r"tuque \S+, (compiled|pure): a job was added, taken and acknowledged", first
    )
    assert last.startswith("all works (")


def test_the_selftest_knows_how_the_node_runs() -> None:
    line = '{"event": "server_starts", "mode": "%s"}\n'
    assert mode_of("words\n" + line % "compiled") == "compiled"
    assert mode_of(line % "interpreted") == "pure"
