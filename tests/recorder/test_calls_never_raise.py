"""No public call raises into training, whatever it is given; what can be kept of the call is kept."""

from __future__ import annotations

import argparse
import inspect
import logging
import math
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
from stepscope import GPUMonitor, RealTimeMetricsCollector, TrainingMonitor, TrainingMonitorCallback
from stepscope.errors import ConfigError, RecorderError
from tests.cases import few
from tests.recorder.odd_values import BrokenMapping, HasNoClass, Optimizer, RaisesAtAll, itself, odd_values

NO_AGENT = {"agent": {"mode": "none"}, "recorder": {"segment_bytes": 65536}}

Read = Callable[[str], "stepscope.reading.Run"]


@pytest.fixture
def monitor(folder: Path) -> Iterator[TrainingMonitor]:
    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder)
    yield monitor
    monitor.stop_monitoring()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingMonitor]:
    """One that many examples call, as a training does."""
    monitor = TrainingMonitor(NO_AGENT, run="shared", directory=tmp_path_factory.mktemp("shared"))
    monitor.start_monitoring()
    yield monitor
    monitor.stop_monitoring()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


METHODS = [
    name
    for name, member in inspect.getmembers(TrainingMonitor, inspect.isfunction)
    if not name.startswith("_") and name not in {"start_monitoring", "stop_monitoring", "continue_in_child"}
]
"""Every public method; those that begin and end a run have tests of their own."""

