"""Whatever a user calls an event and its fields, it is stored and shown, and never taken for one of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.agent.ingest.ingest import Ingest
from stepscope.cli.main import main
from stepscope.journal import layout
from stepscope.store.sqlite import SqliteStore
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.logs.console_lines import console_of
from stepscope.views.run_config import config_of
from stepscope.views.run_setup import setup_of
from tests.journal.writing import NAME, writer_for

Fields = dict[str, Any]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("it has no text")

    __repr__ = __str__


def endless() -> Fields:
    fields: Fields = {}
    fields["itself"] = fields
    return fields


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    return nested


# What is given, and what a reader finds where that is not the same.
FIELDS: dict[str, tuple[Fields, Fields | None]] = {
    "time is text": ({"time": "00:01:23"}, None),
    "time is None": ({"time": None}, None),
    "time is huge": ({"time": 10**30}, None),
    "time is a float": ({"time": 1.5}, None),
    "names of ours": (
        {"run": "a", "rank": "b", "host": 3, "kind": "resnet", "status": 4, "reason": [1], "facts": "x"},
        None,
    ),
    "more names of ours": ({"fields": {"a": 1}, "user": 2, "by_user": 3, "segment": 4, "bytes": 5}, None),
    "arguments of the call": ({"self": 1, "kind": 2, "fields": 3}, None),
    "step is text": ({"step": "ten"}, None),
    "step is None": ({"step": None}, None),
    "step is huge": ({"step": 10**30}, None),
    "step is a float": ({"step": 1.5}, None),
    "not finite": ({"a": float("nan"), "b": float("-inf")}, {"a": "NaN", "b": "-Infinity"}),
    "keys of any type": ({"a": {1: 2, (1, 2): 3, None: 4}}, {"a": {"1": 2, "(1, 2)": 3, "None": 4}}),
    "a lone surrogate": ({"a": "x\ud800"}, {"a": "x\\ud800"}),
    "an integer of many digits": ({"a": 10**6000}, {"a": "an integer of 19932 bits"}),
    "an array": ({"a": np.arange(3)}, {"a": "[0 1 2]"}),
}


def record(folder: Path, *events: tuple[str, Fields]) -> stepscope.reading.Run:
    monitor = stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="mine", directory=folder)
    monitor.log({"loss": 1.0}, step=7)
    for kind, fields in events:
        monitor.event(kind, **fields)
    monitor.stop_monitoring()
    return stepscope.open_store(folder).run("mine")


@pytest.mark.parametrize("which", FIELDS)
def test_fields_of_any_name_and_type_come_back(which: str, folder: Path) -> None:
    given, expected = FIELDS[which]
    run = record(folder, ("epoch", given), ("after", {}))
    epoch, after = run.events()
    assert (epoch.kind, epoch.step, epoch.fields) == ("epoch", 7, given if expected is None else expected)
    assert epoch.by_user
    assert 0 <= after.time - epoch.time < 60
    assert len(run.series("loss")) == 1
    (process,) = run.segments[0].processes
    assert (process.lost, process.dropped, run.status) == (0, 0, "finished")


@pytest.mark.parametrize("value", [Unspeakable(), endless(), deep(), {Unspeakable()}, b"\xff"])
def test_values_that_cannot_be_written_down_cost_no_event(value: object, folder: Path) -> None:
    run = record(folder, ("odd", {"value": value, "fine": 1}))
    (event,) = run.events("odd")
    assert event.fields["fine"] == 1
    assert "value" in event.fields


@pytest.mark.parametrize("step", [9, np.int64(9), -3])
def test_a_whole_number_given_as_step_is_the_step_of_the_event(step: Any, folder: Path) -> None:
    (event,) = record(folder, ("epoch", {"step": step, "loss": 2.0})).events()
    assert (event.step, event.fields) == (int(step), {"loss": 2.0})


def test_a_gap_of_the_users_is_no_gap_of_ours(folder: Path) -> None:
    run = record(folder, ("gap", {"dropped": "many"}), ("gap", {"dropped": 7}))
    assert [event.fields["dropped"] for event in run.events("gap")] == ["many", 7]
    assert run.segments[0].processes[0].dropped == 0


OURS: dict[str, Fields] = {
    "device": {"uuid": "GPU-1", "index": 0, "name": 5, "vendor": [], "device": 3, "host": ""},
    "console": {"text": "not printed"},
    "notice": {"text": "gpu", "subject": 5},
    "census": {"devices": 3, "optimizers": "x", "parameters": "y"},
    "loader": {"num_workers": "many"},
    "alert_rule": {"name": 5, "when": [1]},
    "alert_condition": {"rule": [1], "is_true": "x"},
    "record_refused": {"reason": 5},
    "text": {"key": 1},
    "out_of_memory": {"tensors": 4},
}


def test_a_kind_of_ours_used_by_the_training_is_shown_and_misleads_nobody(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(folder, *OURS.items())
    assert {event.kind: event.fields for event in run.events()} == OURS
    assert run.own_events() == []
    assert known_gpus(run) == {}
    assert not console_of(run).captured
    assert setup_of(run).nested == {}
    assert not {"Data loader", "Model and PyTorch", "Notices"} & {
        section.title for section in config_of(run).sections
    }
    assert main(["show", "mine", "--events", "--store", str(folder)]) == 0
    shown = capsys.readouterr().out
    for kind in OURS:
        assert kind in shown
    assert main(["alert", "list", "--rules", "--store", str(folder)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_what_a_run_was_set_up_with_may_be_called_anything(folder: Path) -> None:
    run = record(folder, ("config", {"kind": "resnet", "step": "cosine", "time": 3, "host": "h", "self": 1}))
    assert setup_of(run).nested == {"kind": "resnet", "step": "cosine", "time": 3, "host": "h", "self": 1}


def test_an_alert_rule_added_in_code_is_recorded_as_an_event_of_stepscope(folder: Path) -> None:
    monitor = stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="mine", directory=folder)
    monitor.alert_system.add_alert_rule("high", "loss > 2")
    monitor.log({"loss": 1.0})
    monitor.stop_monitoring()
    rules = stepscope.open_store(folder).run("mine").own_events("alert_rule")
    assert {rule.fields["name"] for rule in rules} == {"high"}


def test_events_of_an_older_journal_are_read_as_before(folder: Path) -> None:
    writer = writer_for(folder)
    writer.append_json(layout.EVENT, {"kind": "epoch", "step": 3, "host": "h", "fields": 5})
    writer.append_json(layout.EVENT, {"kind": "epoch", "step": "three"})
    writer.append_json(layout.EVENT, {"kind": "gap", "dropped": 4})
    writer.append_json(layout.EVENT, {"kind": "gap", "dropped": "many"})
    writer.append_row({"loss": 1.0}, 0)
    store = SqliteStore(folder / "store.sqlite")
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    ingest.tick()
    assert [(event.step, event.fields) for event in store.events(NAME.run_id)] == [
        (3, {"host": "h", "fields": 5}),
        (None, {"step": "three"}),
        (None, {"dropped": 4}),
        (None, {"dropped": "many"}),
    ]
    assert store.processes(NAME.run_id)[0].dropped == 4
    ingest.close()
    store.close()


def test_the_command_line_gives_the_fields_of_a_user_as_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(folder, ("epoch", {"time": "00:01:23", "kind": "resnet"}))
    assert main(["show", "mine", "--json", "--store", str(folder)]) == 0
    (event,) = json.loads(capsys.readouterr().out)["events"]
    assert event["fields"] == {"time": "00:01:23", "kind": "resnet"}
