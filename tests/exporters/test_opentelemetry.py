"""A collector receives the metrics of live runs over OTLP, and one that fails harms nothing."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.agent.ingest import export_queue
from stepscope.agent.ingest.export_queue import ExporterStatus
from stepscope.agent.ingest.feeds import Feeds, make_feed
from stepscope.cli.main import main
from stepscope.config.secret import redacted
from stepscope.errors import ConfigError, StepscopeError
from stepscope.exporters.base import Feed, Table
from stepscope.exporters.opentelemetry import OpenTelemetry
from stepscope.opentelemetry import conventions
from stepscope.schema.run import Process
from stepscope.schema.sample import DeviceFacts
from stepscope.schema.series import Source
from tests.opentelemetry.receiver import Receiver, value

PAGE = (Path(__file__).parents[2] / "docs" / "opentelemetry.md").read_text()
CONVERSIONS = (*conventions.GPU, *conventions.HOST, *conventions.DEVICE, *conventions.PROCESS)

SECOND_NS = 10**9
GPU = DeviceFacts("GPU-a", {"uuid": "GPU-a", "index": 0, "name": "Example One", "vendor": "Example"})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def rows(key: str, number: float, second: int = 1, run: str = "run-1", device: str = "") -> Table:
    source = Source(run, "s", None, "node1", device, "seconds") if device else Source(run, "s", 0, "node1")
    times_ns = np.array([second * SECOND_NS])
    return Table(source, [key], np.array([second]), times_ns, np.array([[number]]))


def process(run: str = "run-1", name: str = "mnist ✓") -> Process:
    return Process(run, name, "project", "s", 0, "node1", 7, "rank", started_ns=1)


def exporter(
    receiver: Receiver, clock: Callable[[], float] = lambda: 0.0, **options: object
) -> OpenTelemetry:
    return OpenTelemetry(endpoint=receiver.address, _now=clock, **options)


def test_points_are_sent_at_an_interval_with_the_time_of_their_values(receiver: Receiver) -> None:
    clock = 0.0
    feed = exporter(receiver, lambda: clock, interval_s=10.0)
    feed.begin(process())
    feed.describe(GPU)
    feed.take(rows("loss", 3.0, second=5))
    feed.take(rows("gpu/utilization_ratio", 0.5, second=6, device="GPU-a"))
    assert receiver.requests == []
    clock = 10.0
    feed.take(rows("loss", 2.0, second=7))
    ((of_loss, loss),) = receiver.points("ml.training.loss")
    assert (value(loss), loss.time_unix_nano, of_loss) == (2.0, 7 * SECOND_NS, {"ml.training.rank": 0})
    ((of_gpu, busy),) = receiver.points("hw.gpu.utilization")
    assert (value(busy), busy.time_unix_nano, of_gpu["hw.id"]) == (0.5, 6 * SECOND_NS, "GPU-a")
    assert receiver.paths == ["/v1/metrics"]
    feed.close()
    assert len(receiver.requests) == 1  # nothing was new


def test_a_resource_says_which_run_on_which_host(receiver: Receiver) -> None:
    feed = exporter(receiver)
    for run, name in (("run-1", "mnist ✓"), ("run-2", "other")):
        feed.begin(process(run, name))
        feed.take(rows("loss", 1.0, run=run))
    feed.finish("run-1", "s", 0)
    assert receiver.resources() == [
        {
            "service.name": "stepscope",
            "service.instance.id": run,
            "host.name": "node1",
            "ml.run.name": name,
        }
        for run, name in (("run-1", "mnist ✓"), ("run-2", "other"))
    ]
    feed.close()


def test_metrics_have_units_and_belong_to_the_scope_stepscope(receiver: Receiver) -> None:
    feed = exporter(receiver)
    feed.take(rows("step_seconds", 0.5))
    feed.close()
    (block,) = receiver.requests[0].resource_metrics
    (scope,) = block.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("stepscope", stepscope.__version__)
    metrics = receiver.metrics()
    assert {name: metric.unit for name, metric in metrics.items()} == {
        "ml.training.step.duration": "s",
        "ml.training.steps": "{step}",
    }
    assert metrics["ml.training.steps"].sum.is_monotonic
    ((_, histogram),) = receiver.points("ml.training.step.duration")
    assert (histogram.count, histogram.sum, histogram.min, histogram.max) == (1, 0.5, 0.5, 0.5)
    assert list(histogram.bucket_counts)[8] == 1
    assert histogram.explicit_bounds[8] == 0.5


def test_headers_may_be_read_from_a_file_and_an_address_keeps_its_path(
    receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("Bearer abc\n")
    headers = {"Authorization": {"file": str(tmp_path / "token")}, "x-team": "vision"}
    feed = OpenTelemetry(endpoint=f"{receiver.address}/otlp/v1/metrics", headers=headers)
    feed.take(rows("loss", 1.0))
    feed.close()
    assert receiver.paths == ["/otlp/v1/metrics"]
    assert receiver.headers[0]["authorization"] == "Bearer abc"
    assert receiver.headers[0]["x-team"] == "vision"


def test_values_of_headers_are_hidden_where_settings_are_shown() -> None:
    shown = redacted(
        {"exporters": {"opentelemetry": {"headers": {"x-team": "abc", "x-key": {"env": "KEY"}}}}}
    )
    assert shown["exporters"]["opentelemetry"]["headers"] == {"x-team": "***", "x-key": {"env": "KEY"}}


def test_the_variables_of_opentelemetry_apply_where_an_option_is_not_set(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
    feed = OpenTelemetry()
    feed.take(rows("loss", 1.0))
    feed.close()
    assert receiver.paths == ["/v1/metrics"]
    assert receiver.headers[0]["api-key"] == "abc"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endpoint": "localhost:4318"}, r"endpoint must be an address such as http://localhost:4318\."),
        ({"endpoint": "http://user:hunter2@:99999"}, "endpoint must be an address"),
        ({"interval_s": 0.0}, "interval_s is 0; it must be from 1 to 3600 seconds"),
        ({"interval_s": float("nan")}, "interval_s is nan"),
        ({"headers": {"a b": "c"}}, "invalid header name"),
        ({"headers": {"a": ""}}, "headers.a must be printable ASCII"),
        ({"headers": {"a": "b\nc"}}, "headers.a must be printable ASCII"),
        (
            {"headers": {"a": {"env": "NOT_SET_ANYWHERE"}}},
            "headers.a: A secret refers to the variable NOT_SET",
        ),
        ({"headers": "a=b"}, "headers must be a section"),
    ],
)
def test_an_option_with_an_invalid_value_is_refused_with_what_is_expected(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        make_feed("opentelemetry", options)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "reason"), [(503, "Service Unavailable"), (401, "Unauthorized"), (302, "Found")]
)
def test_a_refused_request_is_tried_once_and_its_points_are_sent_again(
    status: int, reason: str, receiver: Receiver
) -> None:
    feed = exporter(receiver)
    receiver.status = status
    feed.take(rows("step_seconds", 0.5))
    with pytest.raises(StepscopeError, match=rf"{receiver.address} answered {status} {reason}\."):
        feed.finish("run-1", "s", 0)
    assert len(receiver.requests) == 1
    receiver.status = 200
    feed.close()
    (_, first), (_, second) = receiver.points("ml.training.step.duration")
    assert first == second


def test_rows_that_come_again_after_a_failure_are_counted_once(receiver: Receiver) -> None:
    clock = 0.0
    feed = exporter(receiver, lambda: clock)
    receiver.status = 503
    clock = 100.0
    table = rows("step_seconds", 0.5)
    for _ in range(3):
        with pytest.raises(StepscopeError):
            feed.take(table)
    receiver.status = 200
    feed.take(table)
    assert receiver.points("ml.training.step.duration")[-1][1].count == 1


def test_an_address_without_a_listener_is_reported_without_its_secrets() -> None:
    feed = OpenTelemetry(endpoint="http://user:hunter2@127.0.0.1:9/v1/metrics?key=hunter2")
    feed.take(rows("loss", 1.0))
    with pytest.raises(
        StepscopeError, match=r"^http://127\.0\.0\.1:9 cannot be reached: Connection refused\.$"
    ):
        feed.close()


def test_points_that_the_collector_rejects_are_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer.partial_success.rejected_data_points = 2
    receiver.answer.partial_success.error_message = "too old"
    feed = exporter(receiver)
    feed.take(rows("loss", 1.0))
    with caplog.at_level(logging.WARNING):
        feed.close()
    assert f"{receiver.address} rejected 2 OpenTelemetry points: too old" in caplog.text


def test_no_meter_provider_is_registered_and_no_thread_started(receiver: Receiver) -> None:
    from opentelemetry import metrics

    before, provider = set(threading.enumerate()), metrics.get_meter_provider()
    feed = exporter(receiver)
    feed.take(rows("loss", 1.0))
    feed.close()
    assert metrics.get_meter_provider() is provider
    started = set(threading.enumerate()) - before
    assert {thread.name for thread in started if "process_request_thread" not in thread.name} == set()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0, 5e-324])
def test_odd_values_are_sent_and_spoil_no_request(number: float, receiver: Receiver) -> None:
    feed = exporter(receiver)
    keys = ("loss", "step_seconds", "phase/forward_seconds", "phase/sampled_ratio")
    table = rows("loss", number)
    for _ in range(3):
        values = np.full((1, len(keys)), number)
        feed.take(replace(table, keys=keys, values=values, steps=np.array([2**63 - 1])))
        for key in ("memory/used_bytes", "disk/read_bytes_per_second", "gpu/ecc_corrected_total"):
            device = {"memory": "", "disk": "sda", "gpu": "GPU-a"}[key.partition("/")[0]]
            machine = rows(key, number, device=device or "x")
            feed.take(replace(machine, source=replace(machine.source, device=device)))
    feed.finish("run-1", "s", 0)
    ((_, loss),) = receiver.points("ml.training.loss")
    assert value(loss) == pytest.approx(number, nan_ok=True)
    feed.close()


def test_a_run_that_records_nothing_for_long_begins_to_count_again(receiver: Receiver) -> None:
    clock = 0.0
    feed = exporter(receiver, lambda: clock)
    feed.take(rows("step_seconds", 0.5, run="old"))
    clock = 700.0
    feed.take(rows("step_seconds", 0.5, run="new"))
    clock = 1400.0
    feed.take(rows("step_seconds", 0.5, second=9, run="old"))
    old = [point for _, point in receiver.points("ml.training.step.duration") if point.time_unix_nano > 0]
    assert [point.count for point in old] == [1, 1, 1]
    feed.close()


class Listening(Feed):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def take(self, table: Table) -> None:
        self.heard += table.keys

    def close(self) -> None:
        """Nothing is left."""


def test_a_collector_that_hangs_leaves_other_exporters_alone_and_shows_in_the_status(
    receiver: Receiver, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setattr(export_queue, "FIRST_PAUSE_S", 0.001)
    receiver.may_answer.clear()
    other, feed = Listening(), exporter(receiver)
    feeds = Feeds(lambda _: {"opentelemetry": feed, "other": other})
    feeds.add_process(process())
    feeds.add_rows(rows("loss", 1.0))
    ended = process()
    ended.status, ended.ended_ns = "finished", 2
    feeds.add_process(ended)
    feeds.deliver()
    assert other.heard == ["loss"]

    def status() -> ExporterStatus:
        return {status.name: status for _, status in feeds.statuses()}["opentelemetry"]

    until(lambda: status().state == "failing")
    assert status().error == f"{receiver.address} did not answer within 0.2 s."
    assert (status().exported, status().waiting) == (0, 1)
    feeds.add_rows(rows("accuracy", 1.0))
    feeds.deliver()
    assert other.heard == ["loss", "accuracy"]
    receiver.may_answer.set()
    until(lambda: receiver.points("ml.training.loss") and status().state == "working")
    feeds.close()
    assert (status().exported, status().waiting, status().dropped) == (2, 0, 0)


TRAINING = """
    import sys, stepscope
    settings = {"exporters": {"opentelemetry": {"endpoint": sys.argv[1], "interval_s": 1}}}
    with stepscope.TrainingMonitor(settings, run="trained", project="p") as monitor:
        for step in range(50):
            monitor.log_training_step(loss=1.0 / (step + 1), learning_rate=0.1)
        sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_training_is_received_with_its_steps_and_its_machine(
    receiver: Receiver, start: Callable, until: Callable[..., None]
) -> None:
    training = start(TRAINING, receiver.address, stdin=subprocess.PIPE)
    until(lambda: receiver.points("ml.training.loss") and receiver.points("system.memory.limit"))
    training.stdin.write("end\n")
    training.stdin.flush()
    assert training.wait(60) == 0
    until(lambda: value(receiver.points("ml.training.steps")[-1][1]) == 50)
    _, loss = receiver.points("ml.training.loss")[-1]
    assert value(loss) == 0.02
    assert abs(loss.time_unix_nano / SECOND_NS - time.time()) < 600
    assert {resource["ml.run.name"] for resource in receiver.resources()} == {"trained"}
    assert value(receiver.points("system.memory.limit")[-1][1]) > 2**20


