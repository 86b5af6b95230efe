"""The program itself: one screen of help, its version, and imports only when needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from console_node import Run

import tuque
from tuque.lazygroup import EXTRAS, Entry, LazyGroup, missing_extra
from tuque.main import SUBCOMMANDS
from tuque.main import tuque as program
from tuque.spark.cli.group import SUBCOMMANDS as SPARK_SUBCOMMANDS


def test_help_is_one_screen_and_names_every_command() -> None:
    shown = CliRunner().invoke(program, ["--help"]).output
    assert len(shown.splitlines()) <= 24
    for name, entry in SUBCOMMANDS.items():
        assert name in shown and entry.line in shown


def test_texts_name_only_commands_that_exist() -> None:
    """Errors, pages and rules: what was removed or renamed is named nowhere."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "spec").glob("*.md"), *(root / "docs").glob("*.md")]
    for path in [*pages, *(root / "src").rglob("*.py")]:
        for name in re.findall(r"`tuque\s([a-z][a-z-]*)", path.read_text("utf-8")):
            assert name in SUBCOMMANDS, f"{path.relative_to(root)} names `tuque {name}`"


def test_version() -> None:
    assert CliRunner().invoke(program, ["--version"]).output == f"tuque {tuque.__version__}\n"


@pytest.mark.parametrize("name", list(SUBCOMMANDS))
def test_every_command_has_help_on_one_screen(name: str) -> None:
    done = CliRunner().invoke(program, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert 5 < len(done.output.splitlines()) <= 50


def test_a_wrong_command_lists_the_right_ones(tuque: Run) -> None:
    done = tuque("sever")
    assert done.returncode == 2 and b"There are: server, dev, cli" in done.stderr
    done = tuque("spark", "raport")
    assert done.returncode == 2 and b"There are: report, silver" in done.stderr


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from tuque.main import tuque; "
        "tuque(['--help'], standalone_mode=False); "
        "print([m for m in sys.modules if m.startswith(('tuque.', 'msgspec', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['tuque.lazygroup', 'tuque.main']"


@pytest.mark.parametrize(("package", "extra"), list(EXTRAS.items()))
def test_a_missing_extra_is_named(package: str, extra: str) -> None:
    told = missing_extra(ModuleNotFoundError(f"No module named {package!r}", name=package))
    assert f"pip install 'tuque[{extra}]'" in told.message and package in told.message


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("spark report --events . --out x", "spark"),
        ("report --events . --out x", "report"),
        ("compact --events events", "report"),
        ("triage", "report"),
        ("spark silver --events events --out x", "spark"),
        ("spark silver --events events --out x --engine duckdb", "report"),
        ("replay", "report"),
        ("spark submit x.py", "spark"),
    ],
)
def test_without_its_packages_a_command_says_what_to_install(
    words: str, extra: str, tmp_path: Path
) -> None:
    folder = tmp_path / "events" / "date=2026-01-01"
    folder.mkdir(parents=True)
    for first in (0, 10):
        (folder / f"events-n-{first:020d}-{first + 9:020d}.parquet").touch()
    code = (
        "import sys; "
        "sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow', 'duckdb'])); "
        f"sys.argv = ['tuque', *{words.split()!r}]; "
        "from tuque.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(tuque.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 1 and f"tuque[{extra}]" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize("entry", [*SUBCOMMANDS.values(), *SPARK_SUBCOMMANDS.values()], ids=str)
def test_the_tables_name_extras_that_there_are(entry: Entry) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {entry.extra, *EXTRAS.values()} - {""} <= set(project["optional-dependencies"])


@click.command()
def quotes() -> None:
    raise click.ClickException("it said: \x1b[2J\nand more")


def test_an_error_of_a_command_commands_no_terminal() -> None:
    group = LazyGroup("tuque", table={"quotes": Entry(__name__, "quotes", "", "")})
    with pytest.raises(click.ClickException) as found:
        group.main(["quotes"], standalone_mode=False)
    assert found.value.format_message() == "it said: \\x1b[2J\nand more"
    done = subprocess.run(
        [sys.executable, "-m", "tuque", "worker", "no\x1b[2Jsuch:app"],
        capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(tuque.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 1
    assert r"no\x1b[2Jsuch" in done.stderr and "\x1b" not in done.stderr
