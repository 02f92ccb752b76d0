"""Prometheus itself scrapes a live run, set up as the page says, and evaluates every rule."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepscope.cli import prometheus as prometheus_command
from stepscope.prometheus.families import FAMILIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "prometheus.md").read_text(encoding="utf-8")
RECORDING = ROOT / "tests" / "recordings" / "h200_matmul.jsonl"

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="prometheus is not installed"
)

TRAINING = """
    import sys, time
    import stepscope

    exporters = {"prometheus": {"port": int(sys.argv[2])}}
    settings = {"samplers": {"gpu": {"played": sys.argv[1]}}, "exporters": exporters}
    with stepscope.TrainingMonitor(settings, run='an "odd"\\nrün') as monitor:
        while True:  # until the test has seen enough
            norm = {"gradient_norm": 50.0}
            monitor.log_training_step(loss=float("nan"), learning_rate=0.1, custom_metrics=norm)
            time.sleep(0.05)
"""


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The rules as the command prints them."""
    parser = argparse.ArgumentParser()
    prometheus_command.add_arguments(parser)
    assert prometheus_command.run(parser.parse_args(["rules"])) == 0
    path = tmp_path / "stepscope-rules.yml"
    path.write_text(capsys.readouterr().out)
    return path


def rules_in(path: Path) -> list[dict[str, Any]]:
    """All rules of a file."""
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


@needs_prometheus
def test_promtool_finds_nothing_wrong_with_the_rules(rules: Path) -> None:
    command = [str(PROMTOOL), "check", "rules", "--lint=all", "--lint-fatal", str(rules)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_rules_use_only_names_that_are_served(rules: Path) -> None:
    served = {family.name for family in FAMILIES} | {"training_step_duration_seconds_bucket", "up"}
    recorded = {rule["record"] for rule in rules_in(rules) if "record" in rule}
    for rule in rules_in(rules):
        expression = re.sub(r'"[^"]*"', "", rule["expr"])
        used = set(
            re.findall(r"\b(?:stepscope:[\w:]+|(?:stepscope|training|gpu|gradient)_\w+|up)\b", expression)
        )
        assert used, rule
        assert used - served - recorded == set(), rule


def test_the_page_lists_every_rule(rules: Path) -> None:
    for rule in rules_in(rules):
        assert f"`{rule.get('record') or rule['alert']}`" in PAGE


@pytest.fixture
def scraping(tmp_path: Path, rules: Path, folder: Path, start) -> Iterator[Callable[[str], Any]]:
    """Prometheus, which scrapes a live run every second; a function that asks its API."""
    [configuration] = [
        text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "scrape_configs" in text
    ]
    target, agent, own = free_port(), free_port(), free_port()
    changed = configuration.replace("localhost:9787", f"127.0.0.1:{target}").replace("15s", "1s")
    assert changed.count(str(target)) == changed.count("1s") == 1
    file = tmp_path / "prometheus.yml"
    beside = {
        "job_name": "agent",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [f"127.0.0.1:{agent}"]}],
    }
    settings = {"global": {"evaluation_interval": "1s"}, **yaml.safe_load(changed)}
    settings["scrape_configs"].append(beside)
    file.write_text(yaml.safe_dump(settings))
    start(TRAINING, RECORDING, agent)
    [command] = re.findall(r"\$ (stepscope serve --prometheus-port .*)", PAGE)
    serve = command.replace("9787", str(target)).split()[1:]
    server = subprocess.Popen(
        [sys.executable, "-m", "stepscope", *serve, "--store", str(folder), "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={file}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )

    def ask(path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{own}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return json.loads(response.read())["data"]
        except OSError:
            return None

    yield ask
    for started in (process, server):
        started.terminate()
        started.wait(120)


@needs_prometheus
@pytest.mark.slow
def test_prometheus_scrapes_a_live_run_and_evaluates_every_rule(
    scraping: Callable[..., Any], rules: Path, until: Callable[..., None]
) -> None:
    def values(expression: str) -> list[dict[str, Any]]:
        data = scraping("query", query=expression)
        return [] if data is None else list(data["result"])

    # Two scrapes with steps between them, and the rules evaluated after that.
    until(lambda: values('stepscope:training_steps:rate5m > 0 and on () gpu_temperature_celsius{gpu="0"}'))
    for job in ("stepscope", "agent"):
        until(lambda job=job: values(f'training_loss{{job="{job}"}}'))
        [loss] = values(f'training_loss{{job="{job}"}}')
        assert loss["metric"]["run"] == 'an "odd"\nrün'
        assert loss["value"][1] == "NaN"
        assert values(f'gpu_temperature_celsius{{job="{job}", gpu="0"}}')
        assert {float(up["value"][1]) for up in values(f'up{{job="{job}"}}')} == {1.0}
    until(lambda: values("stepscope:step_duration_seconds:p95"))
    until(
        lambda: all(
            rule["health"] == "ok" for group in scraping("rules")["groups"] for rule in group["rules"]
        )
    )
    for rule in rules_in(rules):
        assert scraping("query", query=rule["expr"]) is not None, rule["expr"]
    not_finite, *_ = values(
        next(rule["expr"] for rule in rules_in(rules) if rule.get("alert") == "StepscopeLossNotFinite")
    )
    assert not_finite["metric"]["rank"] == "0"
    until(
        lambda: any(
            alert["labels"]["alertname"] == "StepscopeLossNotFinite" for alert in scraping("alerts")["alerts"]
        )
    )
    assert values("gradient_norm > 10")
    assert values("gpu_memory_used_mb / gpu_memory_total_mb < 0.95")
    kinds = scraping("targets/metadata", metric="training_step_duration_seconds")
    assert {kind["type"] for kind in kinds} == {"histogram"}


@needs_prometheus
def test_a_run_that_has_ended_has_not_become_slower(rules: Path) -> None:
    """After two hours at a step a second, one run ends and is served for a while, and one becomes slow."""
    steps = {"ended": "0+60x120 7200x10", "slow": "0+60x120 7200+6x40"}
    times = {"ended": "0+60x120 _x10", "slow": "0+60x160"}
    series = [
        {"series": f'{name}{{project="p",run="{run}",rank="0"}}', "values": values[run]}
        for name, values in (
            ("training_steps_total", steps),
            ("stepscope_last_step_timestamp_seconds", times),
        )
        for run in values
    ]
    alerts = [{"exp_labels": {"severity": "warning", "project": "p", "run": "slow"}}]
    alerts[0]["exp_annotations"] = {"summary": "Run slow does 0.1 steps/s, 20% less than an hour ago."}
    dropped = {"eval_time": "2h30m", "alertname": "StepscopeThroughputDropped", "exp_alerts": alerts}
    test = {"interval": "1m", "input_series": series, "alert_rule_test": [dropped]}
    file = rules.with_name("test.yml")
    file.write_text(yaml.safe_dump({"rule_files": [rules.name], "tests": [test]}))
    command = [str(PROMTOOL), "test", "rules", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
