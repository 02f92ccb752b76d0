"""A run is recorded together with its machine, by a real agent, from start to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.devices.gpu import GpuFacts, GpuReading
from stepscope.devices.scripted import h200, idle, to_line, working
from stepscope.reading import Run
from tests.devices.scripted_samples import IDLE

pytestmark = pytest.mark.slow

RECORDING = Path(__file__).parents[1] / "recordings" / "h200_matmul.jsonl"
H200 = "GPU-4e0800b5-0000-0000-0000-000000000000"

TRAIN = """
import json, sys, time, stepscope
config = json.loads(sys.argv[1])
with stepscope.TrainingMonitor(config, run="watched") as monitor:
    for step in range(10_000):
        monitor.log({"loss": 1 / (step + 1)})
        time.sleep(0.01)
        if step == int(sys.argv[2]):
            break
"""

Train = Callable[..., Run]


@pytest.fixture
def train(run_script, folder: Path) -> Train:
    """Trains for some steps of 10 ms with a recording played in place of GPUs; returns the run."""

    def run(recording: Path, steps: int = 300, **samplers: object) -> Run:
        played = {"interval_s": 0.1, "thorough_every_s": 0.5, "played": str(recording)}
        config = {"samplers": {"default": {"interval_s": 0.1}, "gpu": played, **samplers}}
        result = run_script(TRAIN, json.dumps(config), steps)
        assert result.returncode == 0, result.stderr
        return stepscope.open_store(folder).run("watched")

    return run


def write(path: Path, plays: dict[GpuFacts, Callable[[float], GpuReading | None]], seconds: int = 30) -> Path:
    lines = [
        to_line(at / 10, facts, play(at / 10)) for at in range(seconds * 10) for facts, play in plays.items()
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_run_has_the_figures_of_its_gpu_its_host_and_itself_beside_what_it_logged(train: Train) -> None:
    run = train(RECORDING)
    assert [info.key for info in run.keys()] == ["loss"]
    read = {info.key for info in run.machine_keys()}
    assert {
        "gpu/utilization_ratio", "gpu/memory_used_bytes", "gpu/temperature_celsius", "gpu/power_watts",
        "gpu/sm_clock_hertz", "gpu/throttled_power_cap", "gpu/pcie_width", "gpu/energy_joules_total",
        "cpu/utilization_ratio", "memory/used_bytes", "process/rss_bytes", "tree/cpu_ratio",
        "network/received_bytes_per_second",
    } <= read  # fmt: skip
    assert "gpu/fan_ratio" not in read, "an H200 has no fan: absent, not zero"
    power = run.series("gpu/power_watts", device=H200)
    assert len(power) > 5
    first = json.loads(RECORDING.read_text().splitlines()[0])
    assert power.values[0] == first["reading"]["power_watts"]
    (described,) = [event for event in run.events("device") if event.fields["device"] == H200]
    assert (described.fields["name"], described.fields["index"]) == ("NVIDIA H200", 0)
    assert run.series("process/rss_bytes", rank=0, device="").values.min() > 1e6


def test_figures_of_the_machine_are_read_against_training_steps(train: Train) -> None:
    run = train(RECORDING)
    loss, power = run.series("loss"), run.series("gpu/power_watts")
    assert (power.steps[1:] >= power.steps[:-1]).all()
    assert power.steps[-1] > 100
    for step, moment in zip(power.steps.tolist(), power.times.tolist(), strict=True):
        assert loss.times[step] >= moment or step == loss.steps[-1]
        assert step == 0 or loss.times[step - 1] <= moment
    by_step = run.buckets("gpu/power_watts", 4, axis="step")
    assert by_step.count.sum() == len(power)
    assert by_step.starts[-1] + by_step.width > power.steps[-1]
    assert by_step.width < 1000
    assert run.buckets("gpu/power_watts", 4).starts[0] > 1e9


def test_a_gpu_that_falls_off_the_bus_is_reported_and_everything_else_goes_on(
    train: Train, tmp_path: Path
) -> None:
    sound, doomed = h200(0), h200(1)
    falls = working(doomed)
    plays = {sound: working(sound), doomed: lambda at: falls(at) if at < 1 else None}
    run = train(write(tmp_path / "falling.jsonl", plays))
    last = {facts: run.series("gpu/power_watts", device=facts.uuid).times[-1] for facts in plays}
    assert last[sound] - last[doomed] > 0.5
    assert run.series("cpu/utilization_ratio").times[-1] > last[doomed] + 0.5
    texts = [event.fields["text"] for event in run.events("notice") if "GPU 1" in event.fields["text"]]
    assert len(texts) == 1
    assert "GPU is lost" in texts[0]
    assert run.status == "finished"


def test_of_eight_gpus_the_one_that_idles_is_not_hidden_by_the_mean(train: Train, tmp_path: Path) -> None:
    plays = {h200(at): (idle if at == IDLE else working)(h200(at)) for at in range(8)}
    run = train(write(tmp_path / "eight.jsonl", plays, seconds=10), steps=200)
    assert run.series("gpu/least_utilization_ratio").values.max() == 0.0
    assert 0.8 < run.series("gpu/mean_utilization_ratio").values.mean() < 0.9
    assert run.series("gpu/total_power_watts").values.min() > 7 * 400
    busy = {at: run.series("gpu/utilization_ratio", device=h200(at).uuid).values.mean() for at in range(8)}
    assert [at for at, ratio in busy.items() if ratio == 0] == [IDLE]


def test_a_sampler_that_is_switched_off_reads_nothing(train: Train) -> None:
    run = train(RECORDING, steps=100, cpu={"enabled": False})
    read = {info.key.partition("/")[0] for info in run.machine_keys()}
    assert "memory" in read
    assert "cpu/utilization_ratio" not in {info.key for info in run.machine_keys()}


def test_a_recording_that_cannot_be_played_is_named_and_costs_the_gpus_alone(
    train: Train, tmp_path: Path
) -> None:
    run = train(tmp_path / "nowhere.jsonl")
    (notice,) = [
        event.fields["text"] for event in run.events("notice") if "recording" in event.fields["text"]
    ]
    assert "nowhere.jsonl cannot be played: FileNotFoundError" in notice
    assert any(info.key == "memory/used_bytes" for info in run.machine_keys())


def test_many_ranks_are_watched_once_by_one_agent(start, until, folder: Path) -> None:
    played = {"interval_s": 0.1, "played": str(RECORDING)}
    config = {"samplers": {"default": {"interval_s": 0.1}, "gpu": played}}
    launch = {"MASTER_ADDR": "here", "MASTER_PORT": "1", "WORLD_SIZE": "4"}
    ranks = [start(TRAIN, json.dumps(config), 200, environment={**launch, "RANK": str(n)}) for n in range(4)]
    for rank in ranks:
        assert rank.wait(60) == 0
    run = stepscope.open_store(folder).run("watched")
    places = [source for source, keys in run.sources().items() if "gpu/power_watts" in keys]
    assert [(place.rank, place.device) for place in places] == [(None, H200)]
    pauses = run.series("gpu/power_watts").times
    assert len(pauses) < 10 * (pauses[-1] - pauses[0]) + 5
    of_processes = {source.rank for source, keys in run.sources().items() if "process/rss_bytes" in keys}
    assert of_processes == {0, 1, 2, 3}
