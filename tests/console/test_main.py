"""The program itself: one screen of help, its version, and imports only when needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner
from console_node import Run

import tuque
from tuque.main import EXTRAS, SUBCOMMANDS, missing_extra
from tuque.main import tuque as program


def test_help_is_one_screen_and_names_every_command() -> None:
    shown = CliRunner().invoke(program, ["--help"]).output
    assert len(shown.splitlines()) <= 24
    for name, (_, _, line) in SUBCOMMANDS.items():
        assert name in shown and line in shown


def test_version() -> None:
    assert CliRunner().invoke(program, ["--version"]).output == f"tuque {tuque.__version__}\n"


@pytest.mark.parametrize("name", list(SUBCOMMANDS))
def test_every_command_has_help_on_one_screen(name: str) -> None:
    done = CliRunner().invoke(program, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert 5 < len(done.output.splitlines()) <= 50


def test_a_wrong_command_lists_the_right_ones(tuque: Run) -> None:
    done = tuque("sever")
    assert done.returncode == 2 and b"There are: server, cli" in done.stderr


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from tuque.main import tuque; "
        "tuque(['--help'], standalone_mode=False); "
        "print([m for m in sys.modules if m.startswith(('tuque.', 'msgspec', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['tuque.main']"


@pytest.mark.parametrize(("package", "extra"), list(EXTRAS.items()))
def test_a_missing_extra_is_named(package: str, extra: str) -> None:
    told = missing_extra(ModuleNotFoundError(f"No module named {package!r}", name=package))
    assert f"pip install 'tuque[{extra}]'" in told.message and package in told.message


def test_without_pyspark_the_report_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow', 'plotly'])); "
        "sys.argv = ['tuque', 'spark', 'report', '--events', '.', '--out', 'x']; "
        "from tuque.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "tuque[spark]" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
