from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.errors import StepscopeError
from stepscope.integrations.lightning import compare_with_baseline, write_baseline
from stepscope.reading import Run


def recorded(folder: Path, name: str, step_s: float) -> Run:
    with stepscope.TrainingMonitor(run=name, directory=folder) as monitor:
        for step in range(50):
            monitor.log({"loss": 2.0 - step / 50, "step_seconds": step_s}, step)
    return stepscope.open_store(folder).run(name)


def test_a_later_run_is_compared_with_the_figures_in_the_file(
    folder: Path, tmp_path: Path, without_agent: None
) -> None:
    path = tmp_path / "kept" / "baseline.json"
    write_baseline(recorded(folder, "first", 0.1), path)
    figures = json.loads(path.read_text())["figures"]
    assert figures["step_seconds_median"] == 0.1
    assert figures["loss_last"] == pytest.approx(1.02)
    text = compare_with_baseline(recorded(folder, "second", 0.15), path)
    assert text.startswith(f"second compared with the baseline first ({path}):")
    line = next(line for line in text.splitlines() if "Step time, p50" in line)
    assert "100 ms" in line
    assert "150 ms" in line
    assert "+50% worse" in line
    assert "no change" in next(line for line in text.splitlines() if "Loss, last" in line)


@pytest.mark.parametrize("content", ["", "[]", '{"format": 7}', '{"format": 1, "run": "a"}'])
def test_a_file_that_is_not_a_baseline_is_refused(
    content: str, folder: Path, tmp_path: Path, without_agent: None
) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(content)
    with pytest.raises(StepscopeError, match=r"baseline\.json"):
        compare_with_baseline(recorded(folder, "run", 0.1), path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_callback_writes_the_baseline_first_and_compares_later(
    folder: Path, tmp_path: Path, capsys, without_agent: None, read: Callable[[str], Run]
) -> None:
    from stepscope.integrations.lightning import StepscopeCallback
    from tests.integrations.lightning.fits import loader, module, trainer

    path = tmp_path / "baseline.json"
    for name in ("one", "two"):
        callback = StepscopeCallback(run=name, directory=folder, baseline=path)
        trainer(callback).fit(module(), loader())
    printed = capsys.readouterr().out
    assert f"The figures of one are now the baseline {path}" in printed
    assert "two compared with the baseline one" in printed
    assert json.loads(path.read_text())["run"] == "one"
