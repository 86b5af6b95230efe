"""The pages in a real browser: what is shown, clicked and heard, without errors (SPEC O14)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from typing import Any, ClassVar

import pytest
from playwright import sync_api as playwright
from web_console import PASSWORDS, Served
from web_nodes import RealNodes

from tuque import Client
from tuque.client.commands.work import Run
from until import until

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
BROWSER = next(filter(None, map(shutil.which, PROGRAMS)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")

AXE = files("axe_playwright_python") / "axe.min.js"
REASONS = (
    "HTTPError: 503 Service Unavailable for https://hooks.example/o/%d",
    "ReadTimeout: nothing read for %d s",
    "KeyError: 'vat_id'",
)
DEAD = (40, 35, 25)
WIDTHS = {"wide": (1366, 900), "phone": (390, 844)}
SLOW_WIDTHS = [pytest.param(wide, marks=pytest.mark.slow) for wide in (1100, 390)]
THEMES = {"wide": "light", "phone": "dark"}
PAGES = (
    "/",
    "/queues",
    "/queue?name=images",
    "/queue?name=images&tab=active",
    "/dead",
    "/tubes",
    "/schedules",
    "/groups",
    "/topics",
    "/ask/subscribe",
    "/queue?name=reports",
    "/queue?name=exports",
    "/ask/run-schedule?tube=reports&schedule=daily",
    "/cluster",
    "/workers",
    "/leases",
    "/log",
    "/ask/add",
    "/queue?name=nobody",
    "/no-page",
)
LONG_MS = 30_000


def give_up(client: Client, queue: str, reason: str, count: int) -> None:
    """Makes dead letters."""
    with client.pipeline() as pipe:
        for number in range(count):
            words = ("RETRY", 60, "ATTEMPTS", 1, "HEADERS", 1, "tuque-task", "hooks.send")
            pipe.execute_command("ADDJOB", queue, f'{{"order": {number}}}', 0, *words)
        pipe.execute()
    left = count
    while left:
        jobs = client.getjob(queue, count=100, timeout_ms=5000)
        runs = client.start(*jobs, worker="hook-1")
        with client.pipeline() as pipe:
            for job, run in zip(jobs, runs, strict=True):
                text = reason % left if "%d" in reason else reason
                assert isinstance(run, Run)
                pipe.fail(job, run.run, reason=text, detail="Traceback: …")
                left -= 1
            pipe.execute()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNodes]:
    """Three real nodes."""
    with RealNodes(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def console(cluster: RealNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A console at a port, as it ships."""
    with Served(cluster.url, tmp_path_factory.mktemp("console") / "actions.jsonl") as one:
        yield one


@pytest.fixture(scope="module")
def load(cluster: RealNodes) -> Iterator[None]:
    """Jobs in all states, and some that come and go."""
    over = threading.Event()
    with cluster[0].client() as client:
        for at, (reason, count) in enumerate(zip(REASONS, DEAD, strict=True)):
            with cluster[at].client() as one:
                give_up(one, "webhooks", reason, count)
        client.execute("TUBE", "CREATE", "letters", "fifottl", "ALONE")
        client.execute("TUBE", "PUT", "letters", "a letter")
        client.addjob("later", "x", delay=3600)
        client.tube("reports").create("tasks", alone=True)
        client.schedule_add("reports", "daily", "{}", cron="0 9 * * *", tz="Europe/Berlin")
        client.schedule_add("reports", "hourly", "{}", every_s=3600)
        client.schedule_pause("reports", "hourly")
        group = client.group_create("reports", 2, body="{}")
        client.group_add("reports", group, {0: client.addjob("later", "x", delay=3600, keep=60)})
        client.topic_subscribe("orders", "mail", {"shop": "eu-*"})
        client.tube("exports").create("tasks", alone=True)
        for number in range(9):
            client.addjob("exports", "x", limit=("shop-1", 1), group=f"tenant-{number % 3}")
        client.getjob("exports")
        for number in range(40):
            client.addjob("results", f"{number}")
        epoch = client.lease_open("table", "spark-1", "results")
        client.lease_next("table", epoch, 1, 10, ttl_ms=3_600_000)

    def come_and_go() -> None:
        with cluster[1].client() as one:
            while not over.wait(0.1):
                one.addjob("images", '{"task": "thumb"}', retry=60)
                if not over.wait(0.05):
                    one.ackjob(*one.getjob("images", timeout_ms=100))

    thread = threading.Thread(target=come_and_go)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        one = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield one
        one.close()


