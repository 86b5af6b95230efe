"""docs/fastapi.md: its files are those of the example, and its commands run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from newcomer import ROOT, Tour, blocks

from tuque.cli.programs import free_ports

PAGE = "docs/fastapi.md"
SHOP = ROOT / "examples" / "web_shop"
FILES = ("jobs.py", "main.py", "test_shop.py")

pytest.importorskip("fastapi", reason="fastapi is not installed: make setup-dev")


def commands() -> list[list[str]]:
    """The lines of each block to be typed."""
    return [text.strip().splitlines() for kind, text in blocks(PAGE) if not kind]


@pytest.fixture
def shop(tour: Tour) -> Tour:
    """A newcomer with the files of the page."""
    for name in FILES:
        shutil.copyfile(SHOP / name, tour.place / name)
    return tour


def test_the_page_has_the_files_of_the_example() -> None:
    shown = [text for kind, text in blocks(PAGE) if kind == "python"]
    for name in FILES:
        assert (SHOP / name).read_text() in shown, f"{PAGE} has another {name}"
    for code in shown:
        compile(code, PAGE, "exec")


def test_the_commands_of_the_page(shop: Tour) -> None:
    _, (dev, serve), (order, follow, ask) = commands()
    console, web = map(str, free_ports(2))
    broker = shop.start(f"{dev} --port {shop.port} --web-port {console}")
    server = shop.start(f"{serve} --port {web}")
    shop.printed("ready after")
    shop.printed("Uvicorn running on")
    job = json.loads(shop.sh(order.replace("8000", web)))["job"]
    events = shop.sh(follow.replace("8000", web).replace("ID", job))
    assert events.endswith("\n\n") and "id: over\n" in events
    last = json.loads(events.split("data: ")[-1])
    assert (last["state"], last["result"]) == ("done", "invoice-7-30.pdf")
    assert json.loads(shop.sh(ask.replace("8000", web).replace("ID", job))) == last
    assert shop.stop(broker) == 0
    away = shop.sh(f"curl -s -i -H 'user: ann' http://127.0.0.1:{web}/jobs/{job}")
    assert re.search(r"^HTTP/1.1 503 .*^retry-after: 1$", away, re.M | re.S)
    assert shop.stop(server) in (0, -2)


def test_the_lifespan_of_the_page(shop: Tour) -> None:
    (code,) = [text for kind, text in blocks(PAGE) if "jobs.connected()" in text]
    code += "\nfrom fastapi.testclient import TestClient\n"
    code += "with TestClient(FastAPI(lifespan=life)): print('served')\n"
    assert shop.python(code) == "served\n"


def test_the_litestar_of_the_page(shop: Tour) -> None:
    pytest.importorskip("litestar", reason="litestar is not installed: make setup-dev")
    (code,) = [text for kind, text in blocks(PAGE) if kind == "python" and "Litestar(" in text]
    code += "\nfrom starlette.testclient import TestClient\n"
    code += "with TestClient(web) as browser:\n"
    code += "    for way in ('', '/events'):\n"
    code += (
        "        print(browser.get('/jobs/D_0123abcd_0123456789abcdefghijklmn_05a1' + way).text)\n"
    )
    assert shop.python(code).count("the job broker is away") == 2


def test_the_tests_of_the_page(shop: Tour) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tuque.testing.plugin", "test_shop.py"],
        cwd=shop.place, env=shop.env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


def test_the_commands_install_what_is_there() -> None:
    extras = (Path(ROOT) / "pyproject.toml").read_text()
    ((install,), *_) = commands()
    (extra,) = re.findall(r"tuque\[(\w+)\]", install)
    assert f"\n{extra} = [" in extras
