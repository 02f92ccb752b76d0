"""A Transformers `Trainer` with the callback trains as without it, and every step of it is recorded once."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope import TrainingMonitor
from stepscope.errors import ConfigError
from stepscope.reading import Run
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.wall_time import wall_time_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the framework
    pytest.mark.usefixtures("without_agent"),
]
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
torch = pytest.importorskip("torch")

from stepscope.integrations.transformers import StepscopeCallback  # noqa: E402 - it needs transformers
from tests.integrations.tiny_trainer import Stream, losses_of, tiny_model, tiny_trainer  # noqa: E402


def with_sgd() -> dict[str, Any]:
    model = tiny_model()
    return {"model": model, "optimizers": (torch.optim.SGD(model.parameters(), lr=0.1), None)}


def accuracy(predictions: Any) -> dict[str, float]:
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


CASES: dict[str, tuple[dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "plain": ({}, dict),
    "accumulation": ({"gradient_accumulation_steps": 4}, dict),
    "evaluation": ({"eval_strategy": "steps", "eval_steps": 3}, lambda: {"compute_metrics": accuracy}),
    "saving": ({"save_strategy": "steps", "save_steps": 4, "eval_strategy": "epoch"}, dict),
    "smoothing": ({"label_smoothing_factor": 0.1, "logging_steps": 5}, dict),
    "stream": ({"max_steps": 15}, lambda: {"train_dataset": Stream()}),
    "own optimizer": ({}, with_sgd),
    "bf16": ({"bf16": True}, dict),
    "stopping early": (
        {
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 2,
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_loss",
        },
        lambda: {"extra": [transformers.EarlyStoppingCallback(1, early_stopping_threshold=10.0)]},
    ),
    "evaluation first": ({"eval_on_start": True, "eval_strategy": "epoch"}, dict),
}


def trained(folder: Path, case: str, callbacks: list[Any]) -> Any:
    options, further = CASES[case]
    trainer_options = further()
    callbacks = [*callbacks, *trainer_options.pop("extra", [])]
    trainer = tiny_trainer(folder, callbacks, trainer_options=trainer_options, **options)
    trainer.train()
    return trainer


def explained(run: Run) -> float:
    """The share of the wall time that has a name."""
    spent = wall_time_of(run, SeriesSummaries(run.summaries()), time.time_ns())
    return 1 - sum(part.share for part in spent.parts if part.name == "unaccounted")


@pytest.mark.parametrize("case", CASES)
def test_a_training_is_the_same_with_the_callback_and_each_step_is_recorded_once(
    case: str, folder: Path, tmp_path: Path, read: Callable[[str], Run], caplog: pytest.LogCaptureFixture
) -> None:
    bare = trained(tmp_path / "bare", case, [])
    caplog.set_level(logging.WARNING, "stepscope")
    recorded = trained(tmp_path / "recorded", case, [StepscopeCallback(run="tiny", directory=folder)])
    assert [record.message for record in caplog.records if record.name.startswith("stepscope")] == []
    assert losses_of(recorded) == losses_of(bare)
    for weights, before in zip(recorded.model.parameters(), bare.model.parameters(), strict=True):
        assert torch.equal(weights, before)
    run = read("tiny")
    steps = recorded.state.global_step
    assert run.status == "finished"
    assert steps == bare.state.global_step > 0
    assert run.series("step_seconds").steps.tolist() == list(range(1, steps + 1))
    assert run.series("loss").values.tolist() == losses_of(bare)
    assert run.series("loss").steps.tolist()[-1] <= steps
    assert run.series("train/loss").values.tolist() == losses_of(bare)
    assert explained(run) > 0.95
    assert run.alerts() == []


def test_what_the_trainer_logs_has_the_names_that_its_users_know(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    trainer = trained(tmp_path / "out", "evaluation", [StepscopeCallback(run="tiny", directory=folder)])
    run = read("tiny")
    keys = {series.key for series in run.keys()}
    assert keys >= {"loss", "learning_rate", "epoch", "train/loss", "train/grad_norm", "train/train_runtime"}
    assert keys >= {"eval/loss", "eval/accuracy", "eval/runtime"}
    evaluated = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated[:3] == [3, 6, 9]
    assert run.series("eval/loss").steps.tolist() == evaluated
    assert run.series("gap/eval_seconds").steps.tolist() == evaluated
    assert run.series("epoch").values[-1] == 2


def test_batches_whose_gradients_are_accumulated_are_counted(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    trained(tmp_path / "out", "accumulation", [StepscopeCallback(run="tiny", directory=folder)])
    # Eleven batches an epoch: the last step of each has three. Older versions take another from the next one.
    batches = read("tiny").series("micro_steps").values.tolist()
    assert batches in ([4, 4, 3, 4, 4, 3], [4, 4, 4, 4])


def test_checkpoints_are_recorded_as_such(folder: Path, tmp_path: Path, read: Callable[[str], Run]) -> None:
    trained(tmp_path / "out", "saving", [StepscopeCallback(run="tiny", directory=folder)])
    saved = read("tiny").series("phase/checkpoint_seconds")
    # A checkpoint is saved after its step has ended, so its time is in the next one.
    times = dict(zip(saved.steps.tolist(), saved.values.tolist(), strict=True))
    assert {step for step, seconds in times.items() if seconds > 0} == {5, 9, 13, 17, 21, 22}


def test_hyper_parameters_are_recorded_without_tokens(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    callback = StepscopeCallback(directory=folder, params={"task": "sorting"})
    tiny_trainer(
        tmp_path / "out", [callback], hub_token="hf_abcdefghijklmnopqrstuvwxyz012345", run_name="named"
    ).train()
    run = read("named")
    params = json.dumps(run.params)
    assert run.params["learning_rate"] == 1e-2
    assert run.params["task"] == "sorting"
    assert run.params["model"]["n_embd"] == 8
    assert "hf_abcdefghij" not in params


def test_a_training_that_is_resumed_continues_its_run_in_another_segment(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    saving = {"save_strategy": "steps", "save_steps": 5}
    first = tiny_trainer(tmp_path / "out", [StepscopeCallback(directory=folder)], max_steps=12, **saving)
    first.train()
    [name] = [run.name for run in stepscope.open_store(folder).runs()]
    bare = tiny_trainer(tmp_path / "bare", [], max_steps=20, **saving)
    bare.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))
    again = tiny_trainer(tmp_path / "out", [StepscopeCallback(directory=folder)], max_steps=20, **saving)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))
    assert losses_of(again) == losses_of(bare)
    assert [run.name for run in stepscope.open_store(folder).runs()] == [name]
    run = read(name)
    assert [segment.status for segment in run.segments] == ["finished", "finished"]
    assert run.series("step_seconds").steps.tolist() == [*range(1, 13), *range(11, 21)]


def test_a_checkpoint_of_another_run_is_not_continued_if_a_new_name_is_passed(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    saving = {"save_strategy": "steps", "save_steps": 5, "max_steps": 5}
    tiny_trainer(tmp_path / "out", [StepscopeCallback(run="one", directory=folder)], **saving).train()
    saving["max_steps"] = 8
    trainer = tiny_trainer(tmp_path / "out", [StepscopeCallback(run="two", directory=folder)], **saving)
    trainer.train(resume_from_checkpoint=True)
    assert read("one").series("step_seconds").steps.tolist() == [1, 2, 3, 4, 5]
    assert read("two").series("step_seconds").steps.tolist() == [6, 7, 8]


def test_a_second_training_is_another_segment_that_continues_after_the_last_step(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    trainer = tiny_trainer(tmp_path / "out", [StepscopeCallback(run="tiny", directory=folder)], max_steps=4)
    trainer.train()
    trainer.train()
    run = read("tiny")
    assert len(run.segments) == 2
    assert run.series("step_seconds").steps.tolist() == list(range(1, 9))
    assert run.series("loss").steps.tolist() == list(range(1, 9))


def test_evaluations_before_and_after_a_training_belong_to_the_same_run(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    trainer = tiny_trainer(tmp_path / "out", [StepscopeCallback(run="tiny", directory=folder)], max_steps=4)
    trainer.evaluate()
    trainer.train()
    trainer.evaluate()
    run = read("tiny")
    assert run.series("eval/loss").steps.tolist() == [0, 4]
    assert run.series("step_seconds").steps.tolist() == [1, 2, 3, 4]
    assert run.series("gap/eval_seconds").steps.tolist() == [0, 4]
    assert run.status == "finished"


def test_predictions_alone_are_a_run_with_their_metrics(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    trainer = tiny_trainer(tmp_path / "out", [StepscopeCallback(run="tiny", directory=folder)])
    trainer.predict(trainer.eval_dataset)
    run = read("tiny")
    assert len(run.series("test/loss")) == 1
    assert run.status == "finished"


class Failing(transformers.TrainerCallback):
    """Raises once, at a step."""

    def __init__(self) -> None:
        self.has_raised = False

    def on_step_begin(self, args, state, control, **objects):
        if state.global_step == 3 and not self.has_raised:
            self.has_raised = True
            raise ValueError("the data are gone")


def test_a_training_that_raised_is_a_failed_segment_when_the_next_one_begins(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    callbacks = [StepscopeCallback(run="tiny", directory=folder), Failing()]
    trainer = tiny_trainer(tmp_path / "out", callbacks, max_steps=5)
    with pytest.raises(ValueError, match="the data are gone"):
        trainer.train()
    trainer.train()
    run = read("tiny")
    assert [segment.status for segment in run.segments] == ["failed", "finished"]
    assert run.series("step_seconds").steps.tolist() == [*range(1, 4), *range(4, 9)]


class Search(transformers.TrainerCallback):
    """Sets what a trainer sets for a trial; a search itself needs further packages."""

    def __init__(self) -> None:
        self.rates = [1e-3, 1e-4]

    def on_train_begin(self, args, state, control, **objects):
        state.is_hyper_param_search, state.trial_params = True, {"learning_rate": self.rates.pop(0)}


def test_each_trial_of_a_search_is_a_run(folder: Path, tmp_path: Path, read: Callable[[str], Run]) -> None:
    callbacks = [Search(), StepscopeCallback(run="search", directory=folder)]
    trainer = tiny_trainer(tmp_path / "out", callbacks, max_steps=2)
    trainer.train()
    trainer.train()
    assert read("search-trial-1").params["learning_rate"] == 1e-3
    assert read("search-trial-2").params["learning_rate"] == 1e-4
    assert read("search-trial-2").series("step_seconds").steps.tolist() == [1, 2]


def test_a_monitor_of_the_user_continues_after_the_training(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    with TrainingMonitor(run="mine", directory=folder) as monitor:
        trainer = tiny_trainer(tmp_path / "out", [StepscopeCallback(monitor)], max_steps=3)
        trainer.train()
        assert monitor.step_phases is None
        monitor.log({"after": 1.0}, step=3)
    run = read("mine")
    assert run.series("step_seconds").steps.tolist() == [1, 2, 3]
    assert len(run.series("after")) == 1


def test_a_callback_without_arguments_records_into_the_run_that_is_open(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    with TrainingMonitor(run="mine", directory=folder):
        tiny_trainer(tmp_path / "out", [StepscopeCallback()], max_steps=3).train()
    assert [run.name for run in stepscope.open_store(folder).runs()] == ["mine"]
    assert read("mine").series("step_seconds").steps.tolist() == [1, 2, 3]


def test_a_callback_can_be_copied_pickled_and_restored_from_a_checkpoint(
    folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    callback = StepscopeCallback(run="tiny", directory=folder)
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    tiny_trainer(tmp_path / "out", [callback], **options).train()
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert copied is not callback
        trainer = tiny_trainer(tmp_path / "out", [copied], **options)
        trainer.args.restore_callback_states_from_checkpoint = True
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
        assert trainer.state.global_step == 4
    run = read("tiny")
    assert run.series("step_seconds").steps.tolist() == [1, 2, 3, 4, 3, 4, 3, 4]
    state = json.loads((tmp_path / "out" / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["StepscopeCallback"]["attributes"]["checkpoint_run"]["run"] == "tiny"


class OddConfig(transformers.GPT2Config):
    """Fails when it is recorded, and not before."""

    is_trained = False

    def to_dict(self):
        if OddConfig.is_trained:
            raise ValueError("it cannot be written")
        return super().to_dict()


class Trained(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **objects):
        OddConfig.is_trained = True


def test_what_cannot_be_recorded_is_one_warning_and_costs_nothing_else(
    folder: Path, tmp_path: Path, read: Callable[[str], Run], caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model()
    model.config = OddConfig(n_embd=8, n_layer=1, n_head=2, vocab_size=16)
    callbacks = [Trained(), StepscopeCallback(run="tiny", directory=folder)]
    tiny_trainer(tmp_path / "out", callbacks, trainer_options={"model": model}, max_steps=3).train()
    warnings = [record.message for record in caplog.records if record.name.startswith("stepscope")]
    assert len(warnings) == 1
    assert "it cannot be written" in warnings[0]
    assert read("tiny").series("step_seconds").steps.tolist() == [1, 2, 3]
    assert read("tiny").series("loss").steps.tolist() == [1, 2, 3]


def test_nothing_is_recorded_and_nothing_breaks_if_stepscope_is_off(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    trainer = tiny_trainer(
        tmp_path / "out",
        [StepscopeCallback(run="tiny", directory=folder)],
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        max_steps=4,
        gradient_accumulation_steps=2,
    )
    trainer.train()
    assert trainer.state.global_step == 4
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"monitor": 5}, "monitor is 5; it must be a TrainingMonitor"),
        ({"run": 5}, "run is 5; it must be text"),
        ({"resume": True}, "resume is true, but run is not set"),
        ({"params": 5}, "params is 5"),
        ({"config": {"recorder": {"nonsense": 1}}}, "nonsense"),
    ],
)
def test_wrong_arguments_are_refused_before_the_training(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepscopeCallback(**options)


def test_a_monitor_and_arguments_of_another_one_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="monitor and run are both set"):
        StepscopeCallback(TrainingMonitor(run="mine", directory=folder), run="other")
