"""The plugin in the tests of a user's project."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "tuque.testing.plugin"
HEAVY = ("asyncio", "hiredis", "msgspec", "socket", "tuque.client", "tuque.server", "tuque.worker")

PROJECT = """
    from tuque.testing import TestApp, TestCluster, TestJob, TestNode, job
    from tuque.worker import App, current_job

    app = App()

    @app.task
    def double(number: int) -> int:
        return 2 * number * current_job().attempt

    def test_with_a_worker(tuque_app: TestApp) -> None:
        handle = double.enqueue(4)
        tuque_app.run_until_idle()
        assert handle.result() == 8

    def test_by_hand() -> None:
        with job(attempt=3):
            assert double(1) == 6

    def test_each_begins_empty(tuque_app: TestApp) -> None:
        assert tuque_app.jobs() == []

    def test_wrong(tuque_app: TestApp) -> None:
        double.enqueue(4)
        tuque_app.assert_enqueued(double, 5)
"""


def test_it_is_registered_by_its_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert import_module(PLUGIN).tuque_app


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other plugin of this environment is loaded: that takes longer than the tests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.usefixtures("alone")
def test_tests_of_a_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT)
    done = pytester.runpytest_inprocess("-p", PLUGIN, "-W", "error")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(
        [
            "E*AssertionError: test_tests_of_a_project.double(5) was not enqueued. There were:",
            "E*test_tests_of_a_project.double(4)  [[]default: waiting]",
        ]
    )


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("-p", PLUGIN), marks=pytest.mark.slow),
        pytest.param(("-n", "2"), marks=pytest.mark.slow),
    ],
)
def test_an_installed_one_is_found(
    options: tuple[str, ...], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = pytester.mkdir("site") / "anything-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: anything\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{PLUGIN} = {PLUGIN}\n")
    paths = [str(installed.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    pytester.makepyfile("def test_it(tuque_app):\n    assert tuque_app.run_until_idle() == 0\n")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


@pytest.mark.usefixtures("alone")
def test_the_seed_is_chosen_by_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def tuque_seed():
            return 7

        def test_it(tuque_app):
            assert tuque_app.seed == 7
        """
    )
    pytester.runpytest_inprocess("-p", PLUGIN).assert_outcomes(passed=1)


def test_its_import_costs_nothing() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import tuque.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert PLUGIN in found
    assert [name for name in found if name.startswith(HEAVY)] == []
    assert len(found) < 8, found
