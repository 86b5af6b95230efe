"""`tuque dev`: node, worker and console in one command, on free ports, until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from console_node import DEADLINE_S, Run

from program import path_of
from tuque import Client
from tuque.cli.dev import HOME, WAITS_S, Child, Log, dev, home
from tuque.cli.programs import free_port, free_ports
from until import until

SHOP = """
from tuque.worker import App

app = App(None if __name__ == "__main__" else "tuque://127.0.0.1:1")  # of production

@app.task(queue="mail")
def send(to: str) -> None:
    with open("sent.txt", "a") as file:
        print(to, file=file)

if __name__ == "__main__":
    import sys
    send.enqueue(sys.argv[1])
"""

MANAGE = """
import os, sys, time
print(sys.argv[1:], os.environ["TUQUE_URL"], flush=True)
time.sleep(60)
"""


class Dev:
    """A running `tuque dev`."""

    def __init__(self, place: Path, *words: str) -> None:
        self.place = place
        self.out = place / "dev.out"
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuque", "dev", *words],
                cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def text(self) -> str:
        return self.out.read_text()

    def printed(self, words: str, times: int = 1) -> None:
        """Wait until it has printed that so often."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.text()
            return self.text().count(words) >= times

        until(is_there, self.text)

    def pids(self, name: str = r"\w+") -> list[int]:
        """The processes that it has started, in order."""
        found = re.findall(rf"^dev +\| {name} starts, process (\d+)$", self.text(), re.M)
        return [int(pid) for pid in found]

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    """Starts one in a folder with a program."""
    (tmp_path / "shop.py").write_text(SHOP)
    made: list[Dev] = []

    def start(*words: str) -> Dev:
        made.append(Dev(tmp_path, *words))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.end()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("system", ["this one", "macos"])
def test_a_program_runs_its_tasks_and_survives_the_loss_of_the_node(
    system: str, start: Callable[..., Dev], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system != "this one":
        monkeypatch.setenv("PYTHONPATH", path_of(system))
    port, web_port = free_ports(2)
    one = start("shop:app", "--port", str(port), "--web-port", str(web_port))
    one.printed("ready after")
    url = re.findall(r"^export TUQUE_URL=(.+)$", one.text(), re.M)[0]
    assert one.text().startswith("export ") and url == f"tuque://127.0.0.1:{port}"
    with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/login", timeout=DEADLINE_S) as page:
        assert b"password" in page.read()

    def send(to: str) -> None:
        env = os.environ | {"TUQUE_URL": url}
        subprocess.run([sys.executable, "shop.py", to], cwd=tmp_path, env=env, check=True)
        sent = tmp_path / "sent.txt"
        until(lambda: sent.exists() and to in sent.read_text(), one.text)

    send("ann")
    with Client(url) as client:
        client.addjob("letters", b"kept")
    (node,) = one.pids("node")
    os.kill(node, signal.SIGKILL)
    one.printed("node was killed by signal 9; starts again in 1 s")
    one.printed("now ready to accept connections", 2)
    send("bob")
    with Client(url) as client:
        assert client.qlen("letters") == 1  # the journal has it
    assert one.end() == 0, one.text()
    assert one.text().endswith("dev     | stopped\n")
    assert len(one.pids()) == 4 and not any(map(is_running, one.pids()))


def test_another_port_is_taken_and_told_first(start: Callable[..., Dev]) -> None:
    port, _ = free_ports(2)
    with socket.create_server(("127.0.0.1", port)):
        one = start("--no-worker", "--no-console", "--memory", "--port", str(port))
        one.printed("ready after")
    url = one.text().splitlines()[0].removeprefix("export TUQUE_URL=")
    assert str(port) not in url
    with Client(url) as client:
        client.addjob("letters", b"hello")
    assert not (one.place / HOME).exists()
    assert one.end() == 0


def test_the_worker_may_be_a_command_of_django(
    start: Callable[..., Dev], tuque: Run, tmp_path: Path
) -> None:
    port, _ = free_ports(2)
    words = ("--django", "--no-console", "--memory", "--port", str(port))
    assert b"there is no manage.py here" in tuque("dev", *words).stderr
    assert b"name no app" in tuque("dev", "shop:app", *words).stderr
    (tmp_path / "manage.py").write_text(MANAGE)
    one = start(*words)
    one.printed("ready after")
    wanted = "worker  | ['tuque_worker', '--autoreload', '-c', '4', '--grace', '5'] "
    one.printed(f"{wanted}tuque://127.0.0.1:{port}")
    assert one.end() == 0


def test_several_nodes_are_a_cluster_that_has_its_jobs_again(start: Callable[..., Dev]) -> None:
    port, _ = free_ports(2)
    words = ("--no-worker", "--no-console", "--nodes", "3", "--port", str(port))
    id = ""
    for _ in range(2):
        one = start(*words)
        one.printed("ready after")
        url = one.text().splitlines()[0].removeprefix("export TUQUE_URL=")
        assert url.count(",") == 2 and url.startswith(f"tuque://127.0.0.1:{port},")
        with Client(url) as client:
            if not id:
                id = client.addjob("letters", b"hello", replicate=3)
            assert client.show(id) is not None  # the second time by the journals
        assert len(one.pids(r"node-\d")) == 3
        assert one.end() == 0, one.text()
    assert (one.place / HOME / "node-3").is_dir()


def test_a_folder_has_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with home(False, False) as place:
        (place / "journal").mkdir()
        (place / "journal" / "1").touch()
        with (
            pytest.raises(click.ClickException, match=r"in use by another `tuque dev`"),
            home(False, True),
        ):
            pass
        assert (place / "journal" / "1").exists()
        said = CliRunner().invoke(dev, ["--no-worker", "--no-console", "-p", str(free_port())])
        assert said.exit_code == 1 and "export" not in said.output
    with home(False, False):
        assert (place / "journal").exists() and (place / ".gitignore").read_text() == "*\n"
    with home(False, True):
        assert not (place / "journal").exists()
    with home(True, False) as place:
        assert place.name.startswith("tuque-dev-")
    assert not place.exists()


def test_what_dies_starts_again_later_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    child = Child("short", ("--version",), Log())
    now_s = time.monotonic()
    child.start()
    for wait_s in WAITS_S[:3]:
        until(lambda: not child.is_running)
        child.revive(now_s)
        told = f"short ended with exit code 0; starts again in {wait_s:g} s\n"
        assert told in capsys.readouterr().out
        child.revive(now_s + wait_s - 0.1)
        assert "starts, process" not in capsys.readouterr().out
        now_s += wait_s
        child.revive(now_s)
    assert "short starts, process" in capsys.readouterr().out
    child.end(time.monotonic() + DEADLINE_S)


def test_what_is_missing_is_told_before_anything_starts(tuque: Run) -> None:
    assert b"name the app, such as shop.jobs:app" in tuque("dev").stderr
    code = "import sys; sys.modules['watchfiles'] = None; from tuque.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "dev", "shop:app"],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "Error: this needs watchfiles, which is not installed; run: pip install 'tuque[dev]'\n"
    )
