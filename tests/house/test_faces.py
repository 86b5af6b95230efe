"""The client for threads is what tools/faces.py makes of the client for asyncio."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import faces  # noqa: E402  tools/ is put on the path above

pytestmark = pytest.mark.skipif(
    not Path(sys.executable).with_name("ruff").exists(), reason="ruff is not installed"
)


def test_the_client_for_threads_is_up_to_date() -> None:
    wanted = faces.modules()
    assert len(wanted) > 3
    old = [path.relative_to(ROOT).as_posix() for path in faces.stale(wanted)]
    assert old == [], "run python tools/faces.py"


SOURCE = """
import asyncio
import time
from contextlib import asynccontextmanager

from tuque.client.aio.runner import Pool
from tuque.client.transport.streams import Link


class Fetch:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()  # asyncio only
        # threads only: self.link = self.begun()

    async def __aenter__(self) -> Link:
        \"""Begins an `async with` block.\"""
        if self.loop is None:  # asyncio only: it was dropped
            raise RuntimeError
        async with asyncio.Lock():
            return await Pool(1).take(await self.left())

    async def pages(self):
        for page in self.found:
            yield page
        await asyncio.sleep(1)
"""
MADE = """import threading
import time

from tuque.client.sync.runner import Pool
from tuque.client.transport.sockets import Link


class Fetch:
    def __init__(self) -> None:
        self.link = self.begun()

    def __enter__(self) -> Link:
        \"""Begins a `with` block.\"""
        with threading.Lock():
            return Pool(1).take(self.left())

    def pages(self):
        yield from self.found
        time.sleep(1)
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a project of which tests write the sources."""
    for name in ("aio", "sync"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(faces, "ROOT", tmp_path)
    monkeypatch.setattr(faces, "SOURCE", tmp_path / "aio")
    monkeypatch.setattr(faces, "MADE", tmp_path / "sync")
    monkeypatch.setattr(faces, "TEXTS", {"an `async with` block": "a `with` block"})
    return tmp_path


def made(folders: Path, source: str) -> str:
    """The module for threads that is made of this one."""
    (folders / "aio" / "fetch.py").write_text(source)
    text = faces.modules()[folders / "sync" / "fetch.py"]
    head, _, rest = text.partition("\n")
    assert "aio/fetch.py" in head
    return rest


def test_names_words_and_marked_lines(folders: Path) -> None:
    assert (
        made(folders, SOURCE.replace("import asyncio\n", "import asyncio\nimport time\n")) == MADE
    )


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('"""An `async with` block, an `async with` block."""\n', "of this, for threads"),
        ("# an `async with` block\nlink = streams(loop)\n", "of this, for threads"),
        ("link = None\n", "no source has these of TEXTS"),
        ("links = [\n    1,  # asyncio only\n]\n", "line 2: no statement begins here"),
    ],
)
def test_what_cannot_be_made_is_refused(folders: Path, source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        made(folders, source)


def test_what_is_old_missing_or_without_a_source_is_found(folders: Path) -> None:
    for name in ("fetch", "pool", "link"):
        (folders / "aio" / f"{name}.py").write_text("# an `async with` block\n")
    wanted = faces.modules()
    made_at = folders / "sync"
    (made_at / "fetch.py").write_text(wanted[made_at / "fetch.py"])
    (made_at / "pool.py").write_text(wanted[made_at / "pool.py"] + "# changed by hand\n")
    (made_at / "tube.py").write_text("# of a source that is gone\n")
    assert [path.name for path in faces.stale(wanted)] == ["link.py", "pool.py", "tube.py"]
    assert faces.main() == 0
    assert faces.stale(wanted) == []
