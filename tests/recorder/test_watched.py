"""`watch` looks inside the model too, and what it finds is in the store, in the row of its own step."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.model_stats.histograms import Histogram

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")
nn = torch.nn


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def norm(model) -> float:
    return float(torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]).norm())


def train(folder: Path, steps: int, model=None, **looks) -> tuple[stepscope.reading.Run, list[float]]:
    """Trains under watch; gives the run and the norm of the gradients of each step."""
    model = model or small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with stepscope.TrainingMonitor(run="inside", directory=folder) as monitor:
        monitor.watch(model, optimizer, **looks)
        for x in monitor.batches([torch.randn(4, 8) for _ in range(steps)]):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            norms.append(norm(model))
            optimizer.step()
    return stepscope.open_store(folder).run("inside"), norms


def keys_of(run: stepscope.reading.Run) -> set[str]:
    return {info.key for info in run.keys()}


def test_gradient_norms_of_some_steps_are_recorded_unasked_with_the_step_they_are_of(folder: Path) -> None:
    run, norms = train(folder, 200)
    points = run.series("gradient_norm")
    assert 2 <= len(points) <= 200
    assert points.values == pytest.approx([norms[step] for step in points.steps], rel=1e-6)
    assert {"gradient_norm/0", "gradient_norm/2"} <= keys_of(run)


def test_without_gradients_none_is_recorded(folder: Path) -> None:
    run, _ = train(folder, 5, gradients=False)
    assert len(run.series("step_seconds")) == 5
    assert not [key for key in keys_of(run) if key.startswith(("gradient", "update", "weight"))]


def test_histograms_that_are_asked_for_are_kept_as_arrays(folder: Path) -> None:
    run, _ = train(folder, 3, histograms=1)
    [(first, array), *others] = run.arrays("histogram/gradient/0")
    assert [first, *(step for step, _ in others)] == [0, 1, 2]
    assert Histogram.read(array.tolist()).elements == 8 * 16 + 16


def test_activations_that_are_asked_for_are_recorded(folder: Path) -> None:
    run, _ = train(folder, 30, activations=1)
    dead = run.series("activation_dead_ratio/1").values
    assert len(dead) >= 5
    assert ((dead >= 0) & (dead <= 1)).all()


@pytest.mark.slow
def test_attention_that_is_asked_for_is_recorded_by_layer_and_by_head(folder: Path) -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            tokens = x.unsqueeze(1).expand(-1, 5, -1)
            return self.attention(tokens, tokens, tokens)[0]

    run, _ = train(folder, 30, Attending(), attention=1)
    # All five tokens are the same, so each head looks at all of them alike.
    assert run.series("attention_entropy/attention").values == pytest.approx(np.log(5), rel=1e-4)
    [(_, heads), *_] = run.arrays("attention_heads/attention")
    assert np.asarray(heads).shape == (2, 3)


def test_the_size_of_batches_is_recorded(folder: Path) -> None:
    run, _ = train(folder, 3)
    assert set(run.series("batch/samples").values) == {4.0}


def test_the_last_step_of_a_pass_that_is_left_early_is_counted(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stepscope.TrainingMonitor(run="left", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for _ in range(2):
            for number, x in enumerate(monitor.batches([torch.randn(4, 8) for _ in range(9)])):
                model(x).square().mean().backward()
                optimizer.step()
                if number == 2:
                    break
    run = stepscope.open_store(folder).run("left")
    assert list(run.series("step_seconds").steps) == [0, 1, 2, 3, 4, 5]


def test_a_step_that_failed_is_not_counted(folder: Path) -> None:
    model = small_model()

    def train_until_it_fails() -> None:
        with stepscope.TrainingMonitor(run="failing", directory=folder, strict=True) as monitor:
            monitor.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
            for x in monitor.batches([torch.randn(4, 8)]):
                model(x).square().mean().backward()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_until_it_fails()
    run = stepscope.open_store(folder).run("failing")
    assert run.status == "failed"
    assert "step_seconds" not in keys_of(run)


def test_wrapped_batches_have_what_their_loader_has() -> None:
    loader = torch.utils.data.DataLoader([1, 2, 3], batch_size=2)
    batches = stepscope.TrainingMonitor(run="never").batches(loader)
    assert batches.dataset == [1, 2, 3]
    assert len(batches) == 2
    assert not hasattr(batches, "set_epoch")


def test_a_step_that_a_loss_scaler_leaves_out_is_a_step_and_is_marked(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    batches = [torch.randn(4, 8) for _ in range(6)]
    batches[3][:] = torch.inf
    with stepscope.TrainingMonitor(run="scaled", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for x in monitor.batches(batches):
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    run = stepscope.open_store(folder).run("scaled")
    assert list(run.series("step_seconds").steps) == [0, 1, 2, 3, 4, 5]
    assert "micro_steps" not in keys_of(run)
    assert list(run.series("optimizer_skipped").steps) == [3]


def test_a_loss_scaler_in_a_loop_without_batches_ends_each_step_once(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with stepscope.TrainingMonitor(run="scaled", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for step in range(6):
            x = torch.full((4, 8), torch.inf if step == 3 else 1.0)
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            monitor.log({"loss": 1.0})
    run = stepscope.open_store(folder).run("scaled")
    assert list(run.series("step_seconds").steps) == [0, 1, 2, 3, 4, 5]


def test_phases_of_steps_that_end_close_together_all_have_their_own_time(folder: Path) -> None:
    run, _ = train(folder, 200)
    points = run.series("step_seconds")
    assert list(points.steps) == list(range(200))
    gaps = np.diff(points.times)
    assert (gaps > 0).all()
    assert gaps == pytest.approx(points.values[1:], abs=5e-6)


def test_a_child_does_not_write_what_its_parent_has_yet_to_write(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stepscope.TrainingMonitor(run="forked", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for step, x in enumerate(monitor.batches([torch.randn(4, 8)] * 6)):
            model(x).square().mean().backward()
            optimizer.step()
            if step == 3 and not (child := os.fork()):
                monitor._watched.step_phases.close()
                os._exit(0)
        os.waitpid(child, 0)
    assert len(stepscope.open_store(folder).run("forked").series("step_seconds")) == 6


OUT_OF_MEMORY = """
import sys, torch, stepscope
model = torch.nn.Linear(8, 2)
monitor = stepscope.TrainingMonitor(run="starved", directory=sys.argv[1])
monitor.start_monitoring()
monitor.watch(model)
for x in monitor.batches([torch.randn(4, 8)] * 3):
    model(x).sum().backward()
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""