@pytest.mark.slow
def test_a_training_ends_as_usual_while_its_collector_hangs(
    receiver: Receiver, run_script: Callable, read: Callable[[str], stepscope.reading.Run]
) -> None:
    receiver.may_answer.clear()
    done = run_script(TRAINING, receiver.address, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read("trained").series("loss")) == 50


@pytest.mark.slow
def test_the_settings_of_the_page_send_a_training_to_the_collector(
    receiver: Receiver, run_script: Callable, until: Callable[..., None], tmp_path: Path
) -> None:
    settings = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    assert "http://localhost:4318" in settings
    file = tmp_path / "stepscope.yaml"
    file.write_text(settings.replace("http://localhost:4318", receiver.address))
    assert main(["config", "validate", str(file)]) == 0
    done = run_script("""
        import stepscope
        with stepscope.TrainingMonitor(run="from-page") as monitor:
            monitor.log({"loss": 0.5})
    """)
    assert done.returncode == 0, done.stderr
    until(lambda: receiver.points("ml.training.loss"))
    assert receiver.resources()[0]["ml.run.name"] == "from-page"


def test_every_example_of_settings_on_the_page_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTLP_TOKEN", "Bearer abc")
    for settings in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / "a.yaml").write_text(settings)
        assert main(["config", "validate", str(tmp_path / "a.yaml")]) == 0, capsys.readouterr()


def test_the_page_has_every_metric_with_its_unit_attributes_and_keys() -> None:
    described = [
        (conversion.instrument, conversion.attributes, conversion.keys) for conversion in CONVERSIONS
    ]
    described += [(instrument, {}, keys) for instrument, keys in conventions.TRAINING]
    for instrument, attributes, keys in described:
        shown = [f"{name}={text}" for name, text in attributes.items() if name != "hw.type"]
        cells = (
            f"`{instrument.name}`",
            instrument.kind.replace("up_down", "up-down counter"),
            f"`{instrument.unit}`",
            f"`{shown[0]}`" if shown else "",
            ", ".join(f"`{key}`" for key in keys),
        )
        assert f"| {' | '.join(cells)} |" in PAGE
    for instrument in (conventions.STEP_DURATION, conventions.STEPS, conventions.PHASE_TIME):
        assert f"| `{instrument.name}` | {instrument.kind} | `{instrument.unit}` |" in PAGE


def test_without_the_library_the_error_says_what_to_install(receiver: Receiver) -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from stepscope.agent.ingest.feeds import make_feed\n"
        "try: make_feed('opentelemetry', {})\n"
        "except Exception as error: print(error)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "Install it with: pip install 'stepscope[otel]'" in said
