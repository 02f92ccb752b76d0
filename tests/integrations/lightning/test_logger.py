from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import pytest

import stepscope
from stepscope.integrations.lightning import StepscopeCallback, StepscopeLogger, ThroughputMonitorCallback
from tests.integrations.lightning.fits import loader, module, package, trainer

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def no_agent(without_agent: None) -> None:
    """The tests read the journals themselves."""


def test_it_records_what_a_trainer_logs(folder: Path, read) -> None:
    logger = StepscopeLogger(run="logged", project="vision", directory=folder)
    model = module()
    trainer(logger=logger, log_every_n_steps=1).fit(model, loader(), loader(8))
    run = read("logged")
    assert run.status == "finished"
    assert run.series("train/loss_step").values.tolist() == pytest.approx(model.losses)
    assert run.series("train/loss_step").steps.tolist() == list(range(16))
    assert run.series("val/loss").steps.tolist() == [7, 15]
    assert run.params["lr"] == 0.1
    assert (logger.name, logger.version, logger.save_dir) == ("vision", "logged", str(folder.parent))


def test_with_the_callback_there_is_one_run_and_each_value_is_there_once(folder: Path, read) -> None:
    logger = StepscopeLogger(run="both", directory=folder)
    callbacks = [StepscopeCallback(), ThroughputMonitorCallback(log_interval=8)]
    trainer(*callbacks, logger=logger, log_every_n_steps=1).fit(module(), loader(), loader(8))
    run = read("both")
    assert len(stepscope.open_store(folder).runs()) == 1
    for key in ("loss", "train/loss_step", "step_seconds"):
        assert run.series(key).steps.tolist() == list(range(16)), key
    assert run.series("val/loss").steps.tolist() == [7, 15]
    assert run.series("throughput/batches_per_sec").steps.tolist() == [7, 15]


def test_a_failure_is_the_status_and_a_second_fit_another_segment(folder: Path, read) -> None:
    def training_step(self, batch, index):
        raise ValueError("broken batch")

    logger = StepscopeLogger(run="twice", directory=folder)
    with pytest.raises(ValueError, match="broken"):
        trainer(logger=logger).fit(module(training_step=training_step), loader())
    trainer(logger=logger).fit(module(), loader())
    segments = read("twice").segments
    assert [(segment.status, segment.reason) for segment in segments] == [
        ("failed", "ValueError: broken batch"),
        ("finished", ""),
    ]


def test_only_the_first_rank_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = StepscopeLogger(run="ranks", directory=folder)
    monkeypatch.setattr(package().utilities.rank_zero.rank_zero_only, "rank", 1)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.log_hyperparams(argparse.Namespace(lr=1))
    logger.finalize("success")
    assert not folder.exists()


def test_it_is_a_logger_of_either_package_and_can_be_pickled(folder: Path) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        pl = package(name)
        logger = pickle.loads(pickle.dumps(StepscopeLogger(run="a", directory=folder)))
        assert isinstance(logger, pl.loggers.Logger)


@pytest.mark.parametrize("name", ["TensorBoardLogger", "WandbLogger"])
def test_other_loggers_get_the_figures_of_our_callbacks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"TensorBoardLogger": "tensorboard", "WandbLogger": "wandb"}[name])
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = getattr(package().loggers, name)(save_dir=str(tmp_path))
    trainer(ThroughputMonitorCallback(log_interval=4), logger=logger).fit(module(), loader())
    if name == "WandbLogger":
        assert logger.experiment.summary["throughput/samples_per_sec"] > 0
        logger.experiment.finish()
        return
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert [event.step for event in events.Scalars("throughput/samples_per_sec")] == [3, 7, 11, 15]
