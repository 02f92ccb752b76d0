"""What replicas of a model record: how they exchange gradients, and how often in a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from stepscope.steps.evidence.training_setup import replicas
from stepscope.steps.ranks.gradients_ready import EXCHANGES, GradientsReady


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class Partial(nn.Module):
    """Two layers, of which only the first is used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 2), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.used(x)


@pytest.mark.usefixtures("group")
def test_the_backend_and_unused_parameters_of_replicas_are_recorded() -> None:
    for model, unused in ((Partial(), 48), (nn.Linear(4, 2), 0)):
        replica = DistributedDataParallel(model, find_unused_parameters=True)
        assert replicas([replica])["replicas"]["backend"] == "gloo"
        for _ in range(3):
            replica(torch.ones(2, 4)).sum().backward()
        assert replicas([replica]) == {"replicas": {"backend": "gloo", "unused_bytes": unused}}


def test_a_model_that_is_not_replicated_records_nothing_about_replicas() -> None:
    assert replicas([nn.Linear(4, 2)]) == {}


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("accumulates", "exchanges"), [(False, 4.0), (True, 1.0)])
def test_exchanges_of_a_step_are_counted(*, accumulates: bool, exchanges: float) -> None:
    replica = DistributedDataParallel(nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2)))
    ready = GradientsReady(replica, SimpleNamespace(left_ns=lambda _: 0, device=None))  # type: ignore[arg-type]
    for _ in range(2):
        ready.attach()
        for number in range(4):
            is_last = number == 3
            with replica.no_sync() if accumulates and not is_last else contextlib.nullcontext():
                replica(torch.ones(2, 4)).sum().backward()
        assert ready.after_step() == {EXCHANGES: exchanges}
        ready.detach()
    replica(torch.ones(2, 4)).sum().backward()
    assert ready.after_step() == {}
