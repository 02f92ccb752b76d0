"""Any key, any value and any clock can be recorded."""

from __future__ import annotations

import decimal
import fractions
import json
import math
import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
from stepscope.journal.layout import clean
from tests.journal.writing import Clock, read_all, writer_for

NO_AGENT = {"agent": {"mode": "none"}}
HOSTILE = [
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\u202egnp.exe",
    "\u200b",
    "x" * 10_000,
    "../../etc/passwd",
    "<img src=x onerror=alert(1)>",
    "'; DROP TABLE run; --",
    "\x1b[31mred",
    "ключ",
    "a/b/c",
    "%s%n",
]


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(
            st.text() | st.sampled_from(HOSTILE), st.floats(width=64) | st.integers(-(2**70), 2**70)
        ),
        max_size=8,
    ),
    name=st.text(max_size=50) | st.sampled_from(HOSTILE[1:]),
)
def test_any_key_and_number_comes_back_as_logged(rows: list[dict[str, float]], name: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with stepscope.TrainingMonitor(NO_AGENT, run=name, directory=folder) as monitor:
            for step, row in enumerate(rows):
                monitor.log(row, step=step)
        run = stepscope.open_store(folder).run(monitor.run_id)
        expected: dict[str, list[bytes]] = {}
        for row in rows:
            for key, value in row.items():
                expected.setdefault(clean(key), []).append(bits(float(value)))
        assert {info.key for info in run.keys()} == set(expected)
        for key, values in expected.items():
            series = run.series(key).values
            assert sorted(bits(value) for value in series) == sorted(values)
        assert not list(folder.parent.glob("etc"))
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("key", HOSTILE)
def test_a_hostile_key_is_only_a_name(key: str, folder: Path) -> None:
    with stepscope.TrainingMonitor(NO_AGENT, run=key or "empty", project=key, directory=folder) as monitor:
        monitor.log({key: 1.5})
        monitor.event(key, text=key)
    run = stepscope.open_store(folder).run(monitor.run_id)
    assert run.series(clean(key)).values.tolist() == [1.5]
    assert run.events()[0].kind == json.loads(json.dumps(key)) or "\ud800" in key


class Stubborn:
    def __float__(self) -> float:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("nor this")


NUMBERS = [
    (True, 1.0),
    (2**64, 2.0**64),
    (10**400, math.inf),
    (-(10**400), -math.inf),
    (np.float32(0.1), float(np.float32(0.1))),
    (np.int64(7), 7.0),
    (np.bool_(True), 1.0),
    (np.array(2.5), 2.5),
    (np.array([2.5]), 2.5),
    (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
    (torch.tensor([1.25], requires_grad=True), 1.25),
    (decimal.Decimal("0.5"), 0.5),
    (fractions.Fraction(1, 4), 0.25),
]


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0")
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=lambda one: f"{type(one).__name__} {one}"[:40])
def test_every_kind_of_number_is_taken(value: object, number: float, folder: Path) -> None:
    with stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder) as monitor:
        monitor.log({"value": value, "beside": 1.0})
    run = stepscope.open_store(folder).run("n")
    assert run.series("value").values.tolist() == [number]
    assert run.series("beside").values.tolist() == [1.0]


@pytest.mark.parametrize(
    "value", ["text", b"bytes", object(), Stubborn(), 1j], ids=lambda one: type(one).__name__
)
def test_values_that_are_not_numbers_are_kept_as_text_and_the_rest_of_the_row_as_numbers(
    value: object, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder) as monitor:
        for _ in range(3):
            monitor.log({"odd": value, "none": None, "loss": 0.5})
    run = stepscope.open_store(folder).run("n")
    assert run.series("loss").values.tolist() == [0.5] * 3
    assert [event.fields["key"] for event in run.events("text")] == ["odd"] * 3
    assert [info.key for info in run.keys()] == ["loss"]
    assert caplog.text.count("'odd' is") == 1


