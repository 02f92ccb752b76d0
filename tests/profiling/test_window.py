"""Windows of torch's profiler in real training loops."""

from __future__ import annotations

import gzip
import json
import logging
import os
import time
from pathlib import Path

import pytest

from stepscope.errors import ConfigError
from stepscope.profiling.window.profiler_window import ProfilerWindow, WindowOptions
from stepscope.profiling.window.session import Detail, Session
from stepscope.profiling.window.window_profile import Place, window_profile

torch = pytest.importorskip("torch")

NO_FILES = WindowOptions(write_files=False)


class SlowData(torch.utils.data.Dataset):
    """Samples that take two milliseconds each."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int):
        time.sleep(0.002)
        return torch.ones(4)


def run(window: ProfilerWindow, work, steps: int = 8, epoch: int = 0) -> None:
    for step in range(steps):
        work()
        window.step(epoch, step)


SIDE = 512
"""Large enough that nothing else this machine does meanwhile takes longer."""


def multiply() -> None:
    left = torch.ones(SIDE, SIDE)
    for _ in range(10):
        left @ left


def profiled(work, detail: Detail | None = None):
    window = ProfilerWindow(
        epochs=(0,), active=4, warmup=1, options=WindowOptions(write_files=False, detail=detail or Detail())
    )
    run(window, work)
    (profile,) = window.profiles
    return profile


def test_a_loop_of_matrix_products_is_named_after_them() -> None:
    profile = profiled(multiply)
    assert profile.operations[0].name == "aten::mm"
    assert profile.operations[0].calls == 40
    assert profile.operations[0].share_ratio > 0.5
    assert profile.bottleneck.startswith("Compute: ")
    assert "aten::mm" in profile.bottleneck
    assert profile.breakdown.measured_on == "main thread" or torch.cuda.is_available()
    assert (profile.epoch, profile.after_step, profile.steps) == (0, 1, 4)


def test_a_loop_that_sleeps_is_called_idle() -> None:
    profile = profiled(lambda: time.sleep(0.01))
    assert profile.breakdown.shares()["idle"] > 0.9
    assert profile.bottleneck.startswith("Idle: ")
    assert profile.window_seconds >= 0.04


def test_a_loop_that_waits_for_its_loader_is_called_so() -> None:
    batches = iter(torch.utils.data.DataLoader(SlowData(), batch_size=8))
    profile = profiled(lambda: next(batches).sum())
    assert profile.breakdown.shares()["data"] > 0.8
    assert profile.bottleneck.startswith("Data: ")


def product(profile):
    return next(operation for operation in profile.operations if operation.name == "aten::mm")


def test_shapes_places_and_memory_are_recorded_where_wanted() -> None:
    detail = Detail(shapes=True, stacks=True, memory=True)
    first = product(profiled(multiply, detail))
    assert first.shapes == f"[[{SIDE}, {SIDE}], [{SIDE}, {SIDE}]]"
    assert first.place is not None
    assert first.place.endswith(": multiply")
    assert first.memory_bytes == 40 * SIDE * SIDE * 4
    plain = product(profiled(multiply))
    assert (plain.shapes, plain.place, plain.memory_bytes) == (None, None, None)


def test_self_time_and_memory_of_an_operator_are_those_that_torch_computes() -> None:
    session = Session(Detail(memory=True))
    session.prepare()
    session.record()
    multiply()
    session.mark()
    profile = window_profile(session.stop(), Place(steps=1), top=50, with_memory=True)
    torchs = {event.key: event for event in session._profiler.key_averages()}
    assert "aten::mm" in {operation.name for operation in profile.operations}
    for operation in profile.operations:
        event = torchs[operation.name]
        assert operation.self_seconds == pytest.approx(event.self_cpu_time_total * 1e-6)
        assert operation.memory_bytes == event.self_cpu_memory_usage


def test_a_real_training_step_includes_its_backward_pass() -> None:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(32, 64)).sum().backward()
        optimizer.step()

    names = {operation.name for operation in profiled(step).operations}
    assert {"aten::addmm", "aten::mm"} <= names


def test_the_trace_is_a_complete_compressed_chrome_trace_with_a_summary_file(tmp_path: Path) -> None:
    window = ProfilerWindow(epochs=(0,), active=2, warmup=0, directory=tmp_path / "deep" / "profiles")
    run(window, multiply)
    (profile,) = window.profiles
    assert profile.trace is not None
    with gzip.open(profile.trace) as file:
        trace = json.load(file)
    assert sum(event.get("name") == "aten::mm" for event in trace["traceEvents"]) == 20
    names = sorted(path.name for path in (tmp_path / "deep" / "profiles").iterdir())
    assert names == sorted(
        [Path(profile.trace).name, Path(profile.trace).name.replace(".trace.json.gz", ".json")]
    )
    (summary,) = (tmp_path / "deep" / "profiles").glob("*[0-9].json")
    assert json.loads(summary.read_text()) == profile.described()


def test_without_a_directory_files_go_into_the_store_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(tmp_path / "store"))
    window = ProfilerWindow(epochs=(0,), active=1, warmup=0, options=WindowOptions(rank=3))
    run(window, multiply, steps=2)
    (trace,) = (tmp_path / "store" / "profiles").glob("*.gz")
    assert "-epoch0-step0-rank3-" in trace.name


def test_each_chosen_epoch_and_step_has_one_window() -> None:
    window = ProfilerWindow(epochs=(1, 3), steps=(25,), active=2, warmup=1, options=NO_FILES)
    for epoch in range(5):
        for step in range(10):
            torch.ones(2) + 1
            window.step(epoch, epoch * 10 + step)
    windows = [(profile.epoch, profile.after_step, profile.steps) for profile in window.profiles]
    assert windows == [(1, 11, 2), (2, 26, 2), (3, 31, 2)]


def test_a_chosen_step_that_is_skipped_over_is_taken_at_the_next_call() -> None:
    window = ProfilerWindow(epochs=(), steps=(25,), active=1, warmup=0, options=NO_FILES)
    for step in range(0, 100, 10):
        window.step(0, step)
    assert [profile.after_step for profile in window.profiles] == [30]


def test_a_resumed_training_does_not_profile_steps_that_are_long_past() -> None:
    window = ProfilerWindow(epochs=(), steps=(25,), active=1, warmup=0, options=NO_FILES)
    for step in range(1000, 1010):
        window.step(7, step)
    assert window.profiles == ()


def test_a_window_waits_before_it_warms_up() -> None:
    options = WindowOptions(wait=3, write_files=False)
    window = ProfilerWindow(epochs=(0,), active=1, warmup=2, options=options)
    run(window, lambda: None, steps=10)
    assert [profile.after_step for profile in window.profiles] == [5]


def test_a_window_ends_with_its_epoch_without_the_time_between_epochs() -> None:
    window = ProfilerWindow(epochs=(0,), active=100, warmup=1, options=NO_FILES)
    began = time.perf_counter()
    run(window, lambda: time.sleep(0.001), steps=6)
    steps_took = time.perf_counter() - began
    time.sleep(0.2)  # validation, say
    window.step(1, 6)
    (profile,) = window.profiles
    assert profile.steps == 4
    assert profile.window_seconds <= steps_took


@pytest.mark.slow
def test_closing_keeps_the_steps_recorded_so_far() -> None:
    with ProfilerWindow(epochs=(0,), active=100, warmup=0, options=NO_FILES) as window:
        run(window, multiply, steps=4)
    (profile,) = window.profiles
    assert profile.steps == 3
    run(window, multiply, steps=200)
    assert len(window.profiles) == 1


def test_closing_during_the_warm_up_leaves_torchs_profiler_free() -> None:
    with ProfilerWindow(epochs=(0,), active=5, warmup=50, options=NO_FILES) as window:
        run(window, multiply, steps=4)
    assert window.profiles == ()
    with torch.profiler.profile() as own:
        torch.ones(2) + 1
    assert any(event.key == "aten::add" for event in own.key_averages())


def test_another_profiler_is_not_disturbed_and_a_warning_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = ProfilerWindow(epochs=(0,), active=2, warmup=0, options=NO_FILES)
    with torch.profiler.profile() as own:
        run(window, multiply)
    assert window.profiles == ()
    assert [record.message for record in caplog.records] == [
        "Profiling is switched off for this run: torch's profiler is already in use in this process."
    ]
    assert any(event.key == "aten::mm" for event in own.key_averages())


def test_a_failure_is_logged_once_and_training_continues(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_profile: object) -> None:
        raise RuntimeError("the callback is broken")

    options = WindowOptions(write_files=False, told=fail)
    window = ProfilerWindow(epochs=range(3), active=1, warmup=0, options=options)
    for epoch in range(3):
        run(window, lambda: None, steps=4, epoch=epoch)
    window.close()
    assert len(caplog.records) == 1
    assert "the callback is broken" in caplog.text


def test_a_folder_that_cannot_be_written_costs_the_files_not_the_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    window = ProfilerWindow(epochs=(0,), active=1, warmup=0, directory=tmp_path / "taken")
    with caplog.at_level(logging.WARNING):
        run(window, multiply)
    assert window.profiles[0].trace is None
    assert "could not be written" in caplog.text


def test_the_callback_receives_each_profile() -> None:
    received: list[object] = []
    options = WindowOptions(write_files=False, told=received.append)
    window = ProfilerWindow(epochs=(0,), active=1, warmup=0, options=options)
    run(window, lambda: None, steps=3)
    assert received == list(window.profiles)


def test_recording_leaves_the_environment_as_it_was() -> None:
    before = dict(os.environ)
    profiled(multiply)
    assert dict(os.environ) == before


def test_a_window_that_is_not_open_costs_next_to_nothing() -> None:
    window = ProfilerWindow(epochs=(5,), steps=(10**9,))
    began_at = time.process_time()
    for step in range(200_000):
        window.step(0, step)
    assert time.process_time() - began_at < 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"active": 0}, "active is 0; it must be at least 1"),
        ({"warmup": -1}, "warmup is -1; it must be at least 0"),
        ({"options": WindowOptions(top=0)}, "top is 0; it must be at least 1"),
    ],
)
def test_a_wrong_number_is_named_when_the_window_is_made(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ProfilerWindow(**given)