class Tab:
    """A tab of somebody who is signed in; it keeps what went wrong."""

    profiles: ClassVar[dict[tuple[str, str], Any]] = {}  # base, name: where somebody is signed in

    def __init__(
        self, browser: Any, console: Served, width: str = "wide", name: str = "admin"
    ) -> None:
        wide, high = WIDTHS[width]
        self.base = console.base
        is_new = (self.base, name) not in self.profiles
        if is_new:
            self.profiles[self.base, name] = browser.new_context()
        profile = self.profiles[self.base, name]
        profile.set_default_timeout(LONG_MS)
        self.page = profile.new_page()
        self.page.set_viewport_size({"width": wide, "height": high})
        self.wrong: list[str] = []
        self.page.on("console", self.heard)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        if is_new:
            self.page.goto(self.base + "/login")
            self.page.fill("[name=name]", name)
            self.page.fill("[name=password]", PASSWORDS[name])
            self.page.click("button.main")
            self.page.wait_for_url(self.base + "/")
        else:
            self.open("/")

    def heard(self, message: Any) -> None:
        is_status = "Failed to load resource" in message.text and " 404 " in message.text
        if message.type in ("error", "warning") and not is_status:
            self.wrong.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def number(self, selector: str) -> int:
        return int(self.page.get_attribute(selector, "data-value"))

    def close(self) -> None:
        self.page.close()


@pytest.fixture
def tab(browser: Any, console: Served, load: None) -> Iterator[Tab]:
    one = Tab(browser, console)
    yield one
    one.close()
    assert one.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_has_errors_or_hurdles(
    browser: Any, console: Served, load: None, width: str
) -> None:
    """No errors, nothing wider than the screen, nothing serious that axe-core finds."""
    tab = Tab(browser, console, width)
    found = []
    tab.page.emulate_media(color_scheme=THEMES[width])
    for path in PAGES:
        tab.open(path)
        if path[1:5] not in ("ask/", "no-p"):
            tab.page.wait_for_selector("#live-state:has-text('Live')")
        over = too_wide(tab)
        found += [f"{path}: {over} px too wide"] if over > 0 else []
        tab.page.evaluate(AXE.read_text("utf-8"))
        result = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        for one in result["violations"]:
            if one["impact"] in ("serious", "critical"):
                where = "; ".join(str(node["target"]) for node in one["nodes"][:3])
                found.append(f"{path}: {one['id']} at {where}")
    assert found == []
    assert tab.wrong == []
    tab.close()


def test_dead_letters_of_one_reason_are_retried_in_two_clicks(
    tab: Tab, console: Served, cluster: RealNodes
) -> None:
    """A hundred of three reasons; the page, INFO and the log agree on each count."""
    tab.open("/dead")
    total = '[data-metric="dead"]'
    tab.page.wait_for_selector(f'{total}[data-value="100"]')
    tab.page.fill("#text", "ReadTimeout")
    tab.page.press("#text", "Enter")
    tab.page.wait_for_selector("#groups tbody tr:nth-child(1):last-child")
    assert tab.number('[data-metric="group"]') == DEAD[1]

    tab.page.click("#groups tbody tr a:has-text('Retry 35')")  # one
    tab.page.wait_for_selector("dialog[open] h2:has-text('Retry 35 jobs?')")
    tab.page.click("dialog[open] button:has-text('Retry 35')")  # two

    tab.page.wait_for_selector("[data-action] h2:has-text('Done')")
    tab.open("/dead")
    tab.page.wait_for_selector(f'{total}[data-value="65"]')
    replayed = dead = 0
    for node in cluster.nodes:
        with node.client() as client:
            dead += client.qlen("webhooks.dead")
            replayed += int(client.info("jobs")["replayed"])
    assert dead == 65 and replayed >= DEAD[1]
    with cluster[0].client() as client:
        until(lambda: cluster.length("webhooks") == DEAD[1], "come back")
    tab.open("/queues")
    until(lambda: agree(tab, cluster), "show what INFO says")

    def copies_agree() -> bool:
        tab.open("/dead")
        return tab.number('[data-metric="dead_copies"]') == cluster.summed("jobs", "dead")

    until(copies_agree, "count the copies as INFO does")
    action = console.site.log.latest[0]
    assert (action.who, action.what, action.jobs) == ("admin", "Retrying", 35)


def agree(tab: Tab, cluster: RealNodes) -> bool:
    """Whether ready and dead jobs on the page are those of INFO, between two of the load."""
    ready, dead = (tab.number(f'.sum[data-metric="{name}"]') for name in ("ready", "dead"))
    return dead == 65 and ready + dead == cluster.summed("jobs", "queued_jobs")


def test_figures_move_and_pause(tab: Tab) -> None:
    tab.open("/queue?name=results")
    ready = '#strip [data-metric="ready"]'
    before = tab.number(ready)
    with Client(tab_url(tab)) as client:
        client.addjob("results", "one more")
        tab.page.wait_for_selector(f'{ready}[data-value="{before + 1}"]')
        tab.page.keyboard.press("p")
        assert tab.text("#live-state") == "Paused"
        until(lambda: lookers(tab) == 0, "let the stream go")
        client.addjob("results", "and another")
        assert tab.number(ready) == before + 1
        tab.page.keyboard.press("p")
        tab.page.wait_for_selector(f'{ready}[data-value="{before + 2}"]')


def test_a_hidden_tab_asks_for_nothing(tab: Tab) -> None:
    until(lambda: lookers(tab) == 1, "look")
    turn = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    tab.page.evaluate(turn % "true")
    until(lambda: lookers(tab) == 0, "stop looking")
    tab.page.evaluate(turn % "false")
    until(lambda: lookers(tab) == 1, "look again")


