"""Tensors on a GPU that are logged together with values of every other kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope import TrainingMonitor

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NO_AGENT = {"agent": {"mode": "none"}}


def test_an_odd_value_beside_a_number_on_the_gpu_costs_only_itself(
    folder: Path, read: Callable[[str], stepscope.reading.Run], caplog: pytest.LogCaptureFixture
) -> None:
    with TrainingMonitor(NO_AGENT, run="a", directory=folder) as monitor:
        for step in range(3):
            loss = torch.tensor(float(step), device="cuda", requires_grad=True)
            monitor.log(
                {
                    "loss": loss,
                    "host": 1.0,
                    "cpu": torch.tensor(2.0),
                    "text": "abc",
                    "vector": torch.arange(4.0, device="cuda"),
                    "large": torch.ones(10_000, device="cuda"),
                    "complex": torch.tensor(1j, device="cuda"),
                }
            )
            monitor.log_training_step(loss=loss, custom_metrics=5, epoch="abc")
        monitor.log_params({"tensor": torch.ones(2, device="cuda"), "lr": 0.1})
    run = read("a")
    assert run.series("loss").values.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert run.series("host").values.tolist() == [1.0] * 3
    assert run.series("cpu").values.tolist() == [2.0] * 3
    assert [array.tolist() for _, array in run.arrays("vector")] == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert [event.fields["key"] for event in run.events("text")] == ["text"] * 3
    assert "'large' is <Tensor of shape (10000,)> on a GPU and was not recorded" in caplog.text
    assert "'complex' is <Tensor of shape ()> on a GPU and was not recorded" in caplog.text
    assert run.params["lr"] == 0.1
