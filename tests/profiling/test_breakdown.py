"""Where a window went, with and without a device, from spans with known answers."""

from __future__ import annotations

import pytest

from stepscope.profiling.window.breakdown import (
    Breakdown,
    WindowSpan,
    breakdown_of,
    covered_ns,
    is_collective,
)
from stepscope.profiling.window.events import DeviceSpan, Span, Timeline
from stepscope.profiling.window.nesting import operator_calls
from stepscope.profiling.window.operations import Operation
from stepscope.profiling.window.window_profile import bottleneck_of

MAIN, OTHER = 1, 2
WINDOW = WindowSpan(MAIN, 0, 1000)
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def shares(timeline: Timeline, window: WindowSpan = WINDOW) -> dict[str, float]:
    return {
        name: round(share, 6)
        for name, share in breakdown_of(timeline, operator_calls(timeline), window).shares().items()
    }


def test_without_a_device_the_main_thread_is_divided() -> None:
    timeline = Timeline(
        operators=[
            Span(MAIN, 100, 150, "aten::stack"),  # inside the loader: data
            Span(MAIN, 300, 600, "aten::mm"),
            Span(MAIN, 310, 590, "aten::inner"),
            Span(MAIN, 700, 800, "gloo:all_reduce"),
            Span(OTHER, 0, 1000, "aten::elsewhere"),
        ],
        ranges=[
            Span(MAIN, 0, 200, LOADER),
            Span(MAIN, 0, 1000, "ProfilerStep#1"),
            Span(OTHER, 0, 900, LOADER),
        ],
    )
    assert shares(timeline) == {"data": 0.2, "compute": 0.3, "communication": 0.1, "idle": 0.4}


def test_a_range_the_user_marked_hides_no_idle_time() -> None:
    timeline = Timeline([Span(MAIN, 0, 100, "aten::mm")], [Span(MAIN, 0, 1000, "forward")])
    assert shares(timeline)["idle"] == 0.9


@pytest.mark.parametrize("kind", ["overlapping", "ranges"])
def test_exchange_on_another_thread_counts_where_the_main_thread_did_not_compute(kind: str) -> None:
    timeline = Timeline([Span(MAIN, 0, 600, "aten::mm")])
    vars(timeline)[kind].append(Span(OTHER, 400, 900, "gloo:broadcast"))
    assert shares(timeline) == {"data": 0.0, "compute": 0.6, "communication": 0.3, "idle": 0.1}


def test_with_a_device_its_time_is_divided() -> None:
    timeline = Timeline(
        operators=[Span(MAIN, 0, 1000, "aten::launch")],
        ranges=[Span(MAIN, 0, 300, LOADER)],
        device=[
            DeviceSpan(0, 0, 100, "gemm"),
            DeviceSpan(0, 50, 150, "gemm"),  # another stream, at the same time
            DeviceSpan(0, 300, 350, "Memcpy HtoD (Pinned -> Device)"),
            DeviceSpan(0, 350, 500, "gemm"),
            DeviceSpan(0, 400, 700, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"),
        ],
    )
    # data: the loader while the device had nothing to do (150 to 300), and the copy (300 to 350)
    assert shares(timeline) == {"data": 0.2, "compute": 0.3, "communication": 0.2, "idle": 0.3}
    breakdown = breakdown_of(timeline, operator_calls(timeline), WINDOW)
    assert (breakdown.measured_on, breakdown.host_busy_ratio) == ("device 0", 1.0)


def test_of_several_devices_the_busiest_is_used() -> None:
    timeline = Timeline(device=[DeviceSpan(0, 0, 100, "a"), DeviceSpan(3, 0, 400, "b")])
    breakdown = breakdown_of(timeline, [], WINDOW)
    assert breakdown.measured_on == "device 3"
    assert breakdown.shares()["compute"] == pytest.approx(0.4)


def test_spans_outside_the_window_do_not_count() -> None:
    assert (
        covered_ns(
            [Span(MAIN, -50, 100, "a"), Span(MAIN, 900, 2000, "b"), Span(MAIN, 5000, 6000, "c")], WINDOW
        )
        == 200
    )


def test_the_parts_add_up_to_the_window() -> None:
    timeline = Timeline([Span(MAIN, start, start + 13, "x") for start in range(0, 1000, 17)])
    breakdown = breakdown_of(timeline, operator_calls(timeline), WINDOW)
    assert breakdown.window_seconds == pytest.approx(1000e-9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nccl:all_reduce", True),
        ("ncclDevKernel_AllGather", True),
        ("gloo:broadcast", True),
        ("c10d::allreduce_", True),
        ("_c10d_functional::all_reduce", True),
        ("record_param_comms", True),
        ("aten::mm", False),
        ("Torch-Compiled Region: 0/0", False),
        ("aten::embedding", False),
    ],
)
def test_exchange_between_ranks_is_known_by_its_name(name: str, expected: bool) -> None:
    assert is_collective(name) is expected


MM = Operation("aten::mm", 10, 0.9, 0.9)


@pytest.mark.parametrize(
    ("parts", "begins"),
    [
        ((0.5, 0.3, 0.1, 0.1), "Data: 50%"),
        ((0.1, 0.3, 0.5, 0.1), "Communication: 50%"),
        ((0.1, 0.3, 0.1, 0.5), "Idle: for 50% of the window, the main thread"),
        ((0.1, 0.7, 0.1, 0.1), "Compute: 70% of the window; the largest operation is aten::mm"),
    ],
)
def test_the_sentence_names_the_bottleneck_of_the_window(parts: tuple[float, ...], begins: str) -> None:
    sentence = bottleneck_of(Breakdown(*parts, measured_on="main thread", host_busy_ratio=0.3), [MM])
    assert sentence.startswith(begins)
    assert sentence.endswith(".")


def test_an_idle_device_is_distinguished_from_an_idle_main_thread() -> None:
    slow_host = Breakdown(0, 0.4, 0, 0.6, measured_on="device 0", host_busy_ratio=0.9)
    idle_host = Breakdown(0, 0.4, 0, 0.6, measured_on="device 0", host_busy_ratio=0.1)
    assert "queued work too slowly" in bottleneck_of(slow_host, [MM])
    assert "the main thread mostly ran no operator" in bottleneck_of(idle_host, [MM])


def test_a_window_without_operations_has_its_own_sentence() -> None:
    nothing = Breakdown(0, 0, 0, 0, measured_on="main thread", host_busy_ratio=0)
    assert bottleneck_of(nothing, []) == "Nothing was recorded inside the window."