SITES: dict[str, Served] = {}


@pytest.fixture(autouse=True)
def known(console: Served) -> None:
    SITES[console.base] = console


def lookers(tab: Tab) -> int:
    return SITES[tab.base].site.watch.lookers


def tab_url(tab: Tab) -> str:
    return f"tuque://{SITES[tab.base].site.watch.nodes.places[0]}"


LONG = "L" * 100 + "M" * 88 + "-the-end.one"


@pytest.mark.slow
def test_a_long_name_keeps_within_each_page(tab: Tab, console: Served) -> None:
    """O14.4 The longest queue is also named in the legend of a chart."""
    with Client(tab_url(tab)) as client, client.pipeline() as pipe:
        for _ in range(2_000):
            pipe.addjob(LONG, "x", retry=600)
        pipe.execute()
    until(lambda: LONG in console.site.watch.queue_points, "chart it")
    until(lambda: LONG in console.site.watch.view().queues, "see it")
    for wide in (1366, 390):
        tab.page.set_viewport_size({"width": wide, "height": 844})
        for path in ("/", "/queues?match=the-end", "/tubes"):
            tab.open(path)
            assert too_wide(tab) <= 0, (wide, path)


def test_a_long_name_keeps_within_the_page(tab: Tab, console: Served) -> None:
    """O14.4 Of a long name a column shows the beginning and the last 12 characters."""
    with Client(tab_url(tab)) as client:
        client.addjob(LONG, "x", retry=600)
    until(lambda: LONG in console.site.watch.view().queues, "see it")
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open("/queues?match=the-end")
    assert too_wide(tab) <= 0
    end = tab.page.locator("td .name .z")
    assert end.inner_text() == "-the-end.one"
    assert end.evaluate("one => one.scrollWidth - one.clientWidth") <= 0


def too_wide(tab: Tab) -> int:
    """By how many px the page is wider than the screen."""
    return int(tab.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_charts_say_whole_minutes(tab: Tab) -> None:
    spans = "[59.4, 59.97, 539.8, 3599.6].map((s) => charts.span(s))"
    assert tab.page.evaluate(spans) == ["59.4 s", "1 m 00 s", "9 m 00 s", "1 h 00 m"]


def test_keys_lead_through_the_pages(tab: Tab) -> None:
    for letter, path in (("q", "/queues"), ("g", "/groups"), ("p", "/topics"), ("o", "/")):
        tab.page.keyboard.press("g")
        tab.page.keyboard.press(letter)
        tab.page.wait_for_url(tab.base + path)
    tab.open("/queues")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("x")
    assert "1 queue chosen" in tab.text("#picked")
    tab.page.keyboard.press("?")
    tab.page.wait_for_selector("#keys[open]")
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("t")
    assert tab.page.get_attribute("html", "data-theme") in ("light", "dark")


@pytest.mark.parametrize("wide", [1366, *SLOW_WIDTHS])
def test_every_page_is_reached_by_clicks(tab: Tab, wide: int) -> None:
    tab.page.set_viewport_size({"width": wide, "height": 844})
    rare = ("/groups", "/topics", "/leases", "/log", "/")
    for path in ("/queues", "/dead", "/tubes", "/schedules", "/workers", *rare):
        tab.page.click(".who summary")
        tab.page.click(f"a[href='{path}'] >> visible=true")
        tab.page.wait_for_url(tab.base + path)


def is_paused(client: Client) -> bool:
    return client.pause("results") == "in"


def test_a_queue_is_paused_and_resumed(tab: Tab, cluster: RealNodes) -> None:
    tab.open("/queue?name=results")
    tab.page.click("a:has-text('Pause in…')")
    tab.page.click("dialog[open] button.main")
    tab.page.wait_for_selector("h1 .st.pause")
    for node in cluster.nodes:
        with node.client() as client:
            until(partial(is_paused, client), "pause everywhere")
    tab.page.click("a:has-text('Resume…')")
    tab.page.click("dialog[open] button.main")
    tab.page.wait_for_selector("a:has-text('Pause in…')")


def test_a_reader_sees_why_buttons_are_off(browser: Any, console: Served, load: None) -> None:
    tab = Tab(browser, console, name="reader")
    tab.open("/dead")
    assert tab.page.locator("main a[data-ask]").count() == 0
    button = tab.page.locator("main button:has-text('Retry all')")
    assert button.is_disabled() and "admin" in button.get_attribute("title")
    tab.close()


def test_a_node_that_is_down_is_named_and_the_page_stays(tab: Tab, cluster: RealNodes) -> None:
    tab.open("/cluster")
    lost = cluster[2]
    lost.kill()
    try:
        tab.page.wait_for_selector("#state .banner:has-text('does not answer')")
        assert tab.text("#live-state") == "2 of 3"
        tab.page.wait_for_selector("#nodes .st.gone")
        tab.open("/queues")
        assert "webhooks.dead" in tab.page.content()
    finally:
        lost.start()
        cluster.wait_formed()
    tab.page.wait_for_selector("#live-state:has-text('Live')")
