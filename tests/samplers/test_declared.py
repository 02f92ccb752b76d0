"""What every sampler promises: each figure is declared, finite, and named after its unit."""

from __future__ import annotations

import math
import os
import re
import time

import pytest

from stepscope import plugins
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Notice, Reading, Sample, Watched

NAMES = plugins.names("samplers")

UNIT = re.compile(r"_(bytes|celsius|hertz|joules|ratio|seconds|watts|total|per_second)$")
COUNT = re.compile(r"[/_](cores|count|files|processes|threads|load_\d+m)$")
STATE = re.compile(r"/(throttled_\w+|\w+_(pending|failed)|pcie_(generation|width)(_most)?)$")


def looked_twice(name: str) -> list[Reading]:
    sampler = plugins.load("samplers", name, Sampler)()  # type: ignore[type-abstract]
    this_process = Watched("a-run", "seg1", 0, os.getpid(), "rank")
    readings = list(sampler.sample([this_process]))
    time.sleep(0.05)  # long enough for every clock to go on
    readings += sampler.sample([this_process])
    sampler.close()
    return readings


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_reads_only_what_it_declares_and_only_finite_figures(name: str) -> None:
    declared = {metric.key for metric in plugins.load("samplers", name, Sampler).metrics}  # type: ignore[type-abstract]
    for reading in looked_twice(name):
        if isinstance(reading, Sample):
            assert reading.values, "a sample without figures says nothing"
            assert reading.values.keys() <= declared
            assert all(math.isfinite(value) for value in reading.values.values())
        else:
            assert isinstance(reading, (DeviceFacts, Notice))


@pytest.mark.parametrize("name", NAMES)
def test_a_key_has_a_family_a_unit_and_a_sentence(name: str) -> None:
    metrics = plugins.load("samplers", name, Sampler).metrics  # type: ignore[type-abstract]
    assert metrics
    assert len({metric.key for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert re.fullmatch(r"[a-z]+/[a-z0-9_]+", metric.key)
        assert any(form.search(metric.key) for form in (UNIT, COUNT, STATE)), metric.key
        assert metric.sentence.endswith("."), metric.sentence


def test_the_samplers_of_the_host_see_something_on_this_machine() -> None:
    host = {"cores", "cpu", "memory", "network", "disk", "processes"}
    assert host <= set(NAMES)
    for name in ("cpu", "memory", "processes"):
        assert any(isinstance(reading, Sample) for reading in looked_twice(name)), name


def test_no_two_samplers_read_the_same_figure() -> None:
    owners: dict[str, str] = {}
    for name in NAMES:
        for metric in plugins.load("samplers", name, Sampler).metrics:  # type: ignore[type-abstract]
            assert owners.setdefault(metric.key, name) == name, metric.key
