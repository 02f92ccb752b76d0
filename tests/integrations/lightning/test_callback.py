from __future__ import annotations

import contextlib
import copy
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.errors import ConfigError
from stepscope.integrations.lightning import StepscopeCallback
from stepscope.reading import Run
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.wall_time import wall_time_of
from tests.integrations.lightning.fits import loader, module, package, torch, trainer, weights_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

STEPS = 16
"""Batches of 4 in two passes over 32 samples."""


@pytest.fixture(autouse=True)
def no_agent(without_agent: None) -> None:
    """The tests read the journals themselves."""


@pytest.fixture
def callback(folder: Path) -> StepscopeCallback:
    return StepscopeCallback(run="fit", directory=folder, config={"recorder": {"max_overhead": 0.5}})


def explained(run: Run) -> float:
    spent = wall_time_of(run, SeriesSummaries(run.summaries()), time.time_ns())
    assert spent is not None
    return 1 - sum(part.share for part in spent.parts if part.name == "unaccounted")


def automatic(_: Any) -> dict[str, Any]:
    return {}


def manual(_: Any) -> dict[str, Any]:
    def training_step(self, batch, _):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.loss_of(batch)
        self.manual_backward(loss)
        optimizer.step()
        self.losses.append(float(loss.detach()))
        return loss

    return {"training_step": training_step, "automatic_optimization": False}


def without_returned_loss(_: Any) -> dict[str, Any]:
    def training_step(self, batch, _):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.loss_of(batch)
        self.manual_backward(loss)
        optimizer.step()
        self.losses.append(float(loss.detach()))

    return {"training_step": training_step, "automatic_optimization": False}


def two_optimizers(_: Any) -> dict[str, Any]:
    def training_step(self, batch, index):
        rare, usual = self.optimizers()
        loss = self.loss_of(batch)
        for optimizer in (rare, usual):
            optimizer.zero_grad()
        self.manual_backward(loss)
        usual.step()
        if index % 4 == 0:
            rare.step()
        self.losses.append(float(loss.detach()))
        return {"loss": loss}

    def configure_optimizers(self):
        weight, bias = self.parameters()
        return [torch.optim.SGD([weight], lr=0.1), torch.optim.SGD([bias], lr=0.1)][::-1]

    return {
        "training_step": training_step,
        "configure_optimizers": configure_optimizers,
        "automatic_optimization": False,
    }


def scheduled(_: Any) -> dict[str, Any]:
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        return [optimizer], [{"scheduler": rate, "interval": "step"}]

    return {"configure_optimizers": configure_optimizers}


