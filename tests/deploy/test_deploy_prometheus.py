"""Alerts and the dashboard, read by promtool and a real Prometheus (SPEC O1)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import RealServer, free_port
from until import until

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "tuque.json"
PATIENCE_S = 60

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus is not installed (Debian: apt install prometheus)",
)


def get(port: int, path: str, **words: str) -> Any:
    query = urllib.parse.urlencode(words)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?{query}", timeout=10) as found:
        return json.load(found)["data"]


def expressions() -> list[str]:
    """What the dashboard asks for, with its variables filled in."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [e.replace("$__rate_interval", "5m").replace("$queue", ".*") for e in found]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\btuque_[a-z0-9_]+", text))


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS.read_text("utf-8"))


def test_each_alert_has_its_paragraph() -> None:
    names = alerts()
    assert len(names) == 13
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    links = re.findall(r'runbook: "docs/operations.md#(\w+)"', ALERTS.read_text("utf-8"))
    assert links == [name.lower() for name in names]
    for name in names:
        paragraph = re.search(
            rf"^### {name}\n\n(.+?)\n\n- Look at: (.+?)\n- Do: (.+?)\n\n", text, re.M | re.S
        )
        assert paragraph and min(map(len, paragraph.groups())) > 60, name
        assert "\n#" not in paragraph[0][4:], name


def test_paragraphs_name_metrics_that_there_are() -> None:
    """A figure that somebody looks for at night exists."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    source = "".join(
        (ROOT / "src/tuque" / name).read_text("utf-8")
        for name in ("server/metrics/metrics.py", "worker/run/health.py")
    )
    for name in names_in(text):
        bare = name.removesuffix("_total")
        assert f'"{bare}"' in source or f'"{bare.removeprefix("tuque_")}"' in source, name


def test_panels_ask_a_question_each() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert all(panel["description"].endswith("?") for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)


@needs_prometheus
def test_promtool_takes_the_rules(tmp_path: Path) -> None:
    folder = ALERTS.parent
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        ran = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    rules = [{"record": f"panel:{i}", "expr": e} for i, e in enumerate(expressions())]
    panels = tmp_path / "panels.yml"  # JSON is YAML
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    ran = subprocess.run(["promtool", "check", "rules", panels], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


class Scraped:
    """A node and a Prometheus that reads it often."""

    def __init__(self, folder: Path) -> None:
        self.metrics_port, self.port = free_port(), free_port()
        flags = ("--metrics-port", str(self.metrics_port), "--appendonly", "yes")
        self.node = RealServer(folder, *flags, port=free_port())
        self.node.start()
        config = folder / "prometheus.yml"
        target = {"targets": [f"127.0.0.1:{self.metrics_port}"]}
        jobs = [{"job_name": "tuque", "static_configs": [target]}]
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
                    "rule_files": [str(ALERTS)],
                    "scrape_configs": jobs,
                }
            )
        )
        self.prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(folder / "prometheus.log").open("w"),
        )

    def until(self, path: str, is_there: Any, **words: str) -> Any:
        """Ask until the reply has what is looked for."""

        def found() -> Any:
            try:
                reply = get(self.port, path, **words)
            except OSError:
                return None
            return reply if is_there(reply) else None

        return until(found, f"answer {path}", most_s=PATIENCE_S)

    def close(self) -> None:
        self.prometheus.terminate()
        self.prometheus.wait(20)
        self.node.end()


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Scraped]:
    made = Scraped(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
@needs_prometheus
def test_a_real_prometheus_reads_the_node_and_the_rules(scraped: Scraped) -> None:
    """O1.2 OpenMetrics, as Prometheus asks for it"""
    found = scraped.until(
        "/api/v1/query", lambda data: data["result"], query='tuque_info{job="tuque"}'
    )
    assert found["result"][0]["value"][1] == "1"
    groups = scraped.until("/api/v1/rules", lambda data: data["groups"])["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == alerts()
    scraped.until(
        "/api/v1/rules",
        lambda data: all(rule["health"] == "ok" for rule in data["groups"][0]["rules"]),
    )
    targets = get(scraped.port, "/api/v1/targets")["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")]
    for expression in expressions():
        get(scraped.port, "/api/v1/query", query=expression)
    metrics = set(get(scraped.port, "/api/v1/label/__name__/values"))
    alone = {"tuque_node_up", "tuque_federation_jobs_total"}  # of clusters
    alone.add("tuque_queue_oldest_ready_seconds")  # of queues
    asked = names_in(ALERTS.read_text("utf-8")) | names_in("\n".join(expressions()))
    assert asked - metrics <= alone
