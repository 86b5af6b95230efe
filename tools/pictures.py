"""Takes the pictures of the console in docs/pictures.

python tools/pictures.py [--seconds N] [--every DIRECTORY]

Starts three nodes, a shop whose queue `images` falls behind, and a console; after N seconds (300)
Chromium takes the five pictures. Each is 1366 px wide, light, and has fewer than 120 kB. With
--every it takes all pages there instead, at 1366 and 390 px, light and dark, to look at them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from picture_png import with_few_colours
from picture_shop import STORY_S, Shop
from playwright import sync_api as playwright

from tuque.testing import TestCluster

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
PASSWORD = "correct horse battery"  # of a console that lives for minutes
BYTES_MAX = 120_000
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
WIDE, NARROW = (1366, 900), (390, 844)
FIVE = {
    "overview": "/",
    "queue": "/queue?name=images",
    "dead": "/dead",
    "workers": "/workers",
    "cluster": "/cluster",
}
OTHERS = {
    "queues": "/queues",
    "jobs": "/queue?name=images&tab=active",
    "tubes": "/tubes",
    "schedules": "/schedules",
    "leases": "/leases",
    "log": "/log",
    "add": "/ask/add?queue=images",
}


def main() -> None:
    """Runs the shop, takes pictures, ends all."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=STORY_S)
    words.add_argument("--every", type=Path)
    given = words.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(TestCluster(place, 3, "--maxmemory", "512mb"))
        shop = Shop([node.url for node in cluster.nodes], given.seconds)
        seller = threading.Thread(target=lambda: asyncio.run(shop.open()))
        seller.start()
        stack.callback(seller.join)
        stack.callback(shop.close)
        base = stack.enter_context(Running(cluster.url)).base
        time.sleep(given.seconds)
        browser = stack.enter_context(playwright.sync_playwright()).chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=["--no-sandbox", "--font-render-hinting=none"],
        )
        stack.callback(browser.close)
        if given.every:
            take_every(browser, base, given.every, shop.latest)
        else:
            take_five(browser, base)


class Running:
    """A console of its own process."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tuque", "console", "--url", url, "--web-port", "0"]
        self.process = subprocess.Popen(
            [*command, "--name", "shop"],
            env={**os.environ, "TUQUE_CONSOLE_ADMIN_PASSWORD": PASSWORD},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.base = self.process.stdout.readline().split()[-1]

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(20)


def signed_in(browser: Any, base: str, size: tuple[int, int], theme: str) -> Any:
    """A page of somebody who may act."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=theme, locale="en-GB"
    )
    page = context.new_page()
    page.goto(base + "/login")
    page.fill("[name=name]", "admin")
    page.fill("[name=password]", PASSWORD)
    page.click("button.main")
    page.wait_for_url(base + "/")
    return page


def shot(page: Any, address: str, is_whole: bool) -> bytes:
    """A picture of a page that is live."""
    page.goto(address)
    if "/ask/" not in address:
        page.wait_for_selector("#live-state:has-text('Live')")
        page.keyboard.press("p")  # figures stand still
    page.wait_for_timeout(300)
    if is_whole:
        return bytes(page.screenshot(full_page=True))
    end = "Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)"
    high = min(WIDE[1], page.evaluate(end))
    return bytes(page.screenshot(clip={"x": 0, "y": 0, "width": WIDE[0], "height": high}))


def take_five(browser: Any, base: str) -> None:
    """The pictures of docs/operations.md."""
    PICTURES.mkdir(exist_ok=True)
    page = signed_in(browser, base, WIDE, "light")
    taken = {name: shot(page, base + path, is_whole=False) for name, path in FIVE.items()}
    for name, picture in taken.items():
        found = with_few_colours(picture)
        (PICTURES / f"{name}.png").write_bytes(found)
        print(f"docs/pictures/{name}.png: {len(found):,} bytes")
        if len(found) >= BYTES_MAX:
            raise SystemExit(f"{name}.png has {len(found):,} bytes, more than {BYTES_MAX:,}")


def take_every(browser: Any, base: str, place: Path, latest: str) -> None:
    """All pages at both widths, light and dark."""
    place.mkdir(parents=True, exist_ok=True)
    pages = {**FIVE, **OTHERS, "job": "/job?id=" + latest.replace("/", "%2F").replace("+", "%2B")}
    for width, size in (("wide", WIDE), ("phone", NARROW)):
        for theme in ("light", "dark"):
            page = signed_in(browser, base, size, theme)
            for name, path in pages.items():
                found = shot(page, base + path, is_whole=True)
                (place / f"{name}-{width}-{theme}.png").write_bytes(found)
            page.context.close()


if __name__ == "__main__":
    main()
