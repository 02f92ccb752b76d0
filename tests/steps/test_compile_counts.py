"""Work of the real compiler is reported at the step in which it happened."""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.callback
from torch._dynamo.utils import counters

from stepscope.steps.evidence.compile_counts import CompileCounts


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.changed: list[Any] = []

    def __call__(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for one, fields in self.events if one == kind]


@pytest.fixture
def recorded() -> RecordedEvents:
    torch._dynamo.reset()
    return RecordedEvents()


def test_a_compilation_is_recorded_once_and_only_in_its_step(recorded: RecordedEvents) -> None:
    counts = CompileCounts(recorded, recorded.changed.append)
    assert counts.read(1) == {}
    frames_before = counters["frames"]["ok"]
    double = torch.compile(lambda x: x * 2, backend="eager")
    double(torch.ones(3))
    figures = counts.read(1)
    assert 0 < figures["compile/seconds"] < 60
    # Not always one: a finalizer of something else that happens to run in the compiled region counts too.
    assert figures["compile/frames"] == counters["frames"]["ok"] - frames_before >= 1
    assert figures["compile/graph_breaks"] == 0.0
    assert (figures["compile/recompiles"], figures["compile/limit_hits"]) == (0.0, 0.0)
    double(torch.ones(3))
    assert counts.read(1) == {}


def test_compilations_before_watching_are_not_recorded(recorded: RecordedEvents) -> None:
    torch.compile(lambda x: x * 3, backend="eager")(torch.ones(3))
    counts = CompileCounts(recorded, recorded.changed.append)
    assert counts.read(1) == {}


def test_a_graph_break_is_recorded_with_its_reason_and_line(recorded: RecordedEvents) -> None:
    counts = CompileCounts(recorded, recorded.changed.append)

    def noisy(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    torch.compile(noisy, backend="eager")(torch.ones(3))
    assert counts.read(1)["compile/graph_breaks"] >= 1
    [event] = recorded.of("graph_break")
    assert event["place"].startswith("test_compile_counts.py:")
    assert event["place"].endswith(" in noisy")
    assert "graph_break" in event["reason"] or "graph break" in event["reason"].lower()


def test_a_recompilation_is_recorded_with_its_reason(recorded: RecordedEvents) -> None:
    counts = CompileCounts(recorded, recorded.changed.append)

    @torch.compile(backend="eager", dynamic=False)
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    scaled(torch.ones(3))
    assert counts.read(1)["compile/recompiles"] == 0
    scaled(torch.ones(4))
    assert counts.read(1)["compile/recompiles"] == 1
    [event] = recorded.of("recompile")
    assert "size mismatch" in event["reason"]
    assert event["function"] == "scaled"


@pytest.mark.filterwarnings("ignore")
def test_reaching_the_recompile_limit_is_recorded(recorded: RecordedEvents) -> None:
    counts = CompileCounts(recorded, recorded.changed.append)

    @torch.compile(backend="eager", dynamic=False)
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with torch._dynamo.config.patch(recompile_limit=2):
        for size in range(2, 7):
            scaled(torch.ones(size))
    assert counts.read(1)["compile/limit_hits"] == 1
    assert len(recorded.of("compile_limit")) == 1


def test_a_compilation_marks_the_probe_as_changed_until_it_is_closed(recorded: RecordedEvents) -> None:
    handler = torch._dynamo.callback.callback_handler
    before = len(handler.end_callbacks)
    counts = CompileCounts(recorded, recorded.changed.append)
    counts.read(1)
    torch.compile(lambda x: x * 5, backend="eager")(torch.ones(3))
    assert recorded.changed[0] is counts
    counts.close()
    counts.close()
    assert len(handler.end_callbacks) == before
    recorded.changed.clear()
    torch.compile(lambda x: x * 7, backend="eager")(torch.ones(3))
    assert recorded.changed == []


def test_where_the_compiler_is_not_loaded_it_is_not_loaded_for_this(recorded: RecordedEvents) -> None:
    loaded: dict[str, Any] = {}
    counts = CompileCounts(recorded, recorded.changed.append, loaded)
    assert counts.read(1) == {}
    assert loaded == {}


def test_looking_makes_no_entry_in_the_compilers_counters(recorded: RecordedEvents) -> None:
    before = set(torch._dynamo.utils.counters)
    counts = CompileCounts(recorded, recorded.changed.append)
    counts.read(1)
    counts.close()
    assert set(torch._dynamo.utils.counters) == before


class Compiler(SimpleNamespace):
    """The accounts of a compiler, as a test has them."""

    def compile(self, reason: str | None = None, took_us: int = 1000) -> None:
        self.counters.setdefault("frames", Counter())["ok"] += 1
        self.cumulative_time_spent_ns["entire_frame_compile"] += took_us * 1000
        record = SimpleNamespace(
            co_name="step",
            co_filename="/home/me/train.py",
            co_firstlineno=3,
            recompile_reason=reason,
            fail_reason=None,
            duration_us=took_us,
        )
        self._compilation_metrics.append(record)


def compiler(kept: int = 64) -> Compiler:
    return Compiler(
        counters={},
        graph_break_reasons=[],
        _compilation_metrics=deque(maxlen=kept),
        cumulative_time_spent_ns={"entire_frame_compile": 0},
    )


def test_further_reasons_are_counted_but_no_longer_recorded(recorded: RecordedEvents) -> None:
    dynamo = compiler()
    counts = CompileCounts(recorded, recorded.changed.append, {"torch._dynamo.utils": dynamo})
    counted = 0.0
    for step in range(50):
        dynamo.compile(reason=f"size {step}")
        counted += counts.read(1)["compile/recompiles"]
    assert counted == 50
    assert len(recorded.of("recompile")) == 20


def test_a_step_with_more_compilations_than_are_kept_has_its_whole_time(recorded: RecordedEvents) -> None:
    dynamo = compiler(kept=4)
    counts = CompileCounts(recorded, recorded.changed.append, {"torch._dynamo.utils": dynamo})
    for _ in range(10):
        dynamo.compile()
    figures = counts.read(1)
    assert figures["compile/frames"] == 10
    assert figures["compile/seconds"] == pytest.approx(0.01)


def test_counters_that_were_cleared_start_from_nothing(recorded: RecordedEvents) -> None:
    dynamo = compiler()
    for _ in range(5):
        dynamo.compile()
    counts = CompileCounts(recorded, recorded.changed.append, {"torch._dynamo.utils": dynamo})
    dynamo.counters.clear()
    dynamo.cumulative_time_spent_ns["entire_frame_compile"] = 0
    dynamo.compile()
    figures = counts.read(1)
    assert (figures["compile/frames"], figures["compile/seconds"]) == (1.0, pytest.approx(0.001))


def test_paths_are_recorded_without_their_folders(recorded: RecordedEvents) -> None:
    dynamo = compiler()
    counts = CompileCounts(recorded, recorded.changed.append, {"torch._dynamo.utils": dynamo})
    dynamo.compile(reason="size")
    counts.read(1)
    assert recorded.of("recompile")[0]["place"] == "train.py:3"


def test_forward_and_backward_of_a_compiled_step_are_recorded(recorded: RecordedEvents) -> None:
    counts = CompileCounts(recorded, recorded.changed.append)
    model = torch.compile(torch.nn.Linear(4, 2), backend="aot_eager")
    model(torch.ones(3, 4)).sum().backward()
    assert counts.read(1)["compile/frames"] >= 1
    model(torch.ones(3, 4)).sum().backward()
    assert counts.read(1) == {}
