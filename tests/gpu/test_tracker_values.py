"""Numbers on a GPU that a script made for another tracker logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope as wandb
from stepscope.reading import Run

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]


def test_logging_numbers_on_a_gpu_waits_for_nothing_until_the_summary_is_read(
    folder: Path, read: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_AGENT__MODE", "none")
    model = torch.nn.Linear(64, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.ones(8, 64, device="cuda")
    run = wandb.init(name="gpu", directory=folder)
    wandb.watch(model)
    losses = []
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            wandb.log({"train": {"loss": loss}, "lr": 0.01}, commit=False)
            wandb.log({"double": 2 * loss})
            losses.append(loss.detach())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.summary["train.loss"] == losses[-1].item()
    assert not isinstance(run.summary["double"], torch.Tensor)
    run.finish()
    stored = read("gpu")
    assert stored.series("train.loss").values.tolist() == [loss.item() for loss in losses]
    assert stored.series("train.loss").steps.tolist() == list(range(20))
    assert stored.series("double").steps.tolist() == list(range(20))
