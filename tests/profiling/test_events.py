"""Raw events of torch's profiler, as versions old and new give them."""

from __future__ import annotations

from types import SimpleNamespace

from stepscope.profiling.window.events import timeline_of

HOST, DEVICE = "cpu", "cuda"


def event(name: str, start: int, end: int, **fields: object) -> SimpleNamespace:
    """An event with the methods that torch's has."""
    values = {
        "name": name,
        "start_ns": start,
        "duration_ns": end - start,
        "device_type": HOST,
        "device_index": 0,
        "start_thread_id": 1,
        "end_thread_id": 1,
        "correlation_id": 0,
        "linked_correlation_id": 0,
        "scope": 0,
        "shapes": [],
        "is_async": False,
        "is_python_function": False,
        "nbytes": 0,
        **fields,
    }
    return SimpleNamespace(**{key: (lambda value=value: value) for key, value in values.items()})


def test_events_are_sorted_by_what_they_are() -> None:
    timeline = timeline_of(
        [
            event("aten::mm", 10, 20, correlation_id=3, shapes=[[2, 2]]),
            event("my range", 0, 50, scope=7),
            event("train.py(3): main", 0, 60, is_python_function=True),
            event("gloo:all_reduce", 5, 9, is_async=True),
            event("gloo:broadcast", 5, 9, end_thread_id=2),
            event("gemm", 15, 40, device_type=DEVICE, linked_correlation_id=3, device_index=1),
            event("[memory]", 12, 12, nbytes=64),
            event("[memory]", 13, 13, nbytes=128, device_type=DEVICE),
            event("profiler::_record_function_exit", 49, 50),
        ],
        HOST,
    )
    assert [(operator.name, operator.id, operator.shapes) for operator in timeline.operators] == [
        ("aten::mm", 3, "[[2, 2]]")
    ]
    assert [scope.name for scope in timeline.ranges] == ["my range"]
    assert [function.name for function in timeline.functions] == ["train.py(3): main"]
    assert [call.name for call in timeline.overlapping] == ["gloo:all_reduce", "gloo:broadcast"]
    assert [(activity.name, activity.device, activity.begun_by) for activity in timeline.device] == [
        ("gemm", 1, 3)
    ]
    assert [(allocation.count_bytes, allocation.on_device) for allocation in timeline.allocations] == [
        (64, False),
        (128, True),
    ]


def test_the_shadow_of_a_range_on_the_device_is_not_work() -> None:
    timeline = timeline_of(
        [
            event("ProfilerStep#1", 0, 50, scope=7),
            event("ProfilerStep#1", 10, 40, device_type=DEVICE),
            event("gemm", 10, 40, device_type=DEVICE),
        ],
        HOST,
    )
    assert [activity.name for activity in timeline.device] == ["gemm"]


def test_a_drivers_call_is_not_taken_for_the_operator_with_its_number() -> None:
    timeline = timeline_of([event("cudaLaunchKernel", 0, 1, correlation_id=11)], HOST)
    assert timeline.operators[0].id == 0


def test_an_older_torch_has_microseconds_and_no_python_functions() -> None:
    older = [
        SimpleNamespace(
            **{
                key: value
                for key, value in vars(new_event).items()
                if key not in ("start_ns", "duration_ns", "is_python_function")
            }
        )
        for new_event in (event("aten::mm", 0, 0), event("train.py(3): main", 0, 0))
    ]
    for old_event in older:
        old_event.start_us, old_event.duration_us = (lambda: 7), (lambda: 5)
    timeline = timeline_of(older, HOST)
    assert (timeline.operators[0].start_ns, timeline.operators[0].end_ns) == (7000, 12000)
    assert [function.name for function in timeline.functions] == ["train.py(3): main"]


def test_nothing_recorded_is_an_empty_timeline() -> None:
    assert len(timeline_of([], HOST)) == 0


def test_an_event_whose_name_is_not_text_does_not_lose_the_others() -> None:
    def name() -> str:
        return b"train.py(0): \xae".decode()

    freed = event("", 0, 5, is_python_function=True)
    freed.name = name
    timeline = timeline_of([freed, event("aten::mm", 10, 20)], HOST)
    assert [span.name for span in timeline.functions] == ["(unknown)"]
    assert [span.name for span in timeline.operators] == ["aten::mm"]