@pytest.mark.slow
def test_an_uncaught_out_of_memory_error_is_recorded(folder: Path, run_script) -> None:
    ended = run_script(OUT_OF_MEMORY, folder)
    assert ended.returncode == 1
    assert "OutOfMemoryError" in ended.stderr
    run = stepscope.open_store(folder).run("starved")
    assert run.status == "failed"
    [event] = run.events("out_of_memory")
    assert event.fields["asked_bytes"] == 2 << 30


def test_an_optimizer_that_accelerate_has_wrapped_is_watched(folder: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared = accelerate.Accelerator(cpu=True).prepare(model, optimizer)
    with stepscope.TrainingMonitor(run="wrapped", directory=folder) as monitor:
        monitor.watch(*prepared)
        for x in monitor.batches([torch.randn(4, 8)] * 5):
            prepared[0](x).square().mean().backward()
            prepared[1].step()
    run = stepscope.open_store(folder).run("wrapped")
    assert run.series("step_seconds").steps.tolist() == list(range(5))
    assert run.series("phase/optimizer_seconds").values.min() > 0


def test_the_last_step_of_a_loop_that_asks_for_its_batches_is_counted(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stepscope.TrainingMonitor(run="asked", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        batches = iter(monitor.batches([torch.randn(4, 8)] * 100))
        for _ in range(20):
            model(next(batches)).square().mean().backward()
            optimizer.step()
    run = stepscope.open_store(folder).run("asked")
    assert run.series("step_seconds").steps.tolist() == list(range(20))


def test_the_wait_for_data_is_left_out_where_it_is_not_known(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"recorder": {"max_overhead": 0.0001}}
    with stepscope.TrainingMonitor(settings, run="unwrapped", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for x in torch.utils.data.DataLoader(torch.randn(400, 8), batch_size=4):
            model(x).square().mean().backward()
            optimizer.step()
            monitor.log({"loss": 1.0})
    run = stepscope.open_store(folder).run("unwrapped")
    timed = run.series("phase/sampled_ratio").steps.tolist()
    assert len(run.series("step_seconds")) == 100 > len(timed)
    assert run.series("phase/data_seconds").steps.tolist() == timed
    assert run.series("phase/data_seconds").values.min() > 0


def test_it_does_not_matter_whether_batches_are_wrapped_before_the_model_is_watched(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stepscope.TrainingMonitor(run="early", directory=folder) as monitor:
        batches = monitor.batches([torch.randn(4, 8)] * 8)
        monitor.watch(model, optimizer)
        for number, x in enumerate(batches):
            model(x).square().mean().backward()
            if number % 2:
                optimizer.step()
    run = stepscope.open_store(folder).run("early")
    assert run.series("step_seconds").steps.tolist() == list(range(4))
    assert set(run.series("micro_steps").values) == {2.0}


def test_a_watch_that_ends_within_an_evaluation_leaves_nothing_behind(folder: Path) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [torch.randn(4, 8)] * 6
    with stepscope.TrainingMonitor(run="interrupted", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        model.eval()
        evaluated = iter(monitor.batches(data))
        for _ in range(4):
            with torch.no_grad():
                model(next(evaluated))
        monitor.unwatch()
        del evaluated
        assert "__call__" not in vars(type(model))
        assert not optimizer._optimizer_step_pre_hooks
        assert list(monitor.batches(data)) == data
    run = stepscope.open_store(folder).run("interrupted")
    assert run.series("phase/eval_seconds").values.min() > 0
    assert len(run.series("step_seconds")) == len(data), "each batch is a step again"


@pytest.mark.slow
@pytest.mark.parametrize("is_named", [True, False], ids=["named optimizer", "any optimizer"])
@pytest.mark.parametrize(
    "options", [{}, {"histograms": 1, "activations": 1, "attention": 1}], ids=["gradients", "everything"]
)
def test_models_and_optimizers_that_a_training_deletes_are_freed(
    folder: Path, options, is_named: bool
) -> None:
    def train_one(monitor: stepscope.TrainingMonitor) -> list[weakref.ref]:
        model = small_model()
        optimizer = torch.optim.Adam(model.parameters())
        monitor.watch(model, optimizer if is_named else None, **options)
        for _ in range(25):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return [weakref.ref(part) for part in (model, optimizer, *model.parameters())]

    with stepscope.TrainingMonitor(run="two", directory=folder) as monitor:
        parts = [*train_one(monitor), *train_one(monitor)]
        gc.collect()
        assert [part() for part in parts if part() is not None] == []
    assert len(stepscope.open_store(folder).run("two").series("step_seconds")) == 50


def test_an_end_that_is_interrupted_can_be_repeated(folder: Path) -> None:
    class Handle:
        is_interrupted = False

        def remove(self) -> None:
            if Handle.is_interrupted:
                Handle.is_interrupted = False
                raise KeyboardInterrupt

    class Optimizer:
        def register_step_post_hook(self, hook) -> Handle:
            return Handle()

        register_step_pre_hook = register_step_post_hook

    monitor = stepscope.TrainingMonitor(run="interrupted", directory=folder)
    optimizer = Optimizer()
    monitor.watch(small_model(), optimizer)
    monitor.log_training_step(loss=0.5)
    Handle.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        monitor.stop_monitoring()
    assert monitor.is_recording
    monitor.stop_monitoring()
    assert stepscope.open_store(folder).run("interrupted").status == "finished"
