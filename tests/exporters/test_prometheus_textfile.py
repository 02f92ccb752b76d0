"""Where no port can be scraped, figures of live runs are in a file for node_exporter."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.errors import ConfigError
from stepscope.exporters.base import Unreachable
from stepscope.exporters.prometheus_textfile import PrometheusTextfile
from tests.prometheus.made import process, rows, value_of


def test_the_file_is_replaced_at_an_interval_and_at_the_end_of_a_rank(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "stepscope.prom"
    feed = PrometheusTextfile("stepscope.prom", _directory=tmp_path, _now=lambda: now)
    feed.begin(process())
    feed.take(rows({"loss": [0.5]}))
    assert value_of(path.read_text(), "training_loss", rank="0") == 0.5
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    now = 14.0
    feed.take(rows({"loss": [0.4]}, step=1))
    assert value_of(path.read_text(), "training_loss", rank="0") == 0.5
    feed.finish("mnist-0badcafe", "s1", 0)
    assert value_of(path.read_text(), "training_loss", rank="0") == 0.4
    assert [file.name for file in tmp_path.iterdir()] == ["stepscope.prom"]
    feed.close()
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_named_and_its_rows_count_once(tmp_path: Path) -> None:
    feed = PrometheusTextfile(str(tmp_path / "folder" / "x.prom"))
    feed.begin(process())
    steps = rows({"step_seconds": [0.5]})
    for _ in range(3):
        with pytest.raises(Unreachable, match=r"x\.prom cannot be written: No such file or directory\."):
            feed.take(steps)
    (tmp_path / "folder").mkdir()
    feed.take(steps)
    text = (tmp_path / "folder" / "x.prom").read_text()
    assert value_of(text, "training_step_duration_seconds_count", rank="0") == 1.0
    feed.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "x.txt"}, r"prometheus_textfile\.path is 'x\.txt'; it must end with \.prom"),
        ({"path": "x.prom", "interval_s": 0}, r"interval_s is 0; it must be from 1 to 3600 seconds"),
        ({"path": "x.prom", "names": "all"}, r"prometheus_textfile\.names is 'all'; it must be one of"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_right(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrometheusTextfile(**options)


@pytest.mark.slow
def test_the_settings_of_the_page_write_the_file_of_a_live_run(
    folder: Path, tmp_path: Path, until: Callable[..., None]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "prometheus.md").read_text()
    place = "/var/lib/node_exporter/textfile/stepscope.prom"
    [line] = [line for line in page.splitlines() if place in line and "path:" in line]
    path = tmp_path / "stepscope.prom"
    settings = tmp_path / "stepscope.yaml"
    settings.write_text("exporters:\n" + line.replace(place, str(path)) + "\n")
    with stepscope.TrainingMonitor(settings, run="batch", directory=folder) as monitor:
        monitor.log_training_step(loss=0.25)
        until(lambda: path.exists() and "training_loss" in path.read_text())
        assert value_of(path.read_text(), "training_loss", run="batch", rank="0") == 0.25
    until(lambda: not path.exists())
