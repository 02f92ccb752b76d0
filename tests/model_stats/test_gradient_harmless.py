"""Watching gradients changes nothing: not the results, not the graphs, and a failure of ours stays ours."""

from __future__ import annotations

import logging
import random

import pytest

from stepscope.errors import RecorderError
from stepscope.guard import Guard
from stepscope.model_stats.gradient_monitor import GradientMonitor
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.model_stats.random_sampling import RandomSampling
from tests.model_stats.recording_sink import RecordedMetrics, always, never
from tests.model_stats.small_models import loss_of, norm_of, small_model, watched

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def taken() -> RecordedMetrics:
    return RecordedMetrics()


def test_closing_leaves_everything_as_it_was(taken: RecordedMetrics) -> None:
    from torch.optim import optimizer as hooks

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clip = nn.utils.clip_grad._clip_grads_with_norm_
    for passed in (optimizer, None):
        gradients = watched(taken, model, passed)
        assert nn.utils.clip_grad._clip_grads_with_norm_ is not clip
        gradients.close()
        gradients.close()
        assert nn.utils.clip_grad._clip_grads_with_norm_ is clip
        assert not optimizer._optimizer_step_pre_hooks
        assert not optimizer._optimizer_step_post_hooks
        assert not hooks._global_optimizer_pre_hooks
        assert not hooks._global_optimizer_post_hooks


def failing(*, strict: bool) -> MetricSink:
    def record(*_: object) -> None:
        raise ValueError("ours")

    return MetricSink(record_tensor=record, guard=Guard(strict=strict))


def test_a_failure_of_stepscope_is_logged_once_and_never_reaches_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = GradientMonitor(model, optimizer, outlets=failing(strict=False))
    with caplog.at_level(logging.WARNING, logger="stepscope"):
        for _ in range(3):
            loss_of(model).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert [record.message for record in caplog.records] == [
        "The gradient monitor is switched off: ValueError('ours')"
    ]
    gradients.close()


def test_a_strict_monitor_raises_it() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = GradientMonitor(model, optimizer, outlets=failing(strict=True))
    loss_of(model).backward()
    with pytest.raises(RecorderError, match="The gradient monitor is switched off"):
        optimizer.step()
    gradients.close()


def test_the_chances_of_the_training_stay_its_own(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = GradientMonitor(model, optimizer, outlets=taken.sink)
    loss_of(model).backward()
    before = random.getstate(), torch.get_rng_state()
    optimizer.step()
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    gradients.close()


def test_training_is_the_same_with_and_without(taken: RecordedMetrics) -> None:
    results = []
    for draw in (always, never):
        model = small_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        gradients = watched(taken, model, optimizer, draw=draw)
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(model).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        gradients.close()
        results.append(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]))
    assert torch.equal(*results)


def test_costly_samples_are_taken_so_rarely_that_they_keep_to_their_share() -> None:
    chance = RandomSampling(share=0.001)
    assert chance.rate(5e6) == 1.0
    for cost in (1e9, 1e6, 1e6):  # the first one pays for what is done once
        chance.spent(cost)
    assert chance.rate(5e6) == pytest.approx(0.0045), "half a millisecond pays for timing the step"
    chance.spent(1e12)  # the process was stopped for a while
    assert chance.rate(5e6) > 0.002
    assert RandomSampling(share=1.0, every=50).rate(5e6) == 0.02


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("watches", [False, True])
def test_a_compiled_training_step_has_as_many_graphs_as_without(
    watches: bool, taken: RecordedMetrics
) -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer) if watches else None
    compiled = torch.compile(model, backend=counter)
    step = torch.compile(optimizer.step, backend=counter)
    clip = torch.compile(nn.utils.clip_grad_norm_, backend=counter)
    for _ in range(4):
        optimizer.zero_grad(set_to_none=False)
        loss_of(compiled, torch.ones(4, 8)).backward()
        clip(list(model.parameters()), 1.0)
        step()
    if gradients is not None:
        gradients.close()
    assert counter.frame_count == 3


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_gradients_of_a_compiled_model_are_read(taken: RecordedMetrics) -> None:
    torch._dynamo.reset()
    model = torch.compile(small_model(), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    loss_of(model).backward()
    expected = norm_of(model.parameters())
    optimizer.step()
    gradients.close()
    assert taken.of("gradient_norm") == [pytest.approx(expected)]
    assert "gradient_norm/0" in taken.rows[0]


def test_a_model_under_ddp_is_read_by_its_own_names(taken: RecordedMetrics) -> None:
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(small_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gradients = watched(taken, model, optimizer)
        loss_of(model).backward()
        expected = norm_of(model.parameters())
        optimizer.step()
        gradients.close()
        assert taken.of("gradient_norm") == [pytest.approx(expected)]
        assert {"gradient_norm/0", "gradient_norm/2"} <= set(taken.rows[0])
    finally:
        distributed.destroy_process_group()


def test_a_lazy_layer_that_is_never_called_is_left_out(taken: RecordedMetrics) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "unused": nn.LazyLinear(3)})
    optimizer = torch.optim.SGD(model["used"].parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model["used"](torch.ones(6, 4)).square().mean().backward()
        optimizer.step()
    gradients.close()
    assert taken.of("gradient_norm/used")
    assert taken.of("weight_norm/used")
