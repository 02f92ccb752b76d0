"""Applications of Hydra that use the config groups, as after `pip install`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hydra", reason="hydra is not installed")
pytestmark = pytest.mark.slow

APP = """
import hydra
from hydra.utils import instantiate
from omegaconf import OmegaConf


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    for name, node in (config.get("callbacks") or {{}}).items():
        callback = instantiate(node)
        print(name, type(callback).__name__, node.get("log_interval"), node.get("enabled"))
    if "stepscope" in config:
        monitor = instantiate(config.stepscope)
        print("monitor", monitor.identity.name, monitor.settings.recorder.enabled)
        print("cpu", monitor.settings.samplers.get("cpu") and monitor.settings.samplers["cpu"].interval_s)


main()
"""


def run_app(folder: Path, config: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Runs an application from another folder than its own."""
    (folder / "app" / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "app" / "conf" / "config.yaml").write_text(config)
    (folder / "app" / "app.py").write_text(APP.replace("{{}}", "{}"))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    command = [sys.executable, str(folder / "app" / "app.py"), "hydra.run.dir=.", *overrides]
    return subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False, timeout=120)


def test_several_callbacks_are_selected_and_overridden_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    done = run_app(
        tmp_path,
        "defaults:\n  - callbacks: []\n  - _self_\n",
        "callbacks=[throughput_monitor,profiler,resource_monitor,stepscope]",
        "callbacks.throughput_monitor.log_interval=5",
        "callbacks.profiler.enabled=true",
        "callbacks.profiler.profile_epochs=[0,3]",
    )
    assert done.stdout.splitlines() == [
        "throughput_monitor ThroughputMonitorCallback 5 True",
        "profiler ProfilerCallback None True",
        "resource_monitor ResourceMonitorCallback 50 True",
        "stepscope StepscopeCallback None None",
    ], done.stderr


def test_the_group_of_monitors_has_four_members_and_checks_types(tmp_path: Path) -> None:
    config = "defaults:\n  - stepscope: default\n  - _self_\n"
    done = run_app(tmp_path, config, "stepscope.run=mine", "stepscope.interval=0.5")
    assert done.stdout.splitlines() == ["monitor mine True", "cpu 0.5"], done.stderr
    assert "True\ncpu 10.0" in run_app(tmp_path, config, "stepscope=minimal").stdout
    assert "True\ncpu 0.5" in run_app(tmp_path, config, "stepscope=full").stdout
    assert "False\ncpu None" in run_app(tmp_path, config, "stepscope=off").stdout
    wrong = run_app(tmp_path, config, "stepscope.interval=often")
    assert wrong.returncode == 1
    assert "often" in wrong.stderr


def test_a_file_of_the_application_comes_first(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    own = tmp_path / "app" / "conf" / "callbacks"
    own.mkdir(parents=True)
    (own / "profiler.yaml").write_text(
        "mine:\n  _target_: stepscope.integrations.lightning.ThroughputMonitorCallback\n  log_interval: 7\n"
    )
    done = run_app(tmp_path, "defaults:\n  - callbacks: [profiler]\n  - _self_\n")
    assert done.stdout == "mine ThroughputMonitorCallback 7 None\n", done.stderr
