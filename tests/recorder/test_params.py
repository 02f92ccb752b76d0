"""Hyper-parameters: given to a monitor or logged, and read back the same everywhere."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import stepscope
from stepscope import TrainingMonitor
from stepscope.cli.main import main
from stepscope.recorder.identity.params import MAX_ENTRIES, MAX_TEXT, PlainParams
from stepscope.views.compare.comparison import compare
from stepscope.views.overview.event_marks import NOT_MARKED
from stepscope.views.run_config import config_of
from stepscope.views.run_figures import figures_of
from stepscope.views.run_setup import setup_of

pytestmark = pytest.mark.usefixtures("without_agent")

NO_AGENT = {"agent": {"mode": "none"}, "recorder": {"segment_bytes": 65536}}

Read = Callable[[str], "stepscope.reading.Run"]


@dataclasses.dataclass
class Optimizer:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


class Shape(NamedTuple):
    width: int
    height: int


class Schedule(enum.Enum):
    COSINE = 1


class OmegaLike:
    """A configuration that is no Mapping, and of which a value is left open."""

    def keys(self) -> list[str]:
        return ["depth", "open"]

    def __getitem__(self, name: str) -> Any:
        if name == "open":
            raise ValueError("missing mandatory value")
        return 12


def recorded(
    folder: Path, *logged: Any, name: str = "a", params: Any = None, resume: bool = False
) -> stepscope.reading.Run:
    with TrainingMonitor(NO_AGENT, run=name, directory=folder, params=params, resume=resume) as monitor:
        monitor.log({"loss": 1.0})
        for values in logged:
            monitor.log_params(values)
    return stepscope.open_store(folder).run(name)


def test_plain_values_come_back_as_they_were_given(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "lr": 0.1, "epochs": 3, "name": "resnet", "amp": True, "clip": None, "layers": [1, 2, [3, "x"]],
        "optimizer": {"name": "adam", "betas": [0.9, 0.99], "deep": {"er": {"still": 1}}}, "empty": {},
        "none_of": [], "ünï": "çödé 🚀",
    }  # fmt: skip
    assert recorded(folder, params=given).params == given
    assert recorded(folder, given, name="b").params == given
    assert caplog.text == ""


def test_what_has_names_is_taken_apart(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = recorded(
        folder,
        argparse.Namespace(seed=1, where=Path("/data"), nested=argparse.Namespace(x=1)),
        Optimizer(),
        {"shape": Shape(3, 4), "opt": Optimizer(lr=0.5), "space": types.SimpleNamespace(y=2)},
        {"kinds": (1, 2), "set": {3}, "np": np.float32(0.5), "array": np.arange(3), "tensor": torch.ones(2)},
        {"omega": OmegaLike(), 5: "five"},
    )
    assert run.params == {
        "seed": 1, "where": "/data", "nested": {"x": 1},
        "lr": 0.1, "betas": [0.9, 0.99],
        "shape": {"width": 3, "height": 4}, "opt": {"lr": 0.5, "betas": [0.9, 0.99]}, "space": {"y": 2},
        "kinds": [1, 2], "set": [3], "np": 0.5, "array": [0, 1, 2], "tensor": [1.0, 1.0],
        "omega": {"depth": 12, "open": "<no value: ValueError>"}, "5": "five",
    }  # fmt: skip
    assert caplog.text == ""


def test_odd_values_become_text_with_one_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "schedule": Schedule.COSINE, "dtype": torch.float16, "layer": torch.nn.ReLU(), "nan": math.nan,
        "huge": 10**400, "bytes": b"x", "function": len,
    }  # fmt: skip
    params = recorded(folder, given, given).params
    assert params["schedule"] == "Schedule.COSINE"
    assert params["dtype"] == "torch.float16"
    assert params["layer"] == "ReLU()"
    assert params["nan"] == "NaN"
    assert all(isinstance(params[name], str) for name in ("huge", "bytes", "function"))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("Hyper-parameters that are not plain values were recorded as text: schedule (")
    assert "and 3 more" in warning


def test_a_later_call_updates_single_names_also_nested_ones(folder: Path) -> None:
    run = recorded(
        folder,
        {"lr": 0.2, "model": {"depth": 2}},
        {"model": {"depth": 3}, "new": 1},
        {"data": 5},
        params={"lr": 0.1, "model": {"depth": 1, "width": 8}, "data": {"path": "x"}},
    )
    assert run.params == {"lr": 0.2, "model": {"depth": 3, "width": 8}, "data": 5, "new": 1}


def test_a_resumed_run_keeps_its_parameters_and_updates_them(folder: Path) -> None:
    recorded(folder, params={"lr": 0.1, "seed": 1})
    run = recorded(folder, {"batch": 8}, params={"lr": 0.01}, resume=True)
    assert len(run.segments) == 2
    assert run.params == {"lr": 0.01, "seed": 1, "batch": 8}


def test_a_monitor_that_is_started_again_records_its_parameters_once(folder: Path) -> None:
    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder, params={"lr": 0.1})
    with monitor:
        monitor.log_params({"lr": 0.2})
    with monitor:
        pass
    assert stepscope.open_store(folder).run("a").params == {"lr": 0.2}


def test_if_ranks_differ_the_lowest_rank_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_SEGMENT", "together")
    for rank in (0, 2, 1):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr("stepscope.recorder.identity.rank_detection._starts", iter(range(9)))
        recorded(folder, params={"seed": 40 + rank, f"only_{rank}": True})
    run = stepscope.open_store(folder).run("a")
    assert len(run.segments) == 1
    assert run.params == {"seed": 40, "only_0": True, "only_1": True, "only_2": True}


def test_logging_parameters_begins_a_run(folder: Path, read: Read) -> None:
    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder)
    monitor.log_params({"lr": 0.1})
    monitor.stop_monitoring()
    assert read("a").params == {"lr": 0.1}


def test_a_run_without_parameters_has_none(folder: Path) -> None:
    assert recorded(folder).params == {}


def test_parameters_are_those_of_the_moment_they_were_given(folder: Path) -> None:
    mine = {"lr": 0.1, "layers": [1]}
    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder, params=mine)
    mine["lr"] = 7
    mine["layers"].append(2)
    with monitor:
        pass
    assert stepscope.open_store(folder).run("a").params == {"lr": 0.1, "layers": [1]}


def test_secrets_are_taken_out_however_they_are_given(folder: Path) -> None:
    token = "hf_" + "abcdefghijklmnopqrstuvwxyz01234567"
    filler = {f"k{number}": "some text " * 90 for number in range(100)}
    run = recorded(
        folder,
        {"api_key": "correcthorse", "hub": {"note": token}, "max_tokens": 512, "tokenizer": "bpe"},
        {"long": "x" * (MAX_TEXT - 10) + " " + token},
        {**filler, "secret": {"a": {"name": "HF_TOKEN", "value": "correcthorse"}}},
    )
    raw = json.dumps([event.fields for event in run.events()])
    assert "correcthorse" not in raw
    assert "hf_" not in raw
    assert (run.params["max_tokens"], run.params["tokenizer"]) == (512, "bpe")


def test_many_and_long_parameters_are_bounded_and_the_rest_is_kept(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = {f"key_{number}": number for number in range(MAX_ENTRIES + 500)}
    run = recorded(folder, {"text": "y" * 50_000, "name" * 500: 1, "list": ["z" * 900] * 100}, many)
    params = run.params
    assert len(params["text"]) == MAX_TEXT
    assert isinstance(params["list"], str)
    assert sum(name.startswith("key_") for name in params) == MAX_ENTRIES
    assert max(map(len, params)) == 200
    assert "Only the first 10,000 hyper-parameters were recorded" in caplog.text


def test_a_huge_array_becomes_text_without_being_taken_apart(folder: Path) -> None:
    weights = np.broadcast_to(np.float32(1.0), (10**12,))
    run = recorded(folder, {"weights": weights, "few": np.ones(2)})
    assert run.params == {"weights": "[1. 1. 1. ... 1. 1. 1.]", "few": [1.0, 1.0]}


def test_what_holds_itself_ends(folder: Path) -> None:
    loop: dict[str, Any] = {"lr": 0.1}
    loop["loop"], loop["list"] = loop, [loop, loop]
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(100):
        inner["in"] = inner = {}
    run = recorded(folder, loop, {"deep": deep})
    assert run.params["lr"] == 0.1
    assert isinstance(run.params["loop"], str)


@pytest.mark.slow
def test_lists_that_hold_each_other_many_times_end() -> None:
    grown: list[Any] = [1]
    for _ in range(60):
        grown = [grown, grown]
    assert len(json.dumps(PlainParams({"grown": grown}).nested)) < 100_000


@pytest.mark.parametrize("odd", [5, "text", [1], None, Optimizer, object()])
def test_what_has_no_names_is_named(odd: Any, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert recorded(folder, odd, {"after": 1}).params == {"after": 1}
    assert "expected a mapping of names to values, a dataclass or an argparse.Namespace" in caplog.text


def test_every_place_that_shows_a_configuration_shows_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = recorded(folder, params={"optimizer": {"lr": 0.1, "name": "adam"}, "max_steps": 50})
    two = recorded(folder, {"optimizer": {"lr": 0.2}}, name="b", params=one.params)
    assert config_of(one).config == one.params == setup_of(one).nested
    assert figures_of(two).config == {"optimizer.lr": 0.2, "optimizer.name": "adam", "max_steps": 50}
    assert figures_of(two).total_steps == 50
    lines = {line.key: (line.values, line.same) for line in compare([one, two]).config}
    assert lines["optimizer.lr"] == (("0.1", "0.2"), False)
    assert lines["optimizer.name"] == (("adam", "adam"), True)
    capsys.readouterr()
    assert main(["show", "b", "--store", str(folder)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["params"] in shown
    assert ["optimizer.lr", "0.2"] in shown
    assert main(["show", "b", "--store", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"] == two.params
    assert "params" in NOT_MARKED


def test_parameters_win_over_an_event_of_the_same_name_and_stand_beside_others(folder: Path) -> None:
    with TrainingMonitor(NO_AGENT, run="a", directory=folder, params={"lr": 0.1}) as monitor:
        monitor.event("config", batch_size=64)
    run = stepscope.open_store(folder).run("a")
    assert setup_of(run).nested["lr"] == 0.1
    assert run.params == {"lr": 0.1}
