"""The start pages, each typed as it is; and the commands of "what to do when"."""

from __future__ import annotations

import re

import pytest
from console_node import Run
from newcomer import ROOT, Page, Tour

from program import path_of

SCREEN = 70  # lines
WHEN = ROOT / "docs" / "what-to-do-when.md"


@pytest.mark.parametrize("name", ["start-script", "start-fastapi", "start-django", "start-mac"])
def test_a_start_page_is_one_screen_and_works_as_it_is(name: str, tour: Tour) -> None:
    if name in ("start-fastapi", "start-django"):
        package = name.removeprefix("start-")
        pytest.importorskip(package, reason=f"{package} is not installed: make setup-dev")
    if name == "start-mac":
        tour.env["PYTHONPATH"] = path_of("macos")
    tour.log.touch()
    page = Page(name, tour)
    assert len((ROOT / page.name).read_text().splitlines()) <= SCREEN
    page.type_all()
    for process in tour.running:
        assert tour.stop(process) in (0, -2)


def test_a_file_of_a_page_that_is_wrong_is_noticed(tour: Tour) -> None:
    tour.log.touch()
    page = Page("start-script", tour)
    page._save("# jobs.py\nraise SystemExit('wrong')\n")
    with pytest.raises(AssertionError, match="wrong"):
        page._type(["python jobs.py"])


def rows() -> list[list[str]]:
    lines = [line for line in WHEN.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_what_to_do_when_names_commands_that_exist(tuque: Run) -> None:
    commands = [found for row in rows() for found in re.findall(r"`(tuque [^`]+)`", " ".join(row))]
    assert len(rows()) > 10 and len(commands) > 10
    for command in commands:
        words = [word for word in command.split()[1:] if word.islower() and "." not in word]
        found = words[:1] if words[0] == "cli" else words[:2]
        done = tuque(*found, "--help")
        assert done.returncode == 0 and done.stdout.startswith(b"Usage: tuque " + words[0].encode())
