"""`stepscope.init` and its run: the calls of a W&B or trackio script over our own recorder."""

from __future__ import annotations

import argparse
import copy
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import stepscope
import stepscope as wandb
from stepscope.errors import ConfigError, StepscopeError
from stepscope.facade import not_kept, run_facts, run_values, tracker, tracker_run
from stepscope.guard import Guard
from stepscope.reading import Run
from stepscope.store.open import open_marks

pytestmark = pytest.mark.usefixtures("without_agent")


@pytest.fixture(autouse=True)
def no_run_is_left(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Each test has its own lines, and leaves no run open."""
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))
    monkeypatch.setattr(tracker, "_last_ended", None)
    guard = Guard(strict=False)
    for module in (not_kept, run_facts, run_values, tracker, tracker_run):
        monkeypatch.setattr(module, "guard", guard)
    yield
    wandb.finish()


def values_of(run: Run, key: str) -> list[tuple[int, float]]:
    points = run.series(key)
    return list(zip(points.steps.tolist(), points.values.tolist(), strict=True))


def test_a_script_made_for_another_tracker_records_steps_parameters_and_summary(
    read: Callable[[str], Run],
) -> None:
    run = wandb.init(project="demo", name="first", config={"lr": 0.1, "net": {"depth": 2}})
    assert wandb.run is run
    assert wandb.config.lr == run.config["lr"] == 0.1
    for number in range(3):
        wandb.log({"loss": 1 / (number + 1), "val": {"acc": number}})
    assert run.step == 3
    assert run.summary["loss"] == pytest.approx(1 / 3)
    assert wandb.summary["val.acc"] == 2
    wandb.run.summary["best"] = 0.9
    run.summary.worst = 0.1
    wandb.config.update({"lr": 0.2}, allow_val_change=True)
    wandb.config.epochs = 5
    run.finish()
    assert wandb.run is None
    stored = read("first")
    assert (stored.project, stored.status) == ("demo", "finished")
    assert values_of(stored, "loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert values_of(stored, "val.acc") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert stored.params == {"lr": 0.2, "net": {"depth": 2}, "epochs": 5}
    assert values_of(stored, "summary/best") == [(3, 0.9)]
    assert values_of(stored, "summary/worst") == [(3, 0.1)]


def test_commit_and_step_put_values_where_wandb_puts_them(read: Callable[[str], Run]) -> None:
    run = wandb.init(name="steps")
    run.log({"a": 1}, commit=False)
    run.log({"b": 1}, commit=False)
    run.log({"c": 1})
    run.log({"a": 2}, step=5)
    run.log({"b": 2}, step=5)
    run.log({"c": 2})  # still step 5
    run.log({"a": 3})
    run.log({"a": 4}, step=20, commit=True)
    run.log({"a": 5})
    run.log({"late": 1}, step=3)
    run.finish()
    stored = read("steps")
    assert values_of(stored, "a") == [(0, 1), (5, 2), (6, 3), (20, 4), (21, 5)]
    assert values_of(stored, "b") == [(0, 1), (5, 2)]
    assert values_of(stored, "c") == [(0, 1), (5, 2)]
    assert values_of(stored, "late") == [(3, 1)]


def test_media_tables_and_artifacts_do_not_end_a_training(
    read: Callable[[str], Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = wandb.init(name="media")
    table = wandb.Table(columns=["a"])
    table.add_data(1)
    for _ in range(2):
        run.log(
            {
                "loss": 1.0,
                "image": wandb.Image([[0]], caption="x"),
                "images": [wandb.Image(1), wandb.Image(2)],
                "table": table,
                "plot": wandb.plot.line(table, "a", "b", title="t"),
                "histogram": wandb.Histogram([1.0, 2.0]),
            }
        )
    artifact = wandb.Artifact("model", type="model", metadata={"a": 1})
    artifact.add_file("model.pt")
    with artifact.new_file("notes.txt") as file:
        file.write("text")
    run.log_artifact(artifact).wait()
    wandb.save("config.yaml")
    assert run.use_artifact("data:latest").name == "data:latest"
    with pytest.raises(StepscopeError, match="keeps no artifacts"):
        run.use_artifact("data:latest").download()
    with pytest.raises(StepscopeError, match="no sweeps"):
        wandb.sweep({"method": "grid"})
    assert wandb.login() is True
    assert len(wandb.util.generate_id()) == 8
    run.finish()
    stored = read("media")
    assert {series.key for series in stored.keys()} == {"loss"}
    assert [array.tolist() for _, array in stored.arrays("histogram")] == [[1.0, 2.0]] * 2
    event = stored.events("artifact")[0]
    assert event.fields == {"name": "model", "type": "model", "files": ["model.pt"]}
    assert stored.events("saved_file")[0].fields["path"] == "config.yaml"
    messages = [record.getMessage() for record in caplog.records]
    assert sum("of the kind Image" in text for text in messages) == 1
    assert sum("of the kind Table" in text for text in messages) == 1


def test_arguments_without_effect_are_named_in_one_line(
    read: Callable[[str], Run], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = wandb.init(
        project="demo",
        name="named",
        entity="team",
        save_code=True,
        monitor_gym=False,
        settings=wandb.Settings(console="off"),
        tags=["a", "b"],
        notes="a note",
        group="cross-validation",
        job_type="train",
    )
    wandb.define_metric("loss", summary="min")
    run.finish()
    (line,) = [record.getMessage() for record in caplog.records if "init()" in record.getMessage()]
    assert line == "Arguments of init() without effect in stepscope: entity, save_code, settings."
    marks = open_marks(folder)
    assert marks.tags(run.id) == ("a", "b")
    assert [note.text for note in marks.notes(run.id)] == ["a note"]
    assert read("named").params == {"group": "cross-validation", "job_type": "train"}


def test_name_tags_and_notes_can_be_set_later(folder: Path) -> None:
    run = wandb.init(name="first", tags="one", notes="a note")
    wandb.run.name = "better"
    run.tags += ("two",)
    run.notes = "another"
    run.group = "mine"
    assert (run.name, run.tags, run.notes) == ("better", ("one", "two"), "another")
    run.finish()
    marks = open_marks(folder)
    assert (marks.name(run.id), marks.tags(run.id)) == ("better", ("one", "two"))
    assert [note.text for note in marks.notes(run.id)] == ["a note", "another"]


@pytest.mark.parametrize(
    "resume", ["allow", *(pytest.param(resume, marks=pytest.mark.slow) for resume in (True, "must", "auto"))]
)
def test_a_resumed_run_continues_after_its_last_step(resume: object, read: Callable[[str], Run]) -> None:
    for number in range(2):
        run = wandb.init(name="again", id="x1", resume=resume if number else None)
        assert run.resumed is bool(number)
        run.log({"loss": number})
        run.log({"loss": number})
        run.finish()
    stored = read("again-x1")
    assert values_of(stored, "loss") == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert len(stored.segments) == 2


def test_a_run_that_must_be_resumed_and_is_not_there_is_an_error_before_training(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no run 'missing'"):
        wandb.init(name="missing", resume="must")
    assert wandb.run is None
    with pytest.raises(StepscopeError):
        stepscope.open_store(folder).run("missing")


def test_a_run_that_is_never_resumed_gets_another_name(caplog: pytest.LogCaptureFixture) -> None:
    wandb.init(name="twice").finish()
    run = wandb.init(name="twice", resume="never")
    assert run.name == "twice-2"
    assert "There is already a run 'twice'" in caplog.text


def test_a_disabled_run_leaves_nothing_behind(folder: Path) -> None:
    run = wandb.init(name="off", mode="disabled", config={"lr": 1})
    run.log({"loss": 1.0})
    run.alert("title", "text")
    run.config.lr = 2
    run.summary["x"] = 1
    assert (run.config.lr, run.summary["loss"], run.disabled) == (2, 1.0, True)
    assert Path(run.dir).is_dir()
    run.finish()
    assert not folder.exists()


@pytest.mark.slow
def test_a_second_init_means_the_active_run_unless_it_asks_for_another(
    read: Callable[[str], Run], caplog: pytest.LogCaptureFixture
) -> None:
    first = wandb.init(project="p", name="one")
    assert wandb.init(project="p") is first
    assert wandb.init(name="other", reinit="return_previous") is first
    assert "the run 'one' is active" in caplog.text
    beside = wandb.init(name="beside", reinit="create_new")
    beside.log({"loss": 2.0})
    assert wandb.run is first
    wandb.log({"loss": 1.0})
    second = wandb.init(project="p", name="two")
    assert wandb.run is second
    assert wandb.init(reinit=True) is not second
    beside.finish()
    wandb.finish()
    assert [read(name).status for name in ("one", "two", "beside")] == ["finished"] * 3
    assert values_of(read("one"), "loss") == [(0, 1.0)]


@pytest.mark.slow
def test_an_exception_in_the_block_makes_the_run_failed(read: Callable[[str], Run]) -> None:
    with pytest.raises(ZeroDivisionError), wandb.init(name="block") as run:
        run.log({"loss": 1 / 0})
    assert wandb.run is None
    assert (read("block").status, read("block").reason) == ("failed", "ZeroDivisionError: division by zero")
    wandb.init(name="code").finish(exit_code=3)
    assert (read("code").status, read("code").reason) == ("failed", "exit code 3")


@dataclass
class Params:
    lr: float = 0.1


@pytest.mark.parametrize(
    "config",
    [{"lr": 0.1}, argparse.Namespace(lr=0.1), Params(), "params.yaml"],
    ids=lambda c: type(c).__name__,
)
def test_parameters_come_in_many_forms(config: object) -> None:
    Path("params.yaml").write_text("lr:\n  value: 0.1\nwandb_version: 1\n")
    assert run_values.understood(config) == {"lr": 0.1}


def test_parameters_can_be_added_and_selected(read: Callable[[str], Run]) -> None:
    run = wandb.init(name="params", config={"lr": 0.1, "path": "/data"}, config_exclude_keys=["path"])
    assert dict(run.config) == {"lr": 0.1}
    run.config.setdefaults({"lr": 3, "momentum": 0.9})
    assert run.config.setdefault("seed", 1) == 1
    run.finish()
    assert read("params").params == {"lr": 0.1, "momentum": 0.9, "seed": 1}


def test_parameters_that_have_no_names_are_named_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    run = wandb.init(name="odd", config=3)
    run.config.update(5)
    assert dict(run.config) == {}
    assert "config is 3; expected a mapping" in caplog.text
    with pytest.raises(AttributeError, match="no 'lr' in it"):
        _ = run.config.lr


def test_the_configuration_of_the_run_and_the_sub_package_share_a_name() -> None:
    import stepscope.config.find as find_module

    wandb.init(name="config", config={"lr": 0.1, "sections": "a user's own"})
    assert wandb.config.lr == wandb.config["lr"] == 0.1
    assert stepscope.config.sections == "a user's own"
    assert stepscope.config.find is find_module
    from stepscope.config import find, sections

    assert find is find_module
    assert sections.__name__ == "stepscope.config.sections"

    assert importlib.import_module("stepscope.config.sections").Settings


@pytest.mark.slow
def test_a_copy_of_the_configuration_is_not_connected_to_the_run(read: Callable[[str], Run]) -> None:
    run = wandb.init(name="copied", config={"lr": 0.1})
    for copied in (copy.copy(run.config), copy.deepcopy(run.config), pickle.loads(pickle.dumps(run.config))):
        assert copied.lr == 0.1
        copied.lr = 7
    run.finish()
    assert read("copied").params == {"lr": 0.1}


def test_calls_before_init_are_named_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    assert wandb.run is None
    wandb.log({"loss": 1.0})
    wandb.alert("title")
    wandb.watch(None)
    wandb.finish()
    assert "stepscope.log() was called before init()" in caplog.text


def test_calls_after_finish_are_named_in_a_line_with_the_run_that_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wandb.init(name="first").finish()
    for _ in range(2):
        wandb.log({"loss": 1.0})
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "stepscope.log() was called after the run 'first' had ended, so nothing was recorded."


def test_training_continues_with_any_logged_value(read: Callable[[str], Run]) -> None:
    class Odd(dict):
        def values(self):
            raise ValueError("no values")

    run = wandb.init(name="odd")
    for odd in (None, 3, [1], Odd(a=1), {1: 2}, {"text": "words"}, {"a": object()}, {}):
        run.log(odd)
    run.log({"loss": 1.0}, step="seven")
    run.log(metrics={"by_name": 1})
    run.alert(object(), object(), level="loud", wait_duration="soon")
    run.define_metric("x", step_metric="epoch")
    run.mark_preempting()
    with pytest.raises(AttributeError, match="no attribute 'lgo'"):
        run.lgo({})
    run.finish()
    run.log({"loss": 2.0})
    assert read("odd").series("loss").values.tolist() == [1.0]
    assert len(read("odd").series("by_name")) == 1


@pytest.mark.slow
def test_alerts_with_one_title_wait(monkeypatch: pytest.MonkeyPatch, read: Callable[[str], Run]) -> None:
    monkeypatch.delenv("STEPSCOPE_AGENT__MODE")
    run = wandb.init(name="alerts")
    for wait in (60, 60, timedelta(0), 0):
        run.alert("Low accuracy", "Accuracy is {0.1}.", level=wandb.AlertLevel.WARN, wait_duration=wait)
    wandb.alert("Out of data", level="ERROR")
    run.finish()
    alerts = read("alerts").alerts()
    assert [(alert["rule"], alert["severity"], alert["message"]) for alert in alerts] == [
        ("Low accuracy", "warning", "Accuracy is {0.1}."),
        ("Low accuracy (2)", "warning", "Accuracy is {0.1}."),
        ("Low accuracy (3)", "warning", "Accuracy is {0.1}."),
        ("Out of data", "critical", "Out of data"),
    ]


def test_every_name_that_the_package_promises_is_there() -> None:
    for name in tracker.__all__:
        assert getattr(stepscope, name) is getattr(tracker, name)
    assert set(tracker.__all__) == set(stepscope._TRACKER_NAMES)


@pytest.mark.slow
def test_names_of_other_trackers_load_nothing_until_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPSCOPE_AGENT__MODE")
    heavy = "{'torch', 'numpy', 'pydantic', 'sqlite3', 'asyncio', 'yaml', 'zstandard', 'logging'}"
    code = (
        "import sys; import stepscope as wandb\n"
        "assert 'stepscope.facade' not in sys.modules\n"
        "run = wandb.init(name='light', config={'lr': 1}); wandb.log({'loss': 1.0}); wandb.finish()\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
