"""The templates and what they may call. Everything is escaped; no page has scripts of its own."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from tuque import __version__
from tuque.web.show import charts, text

HERE: Final = Path(__file__).parent.parent
STATIC: Final = HERE / "static"
CUT: Final = "<!--cut-->"  # between the pieces of a page that are sent apart


@cache
def environment() -> Environment:
    """The templates of the pages."""
    env = Environment(
        loader=PackageLoader("tuque.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals.update(
        {
            "at": text.at,
            "asset": asset,
            "key": text.key,
            "mark": text.mark,
            "fits": text.fits,
            "link": text.link,
            "plural": text.plural,
            "version": __version__,
            "chart_json": charts.as_json,
            "spark": charts.spark,
        }
    )
    env.filters.update(
        {
            "num": text.num,
            "rate": text.rate,
            "signed": text.signed,
            "span": text.span,
            "age": text.age,
            "size": text.size,
            "short_id": text.short_id,
            "tail_id": text.tail_id,
            "raw": text.raw,
            "brief": text.brief,
            "clip": text.clip,
            "ends": text.ends,
        }
    )
    return env


@cache
def asset(name: str) -> str:
    """The address of a file of ours; it changes with the file, so that browsers may keep it."""
    mark = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{mark}"


def page(name: str, context: dict[str, Any]) -> str:
    """A whole page, or what a dialog holds."""
    return str(environment().get_template(name + ".html").render(context))


def pieces(name: str, context: dict[str, Any]) -> list[str]:
    """The parts of the page's middle, each of which may be replaced on its own."""
    html = page(name, {**context, "base": "bare.html"})
    return [part.strip() for part in html.split(CUT)]
