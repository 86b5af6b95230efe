"""Builds the documentation site in build/site/html; `make docs` runs it.

The site has an environment of its own, build/site/env: its packages never mix with those of
.venv. A link or an anchor that leads nowhere, a page without a place in the navigation, and
whatever a page would load from the internet are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from setup_env import ROOT, digest, is_current, make_venv, run, say, stop

SITE = ROOT / "build" / "site"
PAGES = SITE / "pages"
HTML = SITE / "html"
LINK = re.compile(r"(!?\[[^\]\n]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
NESTED = re.compile(r"^ {2,3}(?=\S)")
FENCE = re.compile(r"^ *(```|~~~)")
DECISIONS = "# Decisions\n\nEach record says what was chosen, why, and how to remove it.\n\n"
# Tags whose attribute makes a browser load something; `link` also has tags that only tell.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
IN_STYLES = re.compile(r"@import|url\(\s*[\"']?(?:https?:)?//")


def environment() -> Path:
    """Make the environment of the site; return its python."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["docs"]
    SITE.mkdir(parents=True, exist_ok=True)
    python = make_venv(SITE / "env")
    stamp = SITE / "env" / ".stamp"
    pins = ("constraints.txt", "constraints-docs.txt")
    want = digest([ROOT / name for name in pins], *wanted, sys.version)
    if not is_current(stamp, want):
        say("installing what builds the site (once; loads some 20 MB)")
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
        pip += ["--progress-bar", "off", *(word for name in pins for word in ("-c", name))]
        run([*pip, *wanted], SITE / "setup.log")
        stamp.write_text(want)
    return python


def lay_out() -> None:
    """Copy the pages into build/site/pages, each at its place, with all that they link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    sources = sorted(ROOT.glob("*.md"))
    for folder in ("docs", "decisions", "spec"):
        sources += sorted((ROOT / folder).rglob("*"))
    for source in sources:
        if source.suffix == ".md":
            page = place(source)
            page.write_text(with_links(source), "utf-8")
        elif source.is_file():
            shutil.copyfile(source, place(source))
    records = sorted((ROOT / "decisions").glob("0*.md"))
    lines = [f"- [{title_of(record)}]({record.name})" for record in records]
    (PAGES / "decisions" / "README.md").write_text(DECISIONS + "\n".join(lines) + "\n", "utf-8")


def place(source: Path) -> Path:
    """Where a file of the repository lies among the pages; its folder is made."""
    found = PAGES / source.relative_to(ROOT)
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


def title_of(page: Path) -> str:
    """The first heading of a page."""
    return page.read_text("utf-8").partition("\n")[0].lstrip("# ")


def with_links(page: Path) -> str:
    """The text of a page whose links also lead somewhere in the site.

    A list in a list is indented by two spaces here, and needs four there.
    """
    out = []
    is_code = False
    for line in page.read_text("utf-8").splitlines():
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            line = NESTED.sub("    ", line)
            line = LINK.sub(lambda link: moved(page, link), line)
        out.append(line)
    return "\n".join(out) + "\n"


def moved(page: Path, link: re.Match[str]) -> str:
    """A link as the site has it.

    The folder of decisions has a page of its own, other folders become plain text, and a file that
    is no page is copied. What does not exist stays, for the build to refuse it.
    """
    text, target, anchor = link.groups()
    if "://" in target or target.startswith("mailto:"):
        return link.group()
    found = (page.parent / target).resolve()
    if found == ROOT / "decisions":
        return f"{text}({target.rstrip('/')}/README.md{anchor or ''})"
    if found.is_dir():
        return text[1:-1]
    if found.is_file() and found.suffix != ".md":
        shutil.copyfile(found, place(found))
    return link.group()


class Loads(HTMLParser):
    """What a page would load from other places."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag, if it loads something by an address of the internet."""
        told = dict(attrs)
        name = LOADS.get(tag, "")
        if tag == "link" and told.get("rel") not in ("canonical", "next", "prev"):
            name = "href"
        address = told.get(name) or ""
        if re.match(r"(https?:)?//", address):
            self.found.append(f"<{tag} {name}={address}>")


def loads_from_elsewhere(html: Path) -> list[str]:
    """What pages and styles in a folder would load from the internet: one line for each."""
    found = []
    for path in sorted(html.rglob("*.html")):
        reader = Loads()
        reader.feed(path.read_text("utf-8"))
        found += [f"{path.relative_to(html)}: {what}" for what in reader.found]
    for path in sorted(html.rglob("*.css")):
        found += [f"{path.name}: {hit}" for hit in IN_STYLES.findall(path.read_text("utf-8"))]
    return found


def main() -> None:
    python = environment()
    lay_out()
    built = subprocess.run(
        [python, "-m", "mkdocs", "build", "--strict", "--clean"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # an advertisement for its successor
        check=False,
    )
    if built.returncode:
        sys.exit(1)
    wrong = loads_from_elsewhere(HTML)
    if wrong:
        stop("\n".join(["pages load from the internet:", *wrong]))
    say(f"{len(list(HTML.rglob('*.html')))} pages: build/site/html/index.html")


if __name__ == "__main__":
    main()
