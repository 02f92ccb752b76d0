"""The files that set Grafana up: dashboards, provisioning, and an example for Docker Compose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.grafana.gpu_dashboard import gpus
from stepscope.grafana.training_dashboards import distributed, overview

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.grafana.layout import Dashboard

FOLDER = Path(__file__).parent
"""Has the dashboards as files, which `python -m stepscope.grafana.setup_files` writes again."""

DASHBOARDS: dict[str, Callable[[], Dashboard]] = {
    "gpu-training-dashboard.json": overview,
    "stepscope-gpu.json": gpus,
    "stepscope-distributed.json": distributed,
}

DATASOURCES = """\
# Grafana reads this when it starts. Change the address if Prometheus is on another host.
apiVersion: 1
datasources:
  - name: Prometheus
    type: prometheus
    access: proxy
    url: http://localhost:9090
    jsonData:
      timeInterval: 5s
"""

PROVIDERS = """\
# Grafana reads this when it starts, and the dashboards of the folder again when they change.
apiVersion: 1
providers:
  - name: stepscope
    folder: stepscope
    type: file
    allowUiUpdates: true
    options:
      path: /etc/grafana/dashboards
"""

PROMETHEUS = """\
# stepscope serves metrics here where a run has the setting exporters.prometheus, such as {port: 9787}.
global:
  scrape_interval: 5s
scrape_configs:
  - job_name: stepscope
    static_configs:
      - targets: [localhost:9787]
"""

COMPOSE = """\
# Start with: docker compose up. Then open http://localhost:3000, user and password: admin.
# Both programs use the network of the host, because stepscope serves metrics on the loopback interface.
services:
  prometheus:
    image: prom/prometheus:v3.5.0
    network_mode: host
    command:
      - --config.file=/etc/prometheus/prometheus.yml
      - --web.listen-address=127.0.0.1:9090
    volumes:
      - ./prometheus.yml:/etc/prometheus/prometheus.yml:ro
  grafana:
    image: grafana/grafana:12.1.1
    network_mode: host
    environment:
      GF_SERVER_HTTP_ADDR: 127.0.0.1
    volumes:
      - ./provisioning:/etc/grafana/provisioning:ro
      - ./dashboards:/etc/grafana/dashboards:ro
"""

SETUP = {
    "compose.yaml": COMPOSE,
    "prometheus.yml": PROMETHEUS,
    "provisioning/dashboards/stepscope.yaml": PROVIDERS,
    "provisioning/datasources/prometheus.yaml": DATASOURCES,
}


def setup_files() -> dict[str, str]:
    """The text of each file, by its path in the folder that `stepscope grafana` writes."""
    dashboards = {f"dashboards/{name}": (FOLDER / name).read_text(encoding="utf-8") for name in DASHBOARDS}
    return {**dashboards, **SETUP}


def drawn(name: str) -> str:
    """A dashboard as the code makes it."""
    return json.dumps(DASHBOARDS[name]().json(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for file_name in DASHBOARDS:
        (FOLDER / file_name).write_text(drawn(file_name), encoding="utf-8")
