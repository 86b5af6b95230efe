"""The documentation site: every page has a place, links hold, and nothing comes from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402  tools/ is put on the path above

BUILD_S = 400


def listed(found: object) -> list[str]:
    """All pages of a part of the navigation."""
    if isinstance(found, str):
        return [found]
    parts = found.values() if isinstance(found, dict) else found
    assert isinstance(parts, list) or isinstance(found, dict)
    return [page for part in parts for page in listed(part)]


def test_every_page_has_one_place_in_the_navigation() -> None:
    pages = listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    wanted = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
    wanted |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("spec/**/*.md")}
    wanted |= {path.name for path in ROOT.glob("*.md")} | {"decisions/README.md"}
    assert set(pages) == wanted, "a page is missing in the navigation of mkdocs.yml, or is no more"
    assert len(pages) == len(set(pages))


def test_links_lead_somewhere_in_the_site(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[why](decisions/)")
    assert site_pages.with_links(ROOT / "README.md").count("](decisions/README.md)") == 1
    assert "](decisions/)" in (ROOT / "README.md").read_text("utf-8")
    page.write_text("[here](sub/) and [there](none.md)\n\n- a\n  - b\n\n```\n  [x](sub/)\n```\n")
    (tmp_path / "sub").mkdir()
    assert site_pages.with_links(page) == (
        "here and [there](none.md)\n\n- a\n    - b\n\n```\n  [x](sub/)\n```\n"
    )


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://example.org/a.js"></script>',
        '<img src="//example.org/a.png">',
        '<link rel="stylesheet" href="http://example.org/a.css">',
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path, page: str) -> None:
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text('<a href="https://example.org">there</a><img src="a.png">')
    (tmp_path / "c.css").write_text("a { background: url(a.png) }")
    assert [line.partition(":")[0] for line in site_pages.loads_from_elsewhere(tmp_path)] == [
        "a.html"
    ]


def test_styles_that_load_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('a { background: url("https://example.org/a.png") }')
    (tmp_path / "b.css").write_text('@import "b.css"')
    assert len(site_pages.loads_from_elsewhere(tmp_path)) == 2


@pytest.mark.slow
def test_the_site_builds_strictly() -> None:
    done = subprocess.run(
        [sys.executable, "tools/site_pages.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if "pip install" in done.stderr or "is not complete" in done.stderr:
        pytest.skip(f"the packages of the site cannot be installed: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " pages: build/site/html/index.html" in done.stdout
