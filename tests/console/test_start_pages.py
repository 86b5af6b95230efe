"""The start pages, each typed as it is; and the commands of "what to do when"."""

from __future__ import annotations

import re
import tomllib

import pytest
from console_node import Run
from newcomer import ROOT, Tour, blocks

from program import path_of
from tuque.cli.programs import free_ports
from until import until

SCREEN = 70  # lines
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
READY = {"tuque dev": "ready after", "uvicorn": "Application startup complete"}
WHEN = ROOT / "docs" / "what-to-do-when.md"


class Page:
    """A page whose blocks are typed, in their order, by a newcomer."""

    def __init__(self, name: str, tour: Tour) -> None:
        self.name = f"docs/{name}.md"
        self._tour = tour
        self._console, self._web = map(str, free_ports(2))
        self._script: list[str] = []  # a shell keeps what its lines have set
        self._shown = ""

    def type_all(self) -> None:
        for kind, text in blocks(self.name):
            if kind == "python":
                self._save(text)
            elif kind == "text":
                wanted = text.strip()
                until(lambda wanted=wanted: wanted in self._shown + self._tour.log.read_text())
            else:
                self._type(text.strip().splitlines())

    def _save(self, code: str) -> None:
        """The first line of a file is its name."""
        path = self._tour.place / code.partition("\n")[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)

    def _type(self, lines: list[str]) -> None:
        rest = []
        for line in lines:
            if line.startswith("pip install"):
                assert set(re.findall(r"tuque\[(\w+)\]", line)) <= set(EXTRAS)
            elif line.startswith("tuque dev"):
                ports = f" --port {self._tour.port} --web-port {self._console}"
                self._start(line + ports, READY["tuque dev"])
            elif line.startswith("uvicorn"):
                self._start(f"{line} --port {self._web}", READY["uvicorn"])
            else:
                rest.append(line.replace("8000", self._web))
        self._shown = self._tour.sh("\n".join(rest)) if rest else self._shown

    def _start(self, line: str, ready: str) -> None:
        self._tour.start(line)
        self._tour.printed(ready)


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
