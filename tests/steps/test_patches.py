"""Functions of PyTorch are patched where each supported version has them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from stepscope.steps.patches import loss_scaler  # noqa: E402


def test_the_loss_scaler_of_older_versions_is_that_of_cuda() -> None:
    older = SimpleNamespace(amp=SimpleNamespace(), cuda=torch.cuda)
    assert issubclass(loss_scaler(older), loss_scaler(torch))
    assert loss_scaler(older) is torch.cuda.amp.GradScaler