KINDS: list[Callable[[Any], dict[str, Any]]] = [
    automatic,
    manual,
    without_returned_loss,
    two_optimizers,
    scheduled,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_step_is_counted_once_and_the_training_is_the_same_without_the_callback(
    kind: Callable[[Any], dict[str, Any]],
    callback: StepscopeCallback,
    read: Callable[[str], Run],
    caplog: pytest.LogCaptureFixture,
) -> None:
    bare, watched = module(**kind(None)), module(**kind(None))
    trainer().fit(bare, loader(), loader(16))
    trainer(callback).fit(watched, loader(), loader(16))
    assert watched.losses == bare.losses
    assert weights_of(watched) == weights_of(bare)
    run = read("fit")
    assert run.status == "finished"
    losses = run.series("loss")
    assert losses.steps.tolist() == list(range(STEPS))
    assert losses.values.tolist() == bare.losses
    assert run.series("step_seconds").steps.tolist() == list(range(STEPS))
    assert run.series("epoch").values.tolist() == [0] * 8 + [1] * 8
    assert [record.message for record in caplog.records if record.name.startswith("stepscope")] == []
    assert explained(run) > 0.9


def test_metrics_have_lightnings_names_and_steps(callback: StepscopeCallback, read) -> None:
    model = module()
    trainer(callback, log_every_n_steps=1).fit(model, loader(), loader(16))
    run = read("fit")
    assert run.series("train/loss_step").values.tolist() == pytest.approx(model.losses)
    assert run.series("train/loss_step").steps.tolist() == list(range(STEPS))
    assert run.series("train/loss_epoch").steps.tolist() == [7, 15]
    assert run.series("val/loss").steps.tolist() == [7, 15]
    assert len(run.series("gap/eval_seconds")) == 2


def test_hyper_parameters_and_trainer_settings_are_recorded(callback: StepscopeCallback, read) -> None:
    trainer(callback, accumulate_grad_batches=2).fit(module(), loader())
    params = read("fit").params
    assert params["lr"] == 0.1
    assert params["module"] == "Regression"
    assert params["trainer"]["accumulate_grad_batches"] == 2
    assert params["trainer"]["max_epochs"] == 2
    (set_up,) = read("fit").events("loader")
    assert (set_up.fields["num_workers"], set_up.fields["batch_size"]) == (0, 4)


def test_accumulated_batches_are_one_step_with_their_mean_loss(callback: StepscopeCallback, read) -> None:
    model = module()
    trainer(callback, accumulate_grad_batches=3).fit(model, loader())
    run = read("fit")
    parts = [model.losses[first : min(first + 3, end)] for end in (8, 16) for first in range(end - 8, end, 3)]
    assert run.series("loss").values.tolist() == pytest.approx([sum(part) / len(part) for part in parts])
    assert run.series("step_seconds").steps.tolist() == list(range(6))


def test_batches_that_a_module_accumulates_itself_are_one_step_with_their_mean_loss(
    callback: StepscopeCallback, read
) -> None:
    def training_step(self, batch, index):
        loss = self.loss_of(batch)
        self.manual_backward(loss / 2)
        self.losses.append(float(loss.detach()))
        if index % 2:
            self.optimizers().step()
            self.optimizers().zero_grad()

    fitted = module(training_step=training_step, automatic_optimization=False)
    trainer(callback).fit(fitted, loader())
    means = [sum(fitted.losses[place : place + 2]) / 2 for place in range(0, len(fitted.losses), 2)]
    losses = read("fit").series("loss")
    assert losses.steps.tolist() == list(range(len(means)))
    assert losses.values.tolist() == pytest.approx(means)


def test_the_learning_rate_is_the_one_the_step_used(callback: StepscopeCallback, read) -> None:
    trainer(callback, max_epochs=1).fit(module(**scheduled(None)), loader())
    rates = read("fit").series("learning_rate").values.tolist()
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125])


def test_a_second_fit_and_a_test_are_segments_of_the_same_run(callback: StepscopeCallback, read) -> None:
    model = module()
    trainer(callback).fit(model, loader())
    second = trainer(callback)
    second.fit(model, loader())
    second.test(model, loader(16), verbose=False)
    run = read("fit")
    assert [segment.status for segment in run.segments] == ["finished"] * 3
    assert run.series("step_seconds").steps.tolist() == list(range(2 * STEPS))
    assert run.series("test/loss").steps.tolist() == [2 * STEPS - 1]
    assert [event.fields["stage"] for event in run.events("evaluation")] == ["test"]
    assert len(stepscope.open_store(callback.monitor.directory).runs()) == 1


def test_a_fit_from_a_checkpoint_continues_the_run_at_its_step(folder: Path, tmp_path: Path, read) -> None:
    first = trainer(StepscopeCallback(run="fit", directory=folder))
    first.fit(module(), loader())
    first.save_checkpoint(tmp_path / "after.ckpt")
    second = trainer(StepscopeCallback(run="fit", directory=folder), max_epochs=3)
    second.fit(module(), loader(), ckpt_path=tmp_path / "after.ckpt")
    run = read("fit")
    assert run.series("loss").steps.tolist() == list(range(24))
    assert len(run.segments) == 2
    assert len(stepscope.open_store(folder).runs()) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("the data are gone"), "ValueError: the data are gone"),
        (KeyboardInterrupt(), "interrupted by SIGINT"),
    ],
)
def test_an_exception_is_the_status_of_the_run(
    error: BaseException, reason: str, callback: StepscopeCallback, read
) -> None:
    def training_step(self, batch, index):
        if index == 5:
            raise error
        return self.loss_of(batch)

    with contextlib.suppress(ValueError, SystemExit):  # older versions end an interrupted fit without one
        trainer(callback).fit(module(training_step=training_step), loader())
    run = read("fit")
    assert (run.status, run.reason) == ("failed", reason)
    assert run.series("loss").steps.tolist() == list(range(5))


def test_a_fit_that_failed_is_followed_by_another_segment(callback: StepscopeCallback, read) -> None:
    def training_step(self, batch, index):
        raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        trainer(callback).fit(module(training_step=training_step), loader())
    trainer(callback).fit(module(), loader())
    run = read("fit")
    assert [segment.status for segment in run.segments] == ["failed", "finished"]
    assert len(run.series("loss")) == STEPS


