"""A small model under a gradient monitor, for tests that watch gradients."""

from __future__ import annotations

import pytest

from stepscope.model_stats.gradient_monitor import GradientMonitor
from stepscope.model_stats.gradient_watch import Pace
from tests.model_stats.recording_sink import RecordedMetrics, always

torch = pytest.importorskip("torch")
nn = torch.nn


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def loss_of(model, x=None):
    return model(torch.randn(4, 8) if x is None else x).square().mean()


def norm_of(parameters) -> float:
    return torch.cat([parameter.grad.reshape(-1) for parameter in parameters]).norm().item()


def watched(taken: RecordedMetrics, model, optimizer=None, draw=always, **options) -> GradientMonitor:
    pace = Pace(budget_ratio=1e9, draw=draw)
    return GradientMonitor(model, optimizer, pace=pace, outlets=taken.sink, **options)
