"""The window that is judged, from timelines with known answers."""

from __future__ import annotations

import itertools
import json

import pytest

from stepscope.errors import StepscopeError
from stepscope.profiling.window.events import DeviceSpan, Span, Timeline
from stepscope.profiling.window.window_profile import Place, window_profile

MAIN, OTHER = 1, 2


def steps(*edges: int) -> list[Span]:
    """Marks of steps that follow each other."""
    return [
        Span(MAIN, start, end, f"ProfilerStep#{number}")
        for number, (start, end) in enumerate(itertools.pairwise(edges))
    ]


def test_a_window_reaches_until_the_device_is_done_with_what_it_was_given() -> None:
    timeline = Timeline(
        [Span(MAIN, 0, 10, "aten::mm", id=1), Span(MAIN, 10, 20, "aten::mm", id=2)],
        steps(0, 10, 20),
        device=[DeviceSpan(0, 10, 500, "gemm", begun_by=1), DeviceSpan(0, 500, 1000, "gemm", begun_by=2)],
    )
    profile = window_profile(timeline, Place(0, 0, 2), top=5)
    assert profile.window_seconds == pytest.approx(1000e-9)
    assert profile.breakdown.shares()["compute"] == pytest.approx(0.99)
    assert profile.device_operations[0].name == "aten::mm"
    assert profile.bottleneck.startswith("Compute: 99%")


def test_a_step_that_does_not_count_takes_its_operations_along() -> None:
    timeline = Timeline([Span(MAIN, 0, 100, "train"), Span(MAIN, 100, 900, "validate")], steps(0, 100, 1000))
    profile = window_profile(timeline, Place(0, 0, steps=1), top=5)
    assert [operation.name for operation in profile.operations] == ["train"]
    assert profile.window_seconds == pytest.approx(100e-9)


def test_the_window_is_that_of_the_thread_that_marks_steps() -> None:
    timeline = Timeline([Span(OTHER, 0, 100, "elsewhere")], steps(0, 100))
    assert window_profile(timeline, Place(), top=5).breakdown.shares()["idle"] == pytest.approx(1)


def test_without_a_step_there_is_nothing_to_judge() -> None:
    with pytest.raises(StepscopeError, match="recorded no step"):
        window_profile(Timeline([Span(MAIN, 0, 1, "x")]), Place(), top=5)


def test_a_profile_is_plain_data_with_method_and_count() -> None:
    timeline = Timeline([Span(MAIN, 0, 50, "aten::mm")], steps(0, 100))
    fields = json.loads(json.dumps(window_profile(timeline, Place(2, 7, 1), top=5).described()))
    assert (fields["epoch"], fields["after_step"], fields["steps"], fields["events"]) == (2, 7, 1, 2)
    assert fields["method"].startswith("torch.profiler")
    assert fields["operations"][0]["name"] == "aten::mm"
    assert fields["trace"] is None
