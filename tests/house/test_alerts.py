"""The alerts in deploy/prometheus use metrics and labels that the server has, and each has a section in the runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.process_collector import ProcessCollector

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "deltalog.rules.yml"
METRICS = (ROOT / "docs" / "server-metrics.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def metrics() -> dict[str, tuple[str, set[str]]]:
    """The kind and labels of each metric by name, from docs/server-metrics.md, which another test checks."""
    rows = re.findall(r"^\| `(deltalog_\w+)` \| (\w+) \| ([^|]*) \|", METRICS, re.M)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def metric_names() -> set[str]:
    """The names of all series of a server, and of those that Prometheus itself adds."""
    found = {"up"} | {sample.name for family in ProcessCollector(registry=None).collect() for sample in family.samples}
    for name, (kind, _) in metrics().items():
        found |= {f"{name}{suffix}" for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
    return found


def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {each["alert"]: each for each in group["rules"]}


def named_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:deltalog|process)_\w+|\bup\b", expression))


def test_alerts_use_metrics_that_exist() -> None:
    known = metric_names()
    for name, alert in alerts().items():
        assert named_in(alert["expr"]), name
        assert named_in(alert["expr"]) - known == set(), name
        assert alert["expr"].count("(") == alert["expr"].count(")"), name
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert alert["annotations"]["summary"].endswith(".")


def test_alerts_select_labels_that_exist() -> None:
    known = metrics()
    for alert in alerts().values():
        for metric, selected in re.findall(r"(deltalog_\w+)\{([^}]*)\}", alert["expr"]):
            base = re.sub(r"_(bucket|sum|count)$", "", metric)
            assert set(re.findall(r"(\w+)\s*=~?", selected)) <= known[base][1] | {"job", "instance"}, alert["alert"]


def test_every_alert_has_a_section_in_the_runbook() -> None:
    text = PAGE[PAGE.index("## Runbook") : PAGE.index("## Disaster drills")]
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.M | re.S))
    assert list(sections) == list(alerts())
    for name, section in sections.items():
        expected = named_in(alerts()[name]["expr"])
        assert any(re.sub(r"_(bucket|sum|count)$", "", metric) in section for metric in expected), name
        assert re.findall(r"^- \*\*(\w+)\*\*", section, re.M) == ["Check", "Do", "Over"], name


def test_the_guide_names_metrics_that_exist() -> None:
    known = metric_names() | {re.sub(r"_(bucket|sum|count)$", "", each) for each in metric_names()}
    assert {each for each in re.findall(r"\bdeltalog_\w+", PAGE) if not each.endswith("_")} - known == set()


def test_promtool_accepts_the_alerts() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    for command in (["check", "rules", RULES.name], ["test", "rules", "deltalog.tests.yml"]):
        done = subprocess.run([program, *command], cwd=RULES.parent, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
