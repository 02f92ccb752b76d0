"""Own times, shares and places, worked out from spans with known answers."""

from __future__ import annotations

import pytest

from stepscope.profiling.window.events import Allocation, DeviceSpan, Span, Timeline
from stepscope.profiling.window.nesting import operator_calls
from stepscope.profiling.window.operations import device_operations, host_operations, kernels

MAIN, OTHER = 1, 2


def ranked(timeline: Timeline, **options):
    return host_operations(operator_calls(timeline), top=10, with_memory=False, **options)


def test_an_operators_own_time_leaves_out_the_operators_inside_it() -> None:
    operators = [
        Span(MAIN, 0, 100, "aten::linear"),
        Span(MAIN, 10, 90, "aten::addmm"),
        Span(MAIN, 20, 30, "aten::expand"),
        Span(MAIN, 100, 150, "aten::relu"),
    ]
    own = {part.span.name: (part.own_ns, part.is_outermost) for part in operator_calls(Timeline(operators))}
    assert own == {
        "aten::linear": (20, True),
        "aten::addmm": (70, False),
        "aten::expand": (10, False),
        "aten::relu": (50, True),
    }


def test_spans_of_different_threads_are_not_nested() -> None:
    parts = list(operator_calls(Timeline([Span(MAIN, 0, 100, "a"), Span(OTHER, 10, 20, "b")])))
    assert {part.span.name: part.own_ns for part in parts} == {"a": 100, "b": 10}
    assert all(part.is_outermost for part in parts)


def test_of_two_operators_that_begin_together_the_longer_is_the_outer_one() -> None:
    parts = list(operator_calls(Timeline([Span(MAIN, 0, 10, "inner"), Span(MAIN, 0, 100, "outer")])))
    assert {part.span.name: part.own_ns for part in parts} == {"inner": 10, "outer": 90}


def test_operations_are_ranked_by_own_time_and_shares_add_up() -> None:
    operators = [Span(MAIN, start, start + 30, "mm") for start in (0, 100, 200)]
    operators += [Span(MAIN, 300, 310, "add")]
    first, second = ranked(Timeline(operators))
    assert (first.name, first.calls, first.share_ratio) == ("mm", 3, 0.9)
    assert (second.name, second.calls, second.share_ratio) == ("add", 1, 0.1)
    assert first.self_seconds == pytest.approx(90e-9)


def test_only_as_many_operations_as_asked_for_are_named() -> None:
    operators = [Span(MAIN, start, start + 1, str(start)) for start in range(20)]
    assert len(host_operations(operator_calls(Timeline(operators)), top=3, with_memory=False)) == 3


def test_memory_belongs_to_the_innermost_operator_that_took_it() -> None:
    timeline = Timeline(
        [Span(MAIN, 0, 100, "outer"), Span(MAIN, 10, 50, "inner")],
        allocations=[
            Allocation(MAIN, 20, 1000, on_device=False),
            Allocation(MAIN, 60, 500, on_device=False),
            Allocation(MAIN, 70, -200, on_device=False),
            Allocation(MAIN, 500, 7, on_device=False),
        ],
    )
    taken = {
        operation.name: operation.memory_bytes
        for operation in host_operations(operator_calls(timeline), 10, with_memory=True)
    }
    assert taken == {"outer": 300, "inner": 1000}


def test_the_shapes_that_took_most_time_stand_beside_an_operation() -> None:
    operators = [
        Span(MAIN, 0, 10, "mm", shapes="[[2, 2]]"),
        Span(MAIN, 20, 90, "mm", shapes="[[64, 64]]"),
        Span(MAIN, 100, 110, "mm", shapes="[[2, 2]]"),
    ]
    assert ranked(Timeline(operators))[0].shapes == "[[64, 64]]"


def test_the_place_of_a_call_is_the_users_function_not_torchs_or_pythons() -> None:
    timeline = Timeline(
        [Span(MAIN, 50, 60, "mm"), Span(MAIN, 95, 96, "add")],
        functions=[
            Span(MAIN, 0, 100, "train.py(3): <module>"),
            Span(MAIN, 10, 90, "project/steps.py(12): train_step"),
            Span(MAIN, 20, 80, "torch/nn/modules/module.py(1751): _call_impl"),
            Span(MAIN, 30, 70, "contextlib.py(81): inner"),
            Span(MAIN, 40, 65, "<built-in method matmul of type object>"),
            Span(OTHER, 40, 65, "elsewhere.py(1): run"),
        ],
    )
    places = {operation.name: operation.place for operation in ranked(timeline)}
    assert places == {"mm": "project/steps.py(12): train_step", "add": "train.py(3): <module>"}


def test_device_time_goes_to_the_operator_that_began_it() -> None:
    operators = [Span(MAIN, 0, 5, "aten::mm", id=7)]
    device = [
        DeviceSpan(0, 10, 40, "sm90_gemm", begun_by=7),
        DeviceSpan(0, 50, 60, "sm90_gemm", begun_by=7),
        DeviceSpan(0, 60, 70, "Memset (Device)", begun_by=0),
    ]
    first, second = device_operations(device, operators, top=10)
    assert (first.name, first.calls, first.share_ratio) == ("aten::mm", 2, 0.8)
    assert second.name == "Memset (Device)"
    assert [kernel.name for kernel in kernels(device, top=10)] == ["sm90_gemm", "Memset (Device)"]


def test_functions_in_progress_when_a_window_begins_are_part_of_it() -> None:
    timeline = Timeline(
        [Span(MAIN, 5, 6, "before"), Span(MAIN, 15, 16, "inside")],
        functions=[Span(MAIN, 0, 100, "train.py(1): main")],
    )
    inside = timeline.within(10, 20)
    assert [span.name for span in inside.operators] == ["inside"]
    assert [span.name for span in inside.functions] == ["train.py(1): main"]
    assert len(inside) == 2


def test_work_of_a_device_belongs_to_the_stretch_in_which_it_was_given() -> None:
    timeline = Timeline(
        [Span(MAIN, 5, 6, "early", id=1), Span(MAIN, 15, 16, "mm", id=2), Span(MAIN, 25, 26, "late", id=3)],
        device=[
            DeviceSpan(0, 12, 14, "from before", begun_by=1),
            DeviceSpan(0, 18, 40, "given inside, done after", begun_by=2),
            DeviceSpan(0, 40, 45, "given after", begun_by=3),
            DeviceSpan(0, 13, 14, "nobody knows by whom"),
        ],
    )
    kept = [span.name for span in timeline.within(10, 20).device]
    assert kept == ["given inside, done after", "nobody knows by whom"]
