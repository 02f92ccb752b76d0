"""The keys of a run, and what each means."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.views.metrics.catalogue import catalogue_of
from stepscope.views.metrics.metric_meaning import group_of, is_never_smoothed, sentence_of, unit_of
from tests.views.made import Made, as_json


def test_keys_have_their_meaning_their_numbers_and_their_places(made: Made) -> None:
    for rank in (0, 1):
        made.process(rank=rank, pid=rank)
        made.log({"train/loss": [1.0, np.nan, 3.0], "epoch": 0.0}, rank=rank)
    made.read({"gpu/utilization_ratio": 0.5}, device=made.gpu(3))
    keys = {key["key"]: key for key in as_json(catalogue_of(made.run()))["keys"]}
    assert list(keys) == ["epoch", "train/loss", "gpu/utilization_ratio"]
    loss = keys["train/loss"]
    assert (loss["group"], loss["points"], loss["last"], loss["nonfinite"]) == ("train", 6, 3.0, 2)
    assert [place["rank"] for place in loss["places"]] == [0, 1]
    gpu = keys["gpu/utilization_ratio"]
    assert (gpu["axis"], gpu["unit"], gpu["percent"]) == ("seconds", "ratio", True)
    assert (gpu["places"][0]["device_name"], gpu["places"][0]["rank"]) == ("gpu 3", None)
    assert "at least one kernel" in gpu["help"]
    assert keys["epoch"]["no_smoothing"]
    assert list(loss) == [
        "key", "group", "unit", "help", "axis", "points", "last", "nonfinite", "percent", "no_smoothing",
        "places",
    ]  # fmt: skip


def test_a_run_without_points_has_an_empty_catalogue(made: Made) -> None:
    made.process()
    assert catalogue_of(made.run()).keys == ()


def test_a_ratio_above_one_is_not_drawn_as_a_percentage(made: Made) -> None:
    made.process()
    made.read({"process/cpu_ratio": 3.5}, rank=0)
    assert [key.percent for key in catalogue_of(made.run()).keys] == [False]


def test_segments_of_one_rank_are_one_place(made: Made) -> None:
    made.process(end=10)
    made.process(segment="b2", started_ns=1)
    for segment in ("a1", "b2"):
        made.log({"loss": [1.0]}, segment=segment)
    (key,) = catalogue_of(made.run()).keys
    assert (key.points, len(key.places)) == (2, 1)


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("step_seconds", "seconds"), ("a/b_bytes", "bytes"), ("disk/read_bytes_per_second", "bytes/s"),
        ("tokens_per_second", "tokens/s"), ("requests_per_second", "/s"), ("gpu/power_watts", "watts"),
        ("gpu/temperature_celsius", "celsius"), ("gpu/energy_joules_total", "joules"), ("loss", ""),
        ("val/accuracy", "ratio"), ("clock_hertz", "hertz"), ("cpu_percent", "%"), ("latency_ms", "ms"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_unit_is_the_end_of_a_name(key: str, unit: str) -> None:
    assert unit_of(key) == unit


def test_keys_that_smoothing_would_distort_are_not_smoothed() -> None:
    for key in (
        "learning_rate",
        "optim/lr",
        "epoch",
        "memory/ooms_total",
        "gpu/throttled_power_cap",
        "global_step",
    ):
        assert is_never_smoothed(key)
    for key in ("loss", "step_seconds", "gpu/utilization_ratio", "clr", "total_loss"):
        assert not is_never_smoothed(key)


def test_keys_have_groups_and_sentences() -> None:
    assert (group_of("a/b/c"), group_of("loss")) == ("a/b", "")
    assert sentence_of("phase/data_seconds") == "Time of this phase in each step: waiting for the next batch."
    assert sentence_of("lag/forward_seconds").startswith("How far the GPU was behind")
    assert sentence_of("something/of_mine") == ""
