"""`stepscope watch`: a machine is shown and recorded without any training."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.cli.watch import block
from stepscope.views.machine.machine_now import MachineNow
from tests.devices.scripted_samples import EIGHT, taken


@pytest.mark.slow
def test_each_sample_of_each_device_is_a_json_line_and_the_machine_is_a_run(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert main(["watch", "--json", "--interval", "0.1", "--for", "1.5", "--store", str(folder)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    host = [line["values"] for line in lines if line["sampler"] == "memory" and line.get("device") == ""]
    assert any(values.get("memory/total_bytes", 0) > 0 for values in host)
    times = [line["time"] for line in lines if line["sampler"] == "cpu" and "values" in line]
    assert times == sorted(times)
    assert len(times) > 5

    run = stepscope.open_store(folder).run("watch")
    assert (run.status, run.segments[0].processes[0].role) == ("finished", "machine")
    recorded = run.series("memory/total_bytes")
    assert len(recorded) > 5
    assert set(recorded.values) == {host[-1].get("memory/total_bytes") or recorded.values[0]}
    assert run.keys() == []


@pytest.mark.slow
def test_without_a_gpu_it_says_so_once_and_continues(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert main(["watch", "--json", "--interval", "0.1", "--for", "1", "--store", str(folder)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    said = [line["notice"] for line in lines if "notice" in line and line["sampler"] == "gpu"]
    assert len(said) == 1
    assert "nvidia-ml-py" in said[0]
    assert any(line["sampler"] == "cpu" for line in lines)


@pytest.mark.slow
def test_an_interrupt_ends_it_well(start, folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "stepscope", "watch", "--interval", "0.2", "--store", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    shown = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert shown[0].split() == ["TIME", "CPU", "WAIT", "MEMORY", "READ/s", "WRITE/s", "IN/s", "OUT/s"]
    assert f"Recorded as run watch in {folder}" in said
    assert stepscope.open_store(folder).run("watch").status == "finished"


def test_a_folder_that_cannot_be_written_costs_the_record_and_not_the_view(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert main(["watch", "--interval", "0.1", "--for", "0.5", "--store", str(tmp_path / "taken")]) == 0
    printed = capsys.readouterr()
    assert "Nothing is recorded" in printed.err
    assert "MEMORY" in printed.out


@pytest.mark.parametrize("interval", ["0.01", "601", "soon"])
def test_an_interval_out_of_range_is_refused(interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["watch", "--interval", interval])
    assert left.value.code == 2
    assert f"{interval!r} is not a number of seconds from 0.1 to 600." in capsys.readouterr().err


def test_eight_gpus_are_rows_and_one_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    now = MachineNow()
    now.take(taken(EIGHT))
    lines = list(block(now, None))
    gpus = [line.split() for line in lines if "H200" in line]
    assert [cells[0] for cells in gpus] == [str(index) for index in range(8)]
    assert gpus[5][2] == "0%"
    assert all(cells[2] != "0%" for cells in gpus[:5] + gpus[6:])
    assert [line.split()[0] for line in block(now, [5]) if "H200" in line] == ["5"]


@pytest.mark.parametrize("width", [80, 160])
def test_what_is_drawn_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    now = MachineNow()
    now.take(taken(EIGHT))
    assert all(len(line) <= width for line in block(now, None))


@pytest.mark.parametrize("given", ["-1", "0", "nan", "inf"])
def test_a_length_that_is_none_is_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", f"--for={given}"]) == 2
    assert f"--for is {given}; it must be a number of seconds above 0." in capsys.readouterr().err


def test_without_a_command_the_usage_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert (captured.out, "usage: stepscope" in captured.err) == ("", True)