def test_nested_metrics_get_names_with_a_slash_and_arrays_are_kept_whole(folder: Path) -> None:
    with stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder) as monitor:
        monitor.log(
            {"train": {"loss": 1.0, "by": {"head": 2}}, "weights": np.arange(6.0).reshape(2, 3)}, step=9
        )
        monitor.log({"weights": torch.ones(4)}, step=10)
    run = stepscope.open_store(folder).run("n")
    assert [info.key for info in run.keys()] == ["train/by/head", "train/loss"]
    (first, second) = run.arrays("weights")
    assert first[0] == 9
    assert (first[1] == np.arange(6.0).reshape(2, 3)).all()
    assert second[1].tolist() == [1.0] * 4


@pytest.mark.parametrize("metrics", [None, 5, "loss", [("loss", 1)], {1.0, 2.0}], ids=repr)
def test_values_that_are_not_a_mapping_are_refused_once_and_training_continues(
    metrics: object, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder) as monitor:
        monitor.log(metrics)
        monitor.log(metrics)
        monitor.log({"loss": 1.0})
    assert caplog.text.count("takes a mapping") == 1
    assert len(stepscope.open_store(folder).run("n").series("loss")) == 1


def test_with_strict_what_cannot_be_kept_raises(folder: Path) -> None:
    monitor = stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder, strict=True)
    monitor.start_monitoring()
    with pytest.raises(stepscope.StepscopeError, match="takes a mapping"):
        monitor.log(5)
    with pytest.raises(stepscope.StepscopeError, match="'odd' is 'text', not a number"):
        monitor.log({"odd": "text"})
    with pytest.raises(stepscope.StepscopeError, match="step is 'three'"):
        monitor.log({"loss": 1.0}, step="three")
    monitor.stop_monitoring()


@pytest.mark.parametrize(
    "step", [3.0, np.int64(3), torch.tensor(3), True, 2**62, -5, 2**64, "x", math.nan, None]
)
def test_any_step_is_kept_or_counted(step: object, folder: Path) -> None:
    with stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder) as monitor:
        monitor.log({"loss": 1.0}, step=step)
        monitor.log({"loss": 2.0})
    values = stepscope.open_store(folder).run("n").series("loss")
    assert values.values.tolist() == [1.0, 2.0]
    if step in (3.0, True, 2**62, -5):
        assert values.steps[0] == int(step)


def test_steps_that_repeat_go_back_or_leave_gaps_are_all_kept_in_order(folder: Path) -> None:
    steps = [0, 1, 1, 5, 3, 3, 100, -7, 2]
    with stepscope.TrainingMonitor(NO_AGENT, run="n", directory=folder) as monitor:
        for number, step in enumerate(steps):
            monitor.log({"loss": float(number)}, step=step)
    series = stepscope.open_store(folder).run("n").series("loss")
    assert series.steps.tolist() == steps
    assert series.values.tolist() == [float(number) for number in range(len(steps))]


def test_the_wall_clock_may_jump_but_recorded_time_does_not(folder: Path) -> None:
    clock = Clock()
    writer = writer_for(folder, clock=clock)
    for step in range(100):
        writer.append_row({"loss": 1.0}, step)
    writer.close(None)
    ((rows,),) = (list(batch.rows) for batch in read_all(folder))
    assert (np.diff(rows.times) == 1000).all()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime; .ci/run installs it")
@pytest.mark.parametrize("jump", ["+1d", "-1d", "-3600"])
def test_a_run_under_a_jumping_clock_has_steps_in_order_and_no_negative_time(
    jump: str, tmp_path: Path, run_script, read
) -> None:
    stamp = tmp_path / "clock"
    stamp.write_text("+0")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    result = run_script(
        """
        import pathlib, sys, time, stepscope
        before = time.time()
        with stepscope.TrainingMonitor(run="jumpy") as monitor:
            for step in range(20):
                if step == 10:
                    pathlib.Path(sys.argv[1]).write_text(sys.argv[2])
                    assert abs(time.time() - before) > 1000
                with monitor.phase("data"):
                    pass
                monitor.log({"loss": 1.0}, step=step)
        """,
        stamp,
        jump,
        environment={
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(stamp),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        },
    )
    assert result.returncode == 0, result.stderr
    run = read("jumpy")
    series = run.series("loss")
    assert series.steps.tolist() == list(range(20))
    assert (np.diff(series.times) >= 0).all()
    assert series.times[-1] - series.times[0] < 100
    assert (run.series("phase/data_seconds").values >= 0).all()
    assert run.status == "finished"