places = st.integers(0, len(odd_values()) - 1)
numbers = st.floats() | st.integers()
values = st.one_of(
    places.map(lambda place: odd_values()[place]),
    numbers,
    st.text(),
    st.recursive(
        numbers | st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
)


def arguments_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any values for the arguments a method has; names of its own for one that takes any."""
    parameters = list(inspect.signature(getattr(TrainingMonitor, name)).parameters.values())[1:]
    named = {
        parameter.name: values
        for parameter in parameters
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    wanted = {parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty}
    given_ones = {name: strategy for name, strategy in named.items() if name in wanted}
    others = {name: strategy for name, strategy in named.items() if name not in wanted}
    fixed = st.fixed_dictionaries(given_ones, optional=others)
    if len(named) == len(parameters):
        return fixed
    free = st.dictionaries(st.sampled_from(["active", "epochs", "nonsense", "options", "steps"]), values)
    return st.tuples(fixed, free).map(lambda pair: {**pair[1], **pair[0]})


@pytest.mark.parametrize("name", few(METHODS, 8))
@settings(max_examples=60)
@given(data=st.data())
def test_no_public_method_raises_whatever_it_is_given(
    name: str, shared: TrainingMonitor, data: st.DataObject
) -> None:
    arguments = data.draw(arguments_of(name))
    parameters = inspect.signature(getattr(TrainingMonitor, name)).parameters.values()
    in_order = [
        parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    getattr(shared, name)(*(arguments.pop(key) for key in in_order if key != "self"), **arguments)
    shared.unwatch()
    shared.timer.step = 0
    shared.log({"after": 1.0}, step=1)  # and it still records
    assert shared.current_step() in (1, 2)


@pytest.mark.slow
def test_each_odd_value_passes_through_every_call(monitor: TrainingMonitor, read: Read) -> None:
    count = len(odd_values())
    # Nine of each: what is used up by one call is whole for the next.
    for odd, *more in zip(*(odd_values() for _ in range(9)), strict=True):
        monitor.log(odd)
        monitor.log({"value": odd, "beside": 1.0})
        monitor.log({"loss": 1.0}, step=odd)
        monitor.log_training_step(odd, *more[:5], step=odd, epoch=odd)
        monitor.log_training_step(loss=0.5, model=odd, optimizer=odd, custom_metrics=more[5])
        monitor.log_training_metrics(more[6])
        monitor.record_metrics(odd, odd, odd, odd)
        monitor.record_late(odd, odd, odd)
        monitor.log_params(odd)
        monitor.log_params({"value": odd, "list": [odd], "beside": 1})
        with monitor.phase(odd):
            pass
        monitor.watch(odd, odd, gradients=odd, histograms=odd, activations=odd, attention=odd)
        monitor.profile(nonsense=odd, active=odd).step(1, 1)
        monitor.alert_system.add_alert_rule(odd, odd, odd, odd, odd, for_seconds=odd, advice=odd)
        assert isinstance(monitor.get_training_stats(), dict)
        assert isinstance(monitor.get_performance_summary(), dict)
        monitor.batches(odd)
    monitor.stop_monitoring()
    run = read("a")
    assert run.series("beside").values.tolist() == [1.0] * count
    assert (run.series("loss").values == 0.5).sum() >= count - 1  # one of them has a loss of its own
    assert run.params["beside"] == 1


def test_a_run_may_end_by_any_odd_value_and_be_called_after_that(
    monitor: TrainingMonitor, read: Read
) -> None:
    for odd in odd_values():
        monitor.start_monitoring()
        monitor.start_monitoring()
        monitor.stop_monitoring(odd, odd)
        monitor.stop_monitoring(odd, odd)
        monitor.log(odd, odd)
        monitor.log_training_step(loss=odd)
        monitor.log_params({"late": odd})
    run = read("a")
    assert len(run.segments) == len(odd_values())
    assert run.status == "finished"


def test_a_number_in_the_place_of_the_model_is_the_loss(folder, read, caplog) -> None:
    with stepscope.TrainingMonitor(run="positional", directory=folder) as monitor:
        for number in range(3):
            monitor.log_training_step(float(number))
    assert read("positional").series("loss").values.tolist() == [0.0, 1.0, 2.0]
    (warning,) = [record.message for record in caplog.records if record.name.startswith("stepscope")]
    assert warning.startswith("model is 0.0, a number; it is recorded as the loss.")


def test_what_is_wrong_in_a_step_is_named_once_and_the_rest_is_recorded(
    monitor: TrainingMonitor, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        monitor.log_training_step(loss=1.0, custom_metrics=5, model=5, epoch="abc", optimizer=7, accuracy=0.5)
    monitor.stop_monitoring()
    assert warnings_of(caplog) == [
        "epoch is 'abc'; expected a number. The rest of the call was recorded.",
        (
            "optimizer is 7; its learning rate could not be read (AttributeError(\"'int' object has no "
            "attribute 'param_groups'\")). Give it as learning_rate=...; the rest of the call was recorded."
        ),
        "custom_metrics is 5; expected a mapping of names to numbers. The rest of the call was recorded.",
        "model is 5; expected a torch.nn.Module. It is not watched.",
    ]
    run = read("a")
    assert run.series("loss").values.tolist() == [1.0] * 3
    assert run.series("accuracy").values.tolist() == [0.5] * 3
    assert run.series("epoch").values.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    "groups",
    [RuntimeError("no groups"), 5, [5], (), {}, {"lr": 1}, [{}], [[]]],
    ids=lambda one: repr(one)[:20],
)
def test_a_step_is_recorded_whatever_the_parameter_groups_are(
    groups: Any, monitor: TrainingMonitor, read: Read
) -> None:
    monitor.log_training_step(loss=1.0, optimizer=Optimizer(groups))
    monitor.stop_monitoring()
    assert [info.key for info in read("a").keys()] == ["epoch", "loss", "step_seconds"]


def test_what_is_no_training_metrics_is_named(
    monitor: TrainingMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    for odd in (5, None, "loss", stepscope.TrainingMetrics, argparse.Namespace(lr=1)):
        monitor.log_training_metrics(odd)
    assert warnings_of(caplog) == [
        "metrics is 5; expected a TrainingMetrics. Nothing of the call was recorded.",
    ]


def test_training_metrics_with_odd_custom_ones_keep_all_others(monitor: TrainingMonitor, read: Read) -> None:
    monitor.log_training_metrics(stepscope.TrainingMetrics(loss=1.0, step=4, batch_size=8, custom_metrics=7))
    monitor.stop_monitoring()
    run = read("a")
    assert run.series("batch_size").steps.tolist() == run.series("loss").steps.tolist() == [4]


def test_a_mapping_that_raises_halfway_keeps_what_it_gave(
    monitor: TrainingMonitor, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.log(BrokenMapping())
    monitor.log({"nested": BrokenMapping(), "beside": 2.0})
    monitor.log_training_step(loss=3.0, custom_metrics=BrokenMapping())
    monitor.stop_monitoring()
    run = read("a")
    assert run.series("good").values.tolist() == [1.0, 1.0]
    assert run.series("nested/good").values.tolist() == [1.0]
    assert run.series("beside").values.tolist() == [2.0]
    assert run.series("loss").values.tolist() == [3.0]
    assert "no value" in caplog.text


def test_a_mapping_that_holds_itself_is_recorded_once(monitor: TrainingMonitor, read: Read) -> None:
    monitor.log(itself())
    monitor.stop_monitoring()
    assert [info.key for info in read("a").keys()] == ["loss"]


def test_a_value_that_raises_at_everything_costs_only_itself(monitor: TrainingMonitor, read: Read) -> None:
    monitor.log({"first": 1.0, "odd": RaisesAtAll(), "none": HasNoClass(), "array": [1, 2], "last": 2.0})
    monitor.stop_monitoring()
    run = read("a")
    assert [info.key for info in run.keys()] == ["first", "last"]
    assert run.arrays("array")[0][1].tolist() == [1.0, 2.0]
    assert [event.fields["key"] for event in run.events("text")] == ["odd", "none"]


def test_a_generator_that_is_logged_is_not_used_up(monitor: TrainingMonitor) -> None:
    mine = (number for number in range(3))
    monitor.log({"mine": mine})
    assert list(mine) == [0, 1, 2]


@pytest.mark.parametrize("step", [math.nan, math.inf, "abc", None, 2**70, torch.tensor([1, 2]), RaisesAtAll])
def test_a_step_that_is_no_number_is_counted_instead(step: Any, monitor: TrainingMonitor, read: Read) -> None:
    monitor.log({"loss": 0.0}, step=10)
    monitor.log({"loss": 1.0}, step=step() if isinstance(step, type) else step)
    monitor.log({"loss": 2.0})
    monitor.stop_monitoring()
    assert read("a").series("loss").steps.tolist() == [10, 11, 12]


def test_a_step_given_as_a_tensor_is_a_plain_number_from_then_on(
    monitor: TrainingMonitor, read: Read
) -> None:
    monitor.log({"loss": 1.0}, step=torch.tensor(7))
    monitor.event("mark")
    assert type(monitor.current_step()) is int
    monitor.stop_monitoring()
    assert read("a").events("mark")[0].step == 7


def test_counting_continues_after_the_largest_possible_step(monitor: TrainingMonitor, read: Read) -> None:
    for _ in range(2):
        monitor.log({"loss": 1.0}, step=2**63 - 1)
    monitor.log({"loss": 2.0})
    monitor.log({"loss": 3.0})
    monitor.stop_monitoring()
    assert read("a").series("loss").values.tolist() == [1.0, 1.0, 2.0, 3.0]


def test_a_phase_with_an_odd_name_counts_no_step(monitor: TrainingMonitor, read: Read) -> None:
    for name in (5, RaisesAtAll()):
        with monitor.phase(name):
            pass
    monitor.record_now({"odd": "text"})
    monitor.log({"loss": 1.0})
    monitor.stop_monitoring()
    run = read("a")
    assert run.series("loss").steps.tolist() == [0]
    assert (
        run.series("phase/5_seconds").steps.tolist()
        == run.series("phase/unnamed_seconds").steps.tolist()
        == [0]
    )


@pytest.mark.parametrize("loader", [None, 5])
def test_a_loop_over_no_loader_raises_what_it_would_without_us(loader: Any, monitor: TrainingMonitor) -> None:
    with pytest.raises(TypeError) as plain:
        iter(loader)
    with pytest.raises(TypeError) as ours:
        for _ in monitor.batches(loader):
            pass
    assert str(ours.value) == str(plain.value)


@pytest.mark.parametrize(
    ("model", "optimizer"), [(None, None), (5, 5), ("model", "optimizer"), (torch.nn.Linear, 1)]
)
def test_what_is_no_model_is_named_and_nothing_is_watched(
    model: Any, optimizer: Any, monitor: TrainingMonitor, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    save = torch.save
    monitor.watch(model, optimizer)
    assert torch.save is save
    for _ in monitor.batches([1, 2, 3]):
        monitor.log({"loss": 1.0})
    monitor.stop_monitoring()
    (warning,) = warnings_of(caplog)
    assert warning.startswith("model is ")
    assert warning.endswith("; expected a torch.nn.Module. It is not watched.")
    assert read("a").series("loss").steps.tolist() == [0, 1, 2]


def test_a_model_is_watched_beside_what_is_no_optimizer(
    monitor: TrainingMonitor, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.watch(model, "optimizer", histograms="often")
    for x in monitor.batches([torch.ones(1, 1)] * 3):
        model(x).sum().backward()
        optimizer.step()
    monitor.stop_monitoring()
    assert read("a").series("phase/optimizer_seconds").steps.tolist() == [0, 1, 2]
    assert warnings_of(caplog) == [
        (
            "optimizer is 'optimizer'; expected a torch.optim.Optimizer or a list of them. "
            "The model is watched with any optimizer that steps."
        ),
        (
            "histograms is 'often'; expected the number of steps between two samples, such as 1000. "
            "They are not recorded."
        ),
    ]


def test_a_profiler_window_that_makes_no_sense_rests(
    monitor: TrainingMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    for options in ({"nonsense": 1}, {"active": 0}, {"epochs": 5}, {"directory": 5}):
        window = monitor.profile(**options)
        window.step(1, 1)
        assert window.profiles == ()
    assert "profile() was given {'nonsense': 1}" in caplog.text


def test_figures_can_be_asked_for_before_the_start_and_after_the_end(monitor: TrainingMonitor) -> None:
    assert monitor.get_training_stats() == {}
    assert monitor.get_performance_summary()["steps"] == 0
    monitor.stop_monitoring()
    monitor.log_training_step(loss=1.0)
    monitor.stop_monitoring()
    assert monitor.get_performance_summary()["steps"] == 1


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ((5, None), "finished", ""),
        (("done", 7), "finished", "7"),
        ((None, ["list"]), "finished", "['list']"),
        (("failed", "mine"), "failed", "mine"),
    ],
)
def test_a_run_ends_whatever_its_ending_is_called(
    ending: Any, status: str, reason: str, monitor: TrainingMonitor, read: Read
) -> None:
    monitor.log({"loss": 1.0})
    monitor.stop_monitoring(*ending)
    assert (read("a").status, read("a").reason) == (status, reason)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_the_exception_that_leaves_the_block_is_the_users_own(folder: Path, read: Read) -> None:
    with pytest.raises(Unspeakable), TrainingMonitor(NO_AGENT, run="a", directory=folder):
        raise Unspeakable
    with pytest.raises(Unspeakable), RealTimeMetricsCollector(run="b", directory=folder):
        raise Unspeakable
    assert (read("a").status, read("a").reason) == ("failed", "Unspeakable")
    assert read("b").status == "failed"


def test_the_first_calls_of_many_threads_make_one_segment(monitor: TrainingMonitor, read: Read) -> None:
    together = threading.Barrier(8)

    def log() -> None:
        together.wait()
        monitor.log({"loss": 1.0}, step=5)

    threads = [threading.Thread(target=log) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monitor.stop_monitoring()
    run = read("a")
    assert len(run.segments) == 1
    assert len(run.series("loss")) == 8


def test_a_signal_handler_may_call_anything(monitor: TrainingMonitor, read: Read) -> None:
    def handle(*_: object) -> None:
        monitor.log({"caught": 1.0})
        monitor.log(5, "odd")
        monitor.log_training_step(loss=1.0, custom_metrics=5)
        monitor.log_params({"odd": object()})

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    monitor.stop_monitoring()
    assert read("a").series("caught").values.tolist() == [1.0]


def test_a_log_handler_of_the_users_own_that_raises_stops_nothing(
    monitor: TrainingMonitor, read: Read
) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no log")

    logger, handler = logging.getLogger("stepscope"), Raising()
    logger.addHandler(handler)
    try:
        monitor.log_training_step(loss=1.0, custom_metrics=5)
    finally:
        logger.removeHandler(handler)
    monitor.stop_monitoring()
    assert read("a").series("loss").values.tolist() == [1.0]


def test_a_place_that_no_journal_can_be_opened_in_stops_no_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_name() -> os.uname_result:
        raise RuntimeError("no name")

    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder)
    monkeypatch.setattr("stepscope.recorder.recording.opening_of", no_name)
    with monitor:
        monitor.log({"loss": 1.0})
        monitor.log_training_step(loss=1.0)
        monitor.event("mark")
        monitor.log_params({"lr": 0.1})
    assert len([line for line in warnings_of(caplog) if "Recording could not start" in line]) == 1


def test_with_strict_each_mistake_raises_instead(folder: Path) -> None:
    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder, strict=True)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: monitor.log_training_step(loss=1.0, custom_metrics=5), "custom_metrics is 5"),
        (lambda: monitor.log_training_step(loss=1.0, epoch="abc"), "epoch is 'abc'"),
        (lambda: monitor.log_training_step(loss=1.0, optimizer=5), "optimizer is 5"),
        (lambda: monitor.log_training_metrics(5), "metrics is 5"),
        (lambda: monitor.log({"loss": 1.0}, step=math.nan), "step is nan"),
        (lambda: monitor.log(BrokenMapping()), "no value"),
        (lambda: monitor.log_params(5), "params is 5"),
        (lambda: monitor.log_params({"a": object}), "recorded as text"),
        (lambda: monitor.watch(5), "model is 5"),
        (lambda: monitor.profile(nonsense=1), "nonsense"),
        (lambda: monitor.alert_system.add_alert_rule("a", 5), "condition is 5"),
    ]
    with monitor:
        for call, words in calls:
            with pytest.raises(RecorderError, match=words):
                call()
    with pytest.raises(RecorderError, match="after stop_monitoring"):
        monitor.log({"loss": 1.0})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"run": 5}, "run is 5; it must be text"),
        ({"project": object}, "project is <class 'object'>; it must be text"),
        ({"directory": 5}, "directory is 5; it must be the path of a folder"),
        ({"directory": "a\0b"}, "it must be the path of a folder"),
        ({"strict": "yes"}, "strict is 'yes'; it must be true or false"),
        ({"params": 5}, "params is 5; expected a mapping"),
        ({"config": 5}, "not int"),
        ({"config": {"quux": 1}}, "no setting 'quux'"),
    ],
)
def test_a_mistake_at_construction_stops_before_any_training(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainingMonitor(**arguments)


def test_an_alert_rule_that_makes_no_sense_is_named_and_the_others_hold(
    monitor: TrainingMonitor, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    rules = monitor.alert_system
    rules.add_alert_rule("no condition", 5)
    rules.add_alert_rule(5, "loss > 1")
    rules.add_alert_rule("severity", "loss > 1", severity="loud")
    rules.add_alert_rule("cooldown", "loss > 1", cooldown_seconds="long")
    rules.add_alert_rule("unreadable", "loss >>> 1")
    rules.add_alert_rule(RaisesAtAll(), RaisesAtAll(), RaisesAtAll())
    rules.add_alert_rule("fine", lambda metrics: metrics.loss > 1)
    monitor.log({"loss": 2.0})
    monitor.stop_monitoring()
    assert {event.fields["name"] for event in read("a").events("alert_rule")} == {"fine"}
    assert [event.fields["rule"] for event in read("a").events("alert_condition")] == ["fine"]
    lines = warnings_of(caplog)
    assert len(lines) == 6
    assert "cooldown_seconds is 'long'; it must be a number of seconds." in lines[3]
    assert not any("\n" in line for line in lines)
    assert lines[0].startswith(
        "The alert rule 'no condition' was not added: condition is 5; it must be a function"
    )


@pytest.mark.parametrize("strict", [False, True])
def test_a_condition_that_raises_is_named_once_and_stops_nothing(
    strict: bool, folder: Path, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = TrainingMonitor(NO_AGENT, run="a", directory=folder, strict=strict)
    monitor.alert_system.add_alert_rule("broken", lambda metrics: 1 / 0)
    monitor.log({"loss": 1.0})
    monitor.log({"loss": 2.0})
    if not strict:
        monitor.log({"odd": RaisesAtAll()})
    monitor.stop_monitoring()
    assert read("a").status == "finished"
    assert len([line for line in warnings_of(caplog) if "'broken' failed: ZeroDivisionError" in line]) == 1


def test_each_odd_value_passes_through_the_older_interfaces(
    monitor: TrainingMonitor, folder: Path, tmp_path: Path
) -> None:
    callback = TrainingMonitorCallback(GPUMonitor(log_dir=tmp_path / "logs"), monitor)
    collector = RealTimeMetricsCollector(run="a", directory=folder)
    collector.monitor = monitor
    for odd in odd_values():
        callback.on_step_begin()
        callback.on_step_end(odd, odd, odd, odd, odd, odd)
        collector.collect(odd, odd)
        collector.collect({"value": odd})
    callback.on_step_end(1, loss=0.625)
    assert isinstance(callback.on_train_end(), dict)
    assert "0.625" in "".join(path.read_text() for path in (tmp_path / "logs").iterdir())


@pytest.mark.parametrize(
    "arguments",
    [{"gpu_index": "a"}, {"gpu_index": -1}, {"sample_interval": "a"}, {"history_size": -1}, {"log_dir": 5}],
)
def test_a_gpu_monitor_names_a_wrong_argument(arguments: dict[str, Any]) -> None:
    with pytest.raises(RecorderError, match=next(iter(arguments))):
        GPUMonitor(**arguments)


def test_the_older_interfaces_name_a_wrong_argument() -> None:
    with pytest.raises(ConfigError, match="gpu_monitor is 5"):
        TrainingMonitorCallback(5)
    with pytest.raises(ConfigError, match="monitor is 'mine'"):
        TrainingMonitorCallback(monitor="mine")
    with pytest.raises(ConfigError, match="buffer_size is 'large'"):
        RealTimeMetricsCollector("large")


class WithoutText:
    """Something whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_an_event_whose_kind_has_no_text_is_reported_and_does_not_raise(
    monitor: TrainingMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.event(WithoutText())  # type: ignore[arg-type]
    monitor.event("kind", field=WithoutText())
    monitor.stop_monitoring()
    assert "The event <WithoutText" in caplog.text


def test_a_very_long_kind_is_cut_in_the_warning(
    monitor: TrainingMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.event("a" * 10_000, text="y" * 5_000_000)
    monitor.stop_monitoring()
    assert len(caplog.text) < 1000


def test_a_long_event_is_cut_and_recorded(folder: Path, read: Read, caplog: pytest.LogCaptureFixture) -> None:
    monitor = TrainingMonitor({"agent": {"mode": "none"}}, run="a", directory=folder)
    monitor.event("sample", text="word " * 1_000_000, after=1)
    monitor.event("ids", numbers=list(range(500_000)))
    monitor.event("names", names=["name"] * 500_000)
    monitor.event("short", text="all of it")
    monitor.stop_monitoring()
    sample, ids, names, short = read("a").events()
    assert sample.fields["text"].startswith("word word")
    assert 60_000 < len(sample.fields["text"]) <= 64_000
    assert sample.fields["after"] == 1
    assert ids.fields["numbers"][:2] == [0, 1]
    assert 19_000 < len(ids.fields["numbers"]) <= 20_000
    assert names.fields["names"][:3_000] == ["name"] * 3_000
    assert short.fields == {"text": "all of it"}
    assert "The event 'sample' was cut to at most 64,000 characters and 20,000 values." in caplog.text


def test_a_very_long_name_of_a_metric_is_cut(monitor: TrainingMonitor, read: Read) -> None:
    monitor.log({"n" * 1_000_000: 1.0, "loss": 2.0})
    monitor.stop_monitoring()
    assert sorted(len(series.key) for series in read("a").keys()) == [4, 10_000]


@pytest.mark.parametrize("kind", ["property", "weakref"])
def test_an_object_whose_class_raises_stops_nothing(kind: str, monitor: TrainingMonitor, read: Read) -> None:
    odd = HasNoClass() if kind == "property" else weakref.proxy(WithoutText())
    for _ in range(3):
        monitor.log_training_step(loss=1.0, model=odd, optimizer=odd)
    monitor.event("kind", step=odd)
    monitor.watch(odd)
    monitor.stop_monitoring()
    assert len(read("a").series("loss").values) == 3
