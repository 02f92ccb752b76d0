"""Prometheus itself executes every expression of the dashboards, on what stepscope serves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stepscope.grafana.setup_files import DASHBOARDS
from stepscope.prometheus.exposition import render
from tests.grafana.test_dashboards import expressions, panels
from tests.prometheus.made import full_state

ENGINE = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,  # Prometheus waits five seconds before it scrapes
    pytest.mark.skipif(ENGINE is None, reason="prometheus is not installed"),
]

VARIABLES = {
    "$project": ".*", "$run": ".*", "$host": ".*", "$gpu": ".*", "$__rate_interval": "1m", "$__range": "1h"
}  # fmt: skip


class Metrics(BaseHTTPRequestHandler):
    """Serves every figure that there is."""

    state = full_state()

    def do_GET(self) -> None:
        body, kind = render(self.state, self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Prometheus that has scraped the metrics twice."""
    folder = tmp_path_factory.mktemp("prometheus")
    served = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    target = {"targets": [f"127.0.0.1:{served.server_port}"]}
    settings = {
        "global": {"scrape_interval": "500ms"},
        "scrape_configs": [{"job_name": "stepscope", "static_configs": [target]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    command = [ENGINE, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        engine = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=log)
    try:
        place = wait_for(lambda: re.search(r'msg="Listening on" address=(\S+)', (folder / "log").read_text()))
        address_of_engine = f"http://{place[1]}"
        wait_for(lambda: query(address_of_engine, "count_over_time(up[1m]) >= 2"))
        yield address_of_engine
    finally:
        engine.kill()
        engine.wait()
        served.shutdown()
        served.server_close()
        thread.join()


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return result


def query(address: str, expression: str) -> list[dict[str, Any]]:
    """The series that Prometheus answers; an expression that it refuses is an error."""
    question = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{question}", timeout=60) as answer:
            series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return series
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is still starting
            return []
        raise AssertionError(f"{expression}: {error.read().decode()}") from error


def replaced(expression: str) -> str:
    """An expression with a value for each variable, as Grafana sends it."""
    return re.sub(r"\$\w+", lambda variable: VARIABLES[variable[0]], expression)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_prometheus_executes_every_expression_and_has_an_answer(name: str, address: str) -> None:
    empty = [text for text in expressions(name) if not query(address, replaced(text))]
    assert empty == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_series_have_the_labels_that_legends_show(name: str, address: str) -> None:
    for panel in panels(name):
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            for series in query(address, replaced(target["expr"])):
                assert labels <= series["metric"].keys(), f"{panel['title']}: {series['metric']}"


def test_a_chart_has_one_line_for_each_legend(address: str) -> None:
    for panel in (panel for name in DASHBOARDS for panel in panels(name) if panel["type"] == "timeseries"):
        legends = [
            legend(target["legendFormat"], series["metric"])
            for target in panel["targets"]
            for series in query(address, replaced(target["expr"]))
        ]
        assert len(legends) == len(set(legends)), f"{panel['title']}: {legends}"


def legend(text: str, labels: dict[str, str]) -> str:
    """The name of a series, as Grafana makes it of its labels."""
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels[label[1]], text)
