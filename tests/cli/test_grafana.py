"""`stepscope grafana`: the dashboards and what sets Grafana up, as files."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
import yaml

from stepscope.cli import grafana
from stepscope.cli.main import main
from stepscope.errors import StepscopeError
from stepscope.grafana.setup_files import SETUP, setup_files

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "grafana.md").read_text()
COMMAND = re.search(r"\$ stepscope grafana (.*)", PAGE)[1].split()


def written(*words: str) -> int:
    parser = argparse.ArgumentParser()
    grafana.add_arguments(parser)
    return grafana.run(parser.parse_args(words))


def test_the_command_of_the_page_writes_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert written(*COMMAND) == 0
    files = {str(path.relative_to("grafana")): path.read_text() for path in Path("grafana").rglob("*.*")}
    assert files == setup_files()
    assert "Wrote 7 files to grafana" in capsys.readouterr().err


def test_the_page_has_every_file_that_is_written() -> None:
    for name in setup_files():
        shown = "dashboards/*.json" if name.startswith("dashboards/") else name
        assert f"| `{shown}` |" in PAGE
        assert not name.startswith("dashboards/") or f"`{Path(name).name}`" in PAGE


def test_files_that_exist_are_replaced_with_force_only() -> None:
    assert written("--output", "a") == 0
    changed = Path("a/prometheus.yml")
    changed.write_text("mine")
    with pytest.raises(StepscopeError, match=r"exists; pass --force to replace it"):
        written("--output", "a")
    assert changed.read_text() == "mine"
    assert written("--output", "a", "--force") == 0
    assert changed.read_text() == SETUP["prometheus.yml"]


def test_a_folder_that_cannot_be_made_is_an_error_that_says_why() -> None:
    Path("taken").write_text("a file")
    with pytest.raises(StepscopeError, match=r"taken.* cannot be made: "):
        written("--output", "taken")


def test_the_example_has_the_files_that_the_command_writes() -> None:
    example = ROOT / "examples" / "grafana"
    files = {
        str(path.relative_to(example)): path.read_text() for path in example.rglob("*.*") if path.is_file()
    }
    assert files == SETUP


def test_the_files_agree_on_where_the_dashboards_and_prometheus_are() -> None:
    loaded = {name: yaml.safe_load(text) for name, text in SETUP.items()}
    services = loaded["compose.yaml"]["services"]
    (provider,) = loaded["provisioning/dashboards/stepscope.yaml"]["providers"]
    assert f"./dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    (source,) = loaded["provisioning/datasources/prometheus.yaml"]["datasources"]
    assert (
        f"--web.listen-address=127.0.0.1:{source['url'].rpartition(':')[2]}"
        in services["prometheus"]["command"]
    )
    (job,) = loaded["prometheus.yml"]["scrape_configs"]
    (setting,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    port = yaml.safe_load(setting)["exporters"]["prometheus"]["port"]
    assert job["static_configs"] == [{"targets": [f"localhost:{port}"]}]


def test_the_settings_of_the_page_are_valid(tmp_path: Path) -> None:
    (setting,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "stepscope.yaml").write_text(setting)
    assert main(["config", "validate", str(tmp_path / "stepscope.yaml")]) == 0


def test_a_dashboard_that_is_written_is_strict_json(tmp_path: Path) -> None:
    written("--output", str(tmp_path / "ünïcode"))
    for path in (tmp_path / "ünïcode" / "dashboards").iterdir():
        assert json.loads(path.read_text())["id"] is None
