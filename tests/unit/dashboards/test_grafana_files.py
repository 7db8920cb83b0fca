"""Dashboards, alarms and Prometheus's own files name only what /metrics gives, and match
docker-compose.yml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gonogo_service.kit.database.states import ChunkState, DeviceHealth, DeviceState
from gonogo_service.operate import metrics

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "dashboards" / "grafana"
BOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
REASONS = ("sender", "conflict", "signature")
ALERTS = GRAFANA / "prometheus" / "alerts.yml"


def state() -> metrics.State:
    """Return the state of a service that has some of everything."""
    queue, device = "ttnn.wormhole.n150", "lab-1/wormhole:0"
    given: metrics.State = {
        "chunks": {(queue, chunk_state): 1 for chunk_state in ChunkState},
        "queue_age_seconds": {queue: 1},
        "queue_workers": {queue: 1},
        "devices": dict.fromkeys(product(DeviceState, DeviceHealth), 1),
        "device_health": {(device, "n150", health): 1 for health in DeviceHealth},
        "device_drained": {device: 0},
        "device_temperature_celsius": {device: 45},
        "requests_refused": dict.fromkeys(product(["lab-1"], REASONS), 1),
        "duty_held": {"dispatcher": 1},
    }
    others = {family.name: family.words or [()] for family in metrics.FAMILIES}
    return {name: dict.fromkeys(keys, 1) for name, keys in others.items()} | given


def api_metrics() -> metrics.Metrics:
    """Return the metrics of an API process that answered a few requests."""
    api = metrics.Metrics(state, dict, lambda: 1)
    for status in (200, 304, 404, 503):
        api.observe("GET", "/api/v1/jobs/{job_id}", status, 0.01)
    return api


def table() -> str:
    """Return the rows that docs/operations.md must hold."""
    rows = ["| metric | labels | what it is |", "|---|---|---|"]
    for family in text_string_to_metric_families(generate_latest(api_metrics().registry).decode()):
        if family.name.endswith("_created"):  # when a counter began
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = dict.fromkeys(f"`{label}`" for one in family.samples for label in one.labels)
        labels.pop("`le`", None)
        rows.append(f"| `{name}` | {', '.join(labels)} | {family.documentation} |")
    return "\n".join(rows)


def test_the_table_of_metrics_is_the_code_s() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    (section,) = re.findall(r"<!-- metrics -->\n(.*?)\n?<!-- /metrics -->", text, re.DOTALL)
    assert section == table()


def expressions() -> Iterator[tuple[str, str]]:
    """Yield (where, expression) for every panel and every alert."""
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alerts.yml: {rule['alert']}", rule["expr"]


def test_dashboards_and_alerts_name_only_metrics_labels_and_values_that_there_are() -> None:
    text = generate_latest(api_metrics().registry).decode()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    known = {sample.name for sample in samples} | {"up"}
    values: dict[tuple[str, str], set[str]] = {}
    for sample in samples:
        for label, value in sample.labels.items():
            values.setdefault((sample.name, label), set()).add(value)
    for where, expression in expressions():
        names = set(re.findall(r"\bgonogo_\w+|\bup\b", expression))
        assert names, where
        assert names <= known, f"{where}: {expression}"
        for name, filters in re.findall(r"(gonogo_\w+)\{(.*?)\}", expression):
            for label, sign, pattern in re.findall(r'(\w+)([!=~]+)"(.*?)"', filters):
                assert (name, label) in values, f"{where}: {expression}"
                for choice in pattern.split("|") if not sign.startswith("!") else ():
                    assert any(re.fullmatch(choice, value) for value in values[name, label]), where


def test_compose_gives_prometheus_the_files_and_the_name_that_the_service_takes() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    for service in (services["prometheus"], services["grafana"]):
        mounts = [volume.split(":") for volume in service["volumes"] if volume.startswith("./")]
        assert mounts
        assert all((ROOT / source).exists() and mode == "ro" for source, _, mode in mounts)
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    (job,) = yaml.safe_load((GRAFANA / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["api:8717"]}]
    assert services["api"]["environment"]["GONOGO_HOSTS"].endswith(",api")
    (secret,) = services["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert secret in compose["secrets"]
