"""Checksums of a replica: after the same updates on all ranks, cheap, and without changing the training."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel

from stepscope.steps.ranks.replica_checksums import MAX_STRIDE, Replica, ReplicaChecksums, replica_of

MS = 1_000_000


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    """A process group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))


class Rank:
    """The training of one rank, on a clock of its own."""

    def __init__(self, replica: Replica, cost_ns: int = 0) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self.events: list[dict[str, Any]] = []
        self.timer, self.ns, self.cost_ns = SimpleNamespace(steps_made=0), MS, cost_ns
        self.observer = ReplicaChecksums(
            torch,
            replica,
            self.timer,  # type: ignore[arg-type]
            self.record,
            lambda _, **fields: self.events.append(fields),
            lambda: self.ns,
        )

    def record(self, keys: Any, values: torch.Tensor, step: int) -> None:
        self.ns += self.cost_ns
        self.rows[step] = dict(zip(keys, values.tolist(), strict=True))

    def train(self, steps: int, first_step: int = 0) -> None:
        for step in range(first_step, first_step + steps):
            self.timer.steps_made += 1
            self.ns += 5 * MS
            self.observer.due -= 1
            if self.observer.due <= 0 and (row := self.observer.after_step(step)):
                self.rows[step].update(row)

    @property
    def updates(self) -> list[int]:
        return [int(row["ranks/updates"]) for row in self.rows.values()]


def replica(of: Any) -> Replica:
    checksums = replica_of(of, torch)
    assert isinstance(checksums, Replica)
    return checksums


def test_the_same_numbers_of_updates_are_read_whatever_the_numbers_of_steps() -> None:
    wrapped = DistributedDataParallel(model())
    rank, resumed = Rank(replica(wrapped)), Rank(replica(wrapped))
    rank.train(100)
    resumed.train(100, first_step=1003)
    assert rank.updates == resumed.updates == [16, 32, 48, 64, 80, 96]
    assert list(rank.rows.values()) == list(resumed.rows.values())


def test_equal_parameters_have_equal_checksums_and_changed_ones_do_not() -> None:
    wrapped = DistributedDataParallel(model())
    rank = Rank(replica(wrapped))
    rank.train(32)
    with torch.no_grad():
        wrapped.module[3].bias *= 1.001
    rank.train(16, first_step=32)
    first, second, third = rank.rows.values()
    assert first | {"ranks/updates": 32} == second
    assert third["replica_checksum/3.bias"] != second["replica_checksum/3.bias"]
    assert third["replica_checksum/0.weight"] == second["replica_checksum/0.weight"]


def test_readings_are_rarer_where_they_cost_more_and_still_have_updates_in_common() -> None:
    wrapped = DistributedDataParallel(model())
    cheap, expensive, slowest = (Rank(replica(wrapped), cost) for cost in (1_000, MS // 10, 50 * MS))
    for rank in (cheap, expensive, slowest):
        rank.train(2048)
    assert cheap.updates[4:7] == [80, 96, 112]
    assert expensive.updates[4:7] == [128, 256, 384]
    assert slowest.updates[4:6] == [MAX_STRIDE, 2 * MAX_STRIDE]
    assert set(slowest.updates) < set(expensive.updates) < set(cheap.updates)


def test_a_module_is_compared_if_a_wrapper_is_around_it() -> None:
    inner = model()
    wrapped = DistributedDataParallel(inner)
    rank = Rank(replica(inner))
    rank.train(16)
    assert rank.events == [
        {
            "parameters": ["0.weight", "2.bias", "3.bias"],
            "wrapper_is_watched": False,
            "wrapper_was_called": False,
        }
    ]
    assert replica(wrapped).is_watched


def test_a_wrapper_that_is_called_is_recorded_as_such() -> None:
    wrapped = DistributedDataParallel(model())
    for _ in range(3):
        wrapped(torch.ones(2, 4)).sum().backward()
    rank = Rank(replica(wrapped))
    rank.train(16)
    assert rank.events[0]["wrapper_was_called"] is True


def test_models_that_may_differ_between_ranks_have_a_reason() -> None:
    assert "no DistributedDataParallel" in str(replica_of(model(), torch))
    sharded = type("FullyShardedDataParallel", (nn.Sequential,), {})(nn.Linear(2, 2))
    assert "different parts" in str(replica_of(sharded, torch))
    local = DistributedDataParallel(model())
    local.register_comm_hook(PostLocalSGDState(None, None, 100), post_localSGD_hook)
    assert "only now and then" in str(replica_of(local, torch))


def test_parameters_that_are_frozen_or_left_out_are_not_compared() -> None:
    inner = model()
    inner[3].requires_grad_(requires_grad=False)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ["0.weight"])
    assert list(replica(DistributedDataParallel(inner)).parameters) == ["0.bias", "2.weight", "2.bias"]


def test_a_model_that_is_gone_is_not_read_again() -> None:
    wrapped = DistributedDataParallel(model())
    rank = Rank(replica(wrapped))
    rank.train(16)
    del wrapped
    rank.train(100, first_step=16)
    assert rank.updates == [16]


def test_reading_changes_no_parameter_no_gradient_and_no_random_numbers() -> None:
    wrapped = DistributedDataParallel(model())
    wrapped(torch.ones(2, 4)).sum().backward()
    before = [tensor.clone() for parameter in wrapped.parameters() for tensor in (parameter, parameter.grad)]
    versions = [parameter._version for parameter in wrapped.parameters()]
    state = torch.get_rng_state()
    Rank(replica(wrapped)).train(64)
    after = [tensor for parameter in wrapped.parameters() for tensor in (parameter, parameter.grad)]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert versions == [parameter._version for parameter in wrapped.parameters()]
    assert torch.equal(state, torch.get_rng_state())