def test_a_monitor_that_already_records_stays_open(folder: Path, read) -> None:
    with stepscope.TrainingMonitor(run="own", directory=folder) as monitor:
        trainer(StepscopeCallback(monitor)).fit(module(), loader())
        assert monitor.is_recording
        monitor.log({"after": 1.0})
    run = read("own")
    assert len(run.segments) == 1
    assert run.series("after").steps.tolist() == [STEPS]
    assert run.series("step_seconds").steps.tolist() == list(range(STEPS))


def test_of_two_callbacks_one_records(folder: Path) -> None:
    callbacks = [StepscopeCallback(run=name, directory=folder) for name in ("one", "two")]
    trainer(*callbacks).fit(module(), loader())
    assert [run.name for run in stepscope.open_store(folder).runs()] == ["one"]


def test_validation_within_an_epoch_is_not_part_of_a_step(callback: StepscopeCallback, read) -> None:
    def validation_step(self, batch, index):
        time.sleep(0.05)

    trainer(callback, val_check_interval=2, num_sanity_val_steps=1).fit(
        module(validation_step=validation_step), loader(), loader(8)
    )
    run = read("fit")
    assert len(run.series("gap/eval_seconds")) == 8
    assert run.series("gap/eval_seconds").values.min() > 0.09
    assert run.series("step_seconds").values[2::2].min() < 0.09  # steps that follow a validation
    assert run.series("step_seconds").steps.tolist() == list(range(STEPS))


def test_batches_of_any_iterable_have_a_wait(callback: StepscopeCallback, read) -> None:
    class Slow:
        def __iter__(self):
            for batch in loader():
                time.sleep(0.02)
                yield batch

    trainer(callback, max_epochs=1).fit(module(), Slow())
    waits = read("fit").series("phase/data_seconds")
    assert waits.steps.tolist() == list(range(8))
    assert sorted(waits.values)[1] > 0.018  # Lightning fetches one batch ahead, to know which is the last


def test_checkpoints_are_events_and_have_their_time(folder: Path, tmp_path: Path, read) -> None:
    callback = StepscopeCallback(run="fit", directory=folder, config={"recorder": {"max_overhead": 0.5}})
    trainer(callback, enable_checkpointing=True, default_root_dir=tmp_path).fit(module(), loader(), loader(8))
    run = read("fit")
    assert [event.fields["epoch"] for event in run.events("checkpoint")] == [0, 1]
    assert run.series("phase/checkpoint_seconds").values.max() > 0


def test_an_iterable_without_length_and_max_steps_end_the_run(callback: StepscopeCallback, read) -> None:
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                yield torch.ones(4), torch.ones(1)

    data = torch.utils.data.DataLoader(Endless(), batch_size=2)
    trainer(callback, max_epochs=-1, max_steps=12).fit(module(), data)
    run = read("fit")
    assert run.status == "finished"
    assert run.series("step_seconds").steps.tolist() == list(range(12))


def test_it_is_a_callback_of_either_package(folder: Path, read) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        pl = package(name)
        run = name.partition(".")[0]
        callback = StepscopeCallback(run=run, directory=folder)
        assert isinstance(callback, pl.Callback)
        options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 1}
        options |= {"enable_checkpointing": False, "enable_model_summary": False}
        pl.Trainer(callbacks=callback, **options).fit(module(pl), loader())  # not in a list
        assert len(read(run).series("step_seconds")) == 8


def test_it_can_be_copied_and_pickled(folder: Path) -> None:
    class Mine(StepscopeCallback):
        pass

    callback = StepscopeCallback(run="fit", directory=folder)
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert type(other) is type(callback)
        assert other.state_key == callback.state_key == "StepscopeCallback"
    assert isinstance(copy.copy(Mine(run="fit", directory=folder)), Mine)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"monitor": 3}, "monitor is 3; it must be a TrainingMonitor"),
        ({"run": 3}, "run is 3; it must be text"),
        ({"resume": True}, "resume is true, but run is not set"),
        ({"config": {"nonsense": 1}}, "nonsense"),
        ({"baseline": 5}, "baseline is 5; it must be the path of a file"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        StepscopeCallback(**options)


def test_switched_off_it_records_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    trainer(StepscopeCallback(run="fit", directory=folder)).fit(module(), loader())
    assert not folder.exists()
