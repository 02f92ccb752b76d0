"""The engine stores alerts and posts notices: once, grouped, and not in quiet hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepscope.alerts import run_watch
from stepscope.alerts.defaults import RULES
from stepscope.alerts.delivery.quiet_hours import QuietHours
from stepscope.alerts.delivery.routing import Routing
from stepscope.alerts.engine import Engine
from stepscope.alerts.rule import rules_from
from stepscope.alerts.silences import Silences
from stepscope.exporters.base import Table
from stepscope.schema.alert import AlertDetail
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

S = 10**9
NOON = 12 * 3600 * S


class Bench:
    """An engine over a real store, with a clock that is set by hand."""

    def __init__(self, folder: Path, rules: list[dict], quiet_hours: str | None = None) -> None:
        self.now_ns = NOON
        self.folder, self.rules, self.quiet_hours = folder, rules, quiet_hours
        self.store = SqliteStore(folder / "runs.sqlite")
        self.silences = Silences(folder)
        self.process = Process("r-1", "r", "p", "s1", 0, "h", 7, "rank", started_ns=NOON)
        self.begin()

    def begin(self) -> None:
        """Begins as an agent does that was started anew."""
        hours = None if self.quiet_hours is None else QuietHours.parse(self.quiet_hours)
        routing = Routing(("one", "other"), self.silences, hours, "http://page")
        self.engine = Engine(
            self.store, lambda _: rules_from(self.rules), lambda _: routing, lambda: self.now_ns
        )
        with self.store.transaction():
            self.store.put_process(self.process)
        self.engine.follow(self.process)
        self.engine.settle()

    def log(self, after_s: float = 1.0, device: str = "", **values: float) -> None:
        """Logs a row after a while, and has the engine look at it."""
        self.now_ns += int(after_s * S)
        source = Source("r-1", "s1", 0, "h", device)
        row = np.array([list(values.values())])
        steps, times = np.array([1]), np.array([self.now_ns])
        with self.store.transaction():
            self.store.append(source, list(values), steps, times, row)
        self.engine.take(Table(source, list(values), steps, times, row))
        self.engine.settle()

    def posted(self, channel: str = "one") -> list[tuple[str, list[str]]]:
        """Kind and rules of each notice of a channel."""
        return [
            (notice["kind"], [alert["rule"] for alert in notice["alerts"]])
            for notice in self.store.notices()
            if notice["channel"] == channel
        ]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator:
    benches: list[Bench] = []

    def make(*rules: dict, quiet_hours: str | None = None) -> Bench:
        benches.append(Bench(tmp_path, list(rules), quiet_hours))
        return benches[-1]

    yield make
    for opened in benches:
        opened.store.close()


HIGH = {"name": "high", "when": "loss > 2"}


def test_alerts_that_fire_together_are_one_notice_with_the_worst_first(make_bench) -> None:
    bench = make_bench(HIGH, {"name": "worse", "when": "loss > 3", "severity": "critical"})
    bench.log(loss=5.0)
    assert bench.posted() == bench.posted("other") == [("firing", ["worse", "high"])]
    assert bench.store.notices()[0]["link"] == "http://page/run/r-1/metrics?q=loss"


def test_a_notice_links_to_the_charts_of_its_metric_or_to_the_run() -> None:
    routing = Routing((), Silences(Path("nowhere")), link="http://page/base/")
    loss, hot = (
        AlertDetail("a", "info", "", 0, key="val/loss", step=5),
        AlertDetail("b", "info", "", 0, key="gpu/x", device="G"),
    )
    assert routing.link_to("a b/c") == "http://page/base/run/a%20b%2Fc"
    assert routing.link_to("r", (loss, loss)) == "http://page/base/run/r/metrics?q=val%2Floss"
    assert routing.link_to("r", (hot,)) == "http://page/base/run/r/system?q=gpu%2Fx"
    assert routing.link_to("r", (loss, hot)) == "http://page/base/run/r"
    assert routing.link_to("r", (AlertDetail("stalled", "critical", "", 0),)) == "http://page/base/run/r"
    assert Routing((), Silences(Path("nowhere"))).link_to("r", (loss,)) == ""


def test_a_firing_alert_and_its_resolution_are_reported_once(make_bench) -> None:
    bench = make_bench(HIGH)
    for loss in (5.0, 6.0, 7.0, 1.0, 1.0):
        bench.log(loss=loss)
    assert bench.posted() == [("firing", ["high"]), ("resolved", ["high"])]
    [alert] = bench.store.alerts("r-1")
    assert alert["resolved_ns"] == NOON + 4 * S


@pytest.mark.slow
def test_a_flapping_rule_makes_few_notices(make_bench) -> None:
    bench = make_bench(HIGH)
    for at in range(1200):
        bench.log(0.05, loss=5.0 if at % 2 else 1.0)
    assert bench.posted() == [("firing", ["high"]), ("resolved", ["high"])]


def test_each_device_has_its_own_alert_in_one_notice(make_bench) -> None:
    bench = make_bench({"name": "hot", "when": "gpu/temperature_celsius > 80"})
    bench.log(device="GPU-a", **{"gpu/temperature_celsius": 50.0})
    bench.log(device="GPU-b", **{"gpu/temperature_celsius": 90.0})
    assert [alert["device"] for alert in bench.store.alerts("r-1")] == ["GPU-b"]
    bench.log(device="GPU-a", **{"gpu/temperature_celsius": 90.0})
    assert [alert["device"] for alert in bench.store.alerts("r-1")] == ["GPU-b", "GPU-a"]
    assert bench.posted() == [("firing", ["hot"])]


def test_a_rule_goes_to_its_own_channels_only(make_bench) -> None:
    bench = make_bench({**HIGH, "channels": ["other"]})
    bench.log(loss=5.0)
    assert (bench.posted("one"), bench.posted("other")) == ([], [("firing", ["high"])])


def test_hysteresis_holds_an_alert_until_it_is_clear(make_bench) -> None:
    bench = make_bench({**HIGH, "clear": "loss < 1"})
    for loss in (3.0, 1.5):
        bench.log(loss=loss)
    assert bench.store.alerts("r-1")[0]["resolved_ns"] is None
    bench.log(loss=0.5)
    assert bench.posted()[-1] == ("resolved", ["high"])


def test_a_silenced_alert_is_stored_and_reported_after_the_silence(make_bench) -> None:
    bench = make_bench(HIGH)
    bench.silences.silence("hi*", "r", now_ns=bench.now_ns, until_ns=bench.now_ns + 60 * S)
    bench.log(loss=5.0)
    assert bench.posted() == []
    assert [alert["rule"] for alert in bench.store.alerts("r-1")] == ["high"]
    bench.log(61, loss=5.0)
    assert bench.posted() == [("firing", ["high"])]


def test_only_critical_alerts_are_reported_in_quiet_hours(make_bench) -> None:
    bench = make_bench(
        HIGH, {"name": "worse", "when": "loss > 3", "severity": "critical"}, quiet_hours="11:00-13:00 UTC"
    )
    bench.log(loss=5.0)
    assert bench.posted() == [("firing", ["worse"])]
    bench.log(3601, loss=5.0)
    assert bench.posted() == [("firing", ["worse"]), ("firing", ["high"])]


def test_reminders_come_until_the_alert_is_acknowledged(make_bench) -> None:
    bench = make_bench({**HIGH, "remind": "10m"})
    bench.log(loss=5.0)
    bench.log(601, loss=5.0)
    assert bench.posted() == [("firing", ["high"]), ("reminder", ["high"])]
    bench.silences.acknowledge(bench.store.alerts("r-1")[0]["id"])
    bench.log(601, loss=5.0)
    assert len(bench.posted()) == 2


def test_a_restarted_agent_does_not_fire_twice_and_reports_the_resolution(make_bench) -> None:
    bench = make_bench(HIGH)
    bench.log(loss=5.0)
    bench.begin()
    bench.log(loss=6.0)
    assert bench.posted() == [("firing", ["high"])]
    assert len(bench.store.alerts("r-1")) == 1
    bench.begin()
    bench.log(loss=1.0)
    assert bench.posted() == [("firing", ["high"]), ("resolved", ["high"])]


def test_a_restarted_agent_knows_the_earlier_points(make_bench) -> None:
    bench = make_bench({"name": "slow", "when": "median(step_seconds, 20 points) > 1.5 * baseline"})
    for _ in range(120):
        bench.log(step_seconds=1.0)
    bench.begin()
    for _ in range(20):
        bench.log(step_seconds=2.0)
    assert bench.posted() == [("firing", ["slow"])]


def test_alerts_of_an_ended_run_are_resolved_without_a_notice(make_bench) -> None:
    bench = make_bench(HIGH)
    bench.log(loss=5.0)
    bench.process.status, bench.process.ended_ns = "finished", bench.now_ns
    bench.engine.follow(bench.process)
    bench.engine.settle()
    assert bench.store.alerts("r-1")[0]["resolved_ns"] == bench.now_ns
    assert bench.posted() == [("firing", ["high"])]


def test_a_run_stopped_by_hand_has_not_crashed(make_bench) -> None:
    bench = make_bench({"name": "crashed", "when": 'status == "crashed" or status == "failed"'})
    bench.process.status, bench.process.reason = "failed", "interrupted by SIGINT"
    bench.engine.follow(bench.process)
    bench.engine.settle()
    assert bench.posted() == []


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ("stalled", "no record since noon", "Training is stalled: no record since noon."),
        ("failed", "RuntimeError: worker died:", "Training failed: RuntimeError: worker died."),
        ("crashed", "out of memory.", "Training crashed: out of memory."),
    ],
)
def test_a_failed_run_is_reported_in_one_sentence(make_bench, status, reason, message) -> None:
    bench = make_bench(*RULES)
    bench.process.status, bench.process.reason = status, reason
    bench.engine.follow(bench.process)
    bench.engine.settle()
    assert [alert["message"] for alert in bench.store.alerts("r-1")] == [message]


def test_numbers_in_messages_are_written_as_on_the_page(make_bench) -> None:
    bench = make_bench(
        {"name": "usual", "when": "loss > 1e-3"},
        {"name": "own", "when": "loss > 0", "message": "Loss {loss}, {value}."},
    )
    bench.log(loss=4.3512345e21)
    assert [alert["message"] for alert in bench.store.alerts("r-1")] == [
        "loss is 4.35e21, the limit is 0.001.",
        "Loss 4.35e21, 4.35e21.",
    ]


def test_a_condition_that_the_training_evaluates_fires_and_resolves(make_bench) -> None:
    bench = make_bench()
    said = {"name": "own", "severity": "critical", "message": "Loss {loss:.1f}", "cooldown": 300.0}
    bench.engine.hear("r-1", Event("alert_rule", NOON, 0, 0, "s1", said))
    for is_true in (True, False):
        fields = {"rule": "own", "is_true": is_true, "values": {"loss": 2.25}}
        bench.engine.hear("r-1", Event("alert_condition", NOON, 5, 0, "s1", fields))
        bench.now_ns += S
        bench.engine.settle()
    assert bench.posted() == [("firing", ["own"]), ("resolved", ["own"])]
    assert bench.store.alerts("r-1")[0]["message"] == "Loss 2.2"


def test_a_condition_that_was_true_between_two_evaluations_fires_and_resolves(make_bench) -> None:
    bench = make_bench()
    said = {"name": "own", "message": "Loss {loss:.1f}"}
    bench.engine.hear("r-1", Event("alert_rule", NOON, 0, 0, "s1", said))
    for _ in range(2):
        for loss in (1.0, 5.0, 1.0):
            fields = {"rule": "own", "is_true": loss > 2, "values": {"loss": loss}}
            bench.engine.hear("r-1", Event("alert_condition", NOON, 5, 0, "s1", fields))
        for _ in range(2):
            bench.now_ns += 400 * S
            bench.engine.settle()
    assert bench.posted() == [("firing", ["own"]), ("resolved", ["own"])] * 2
    assert [alert["message"] for alert in bench.store.alerts("r-1")] == ["Loss 5.0"] * 2


def test_an_alert_with_a_nan_value_can_be_stored_and_changed(make_bench) -> None:
    bench = make_bench({"name": "nonfinite", "when": "nonfinite(loss, 20 points) > 0"})
    bench.log(loss=float("nan"))
    [alert] = bench.store.alerts("r-1")
    assert alert["recent"] == [None]
    assert alert["notified_ns"] == bench.now_ns


def test_a_rule_that_fails_is_ignored_and_logged_once(
    make_bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    evaluators_of = run_watch.evaluators_of

    def failing(expression, *others):
        if "broken" in str(expression):
            raise ZeroDivisionError("planted")
        return evaluators_of(expression, *others)

    monkeypatch.setattr(run_watch, "evaluators_of", failing)
    bench = make_bench({"name": "bad", "when": "broken > 1"}, HIGH)
    bench.log(loss=3.0, broken=2.0)
    bench.log(loss=1.0, broken=2.0)
    assert bench.posted() == [("firing", ["high"]), ("resolved", ["high"])]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["Rule bad of r failed and is ignored."]


def test_the_store_is_written_only_for_changes(make_bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make_bench(HIGH | {"cooldown": "60s"})
    written: list[int] = []
    transaction = bench.store.transaction

    def counted():
        written.append(bench.now_ns)
        return transaction()

    bench.log(loss=3.0)
    monkeypatch.setattr(bench.store, "transaction", counted)
    for _ in range(5):
        bench.now_ns += S
        bench.engine.settle()
    assert written == []
    bench.log(loss=1.0)
    assert len(written) == 2, "The row, and that the alert is over."


def notices_of_run(bench: Bench) -> list[str]:
    return [event.fields["text"] for event in bench.store.events("r-1", "notice")]


TYPO = {"name": "typo", "when": "los > 2"}
SAID = "Alert rule 'typo' uses a metric that is not recorded: There is no metric 'los'; did you mean 'loss'?"


def test_a_rule_with_an_unrecorded_metric_is_reported_once_after_a_minute(make_bench, caplog) -> None:
    bench = make_bench(HIGH, TYPO)
    for _ in range(59):
        bench.log(loss=1.0)
    assert notices_of_run(bench) == []
    for _ in range(200):
        bench.log(loss=1.0)
    assert notices_of_run(bench) == [SAID]
    assert caplog.text.count(SAID) == 1


def test_a_later_agent_does_not_report_an_unrecorded_metric_again(make_bench) -> None:
    bench = make_bench(TYPO)
    for _ in range(2):
        for _ in range(70):
            bench.log(loss=1.0)
        bench.begin()
    assert notices_of_run(bench) == [SAID]


def test_a_short_run_reports_unrecorded_metrics_except_for_those_of_samplers(make_bench) -> None:
    bench = make_bench(TYPO, {"name": "hot", "when": "gpu/temperature_celsius > 90"})
    bench.log(loss=1.0)
    bench.process = replace(bench.process, status="finished", ended_ns=bench.now_ns)
    bench.engine.follow(bench.process)
    bench.engine.settle()
    assert notices_of_run(bench) == [SAID]


def test_a_sampled_metric_that_this_machine_does_not_have_is_named_after_a_minute(make_bench) -> None:
    bench = make_bench({"name": "hot", "when": "gpu/temperature_celsius > 90"})
    for _ in range(70):
        bench.log(loss=1.0)
    [said] = notices_of_run(bench)
    assert "There is no metric 'gpu/temperature_celsius'" in said


def test_default_rules_and_rules_with_one_recorded_name_are_not_reported(make_bench) -> None:
    bench = make_bench(*RULES, {"name": "either", "when": "val_loss|loss > 2"})
    for _ in range(130):
        bench.log(loss=1.0)
    assert notices_of_run(bench) == []


def test_an_alert_names_the_rank_that_failed_first(make_bench) -> None:
    bench = make_bench({"name": "ended", "when": 'status == "failed"', "message": "{reason}"})
    lost = replace(bench.process, status="failed", reason="RuntimeError: Connection closed by peer")
    own = replace(bench.process, rank=1, pid=8, status="failed", reason="ValueError: label 12 is too large")
    for process in (lost, own):
        bench.engine.follow(replace(process, ended_ns=bench.now_ns))
    bench.engine.settle()
    (notice,) = [notice for notice in bench.store.notices() if notice["channel"] == "one"]
    assert [alert["message"] for alert in notice["alerts"]] == ["rank 1: ValueError: label 12 is too large"]


@pytest.mark.parametrize("is_cause_first", [True, False])
def test_ranks_that_fail_one_after_another_make_one_alert_with_the_reason_of_the_run(
    make_bench, is_cause_first
) -> None:
    bench = make_bench({"name": "ended", "when": 'status == "failed"', "message": "{reason}"})
    other = replace(bench.process, rank=1, pid=8)
    bench.engine.follow(other)
    lost = replace(bench.process, status="failed", reason="RuntimeError: Connection closed by peer")
    own = replace(other, status="failed", reason="ValueError: label 12 is too large")
    for process in (own, lost) if is_cause_first else (lost, own):
        bench.now_ns += S
        bench.engine.follow(replace(process, ended_ns=bench.now_ns))
        bench.engine.settle()
    (notice,) = [notice for notice in bench.store.notices() if notice["channel"] == "one"]
    assert [alert["message"] for alert in notice["alerts"]] == ["rank 1: ValueError: label 12 is too large"]


def test_a_lost_connection_is_reported_while_the_other_ranks_continue(make_bench) -> None:
    bench = make_bench({"name": "ended", "when": 'status == "failed"', "message": "{reason}"})
    bench.engine.follow(replace(bench.process, rank=1, pid=8))
    lost = replace(bench.process, status="failed", reason="RuntimeError: Connection closed by peer")
    bench.engine.follow(replace(lost, ended_ns=bench.now_ns))
    bench.engine.settle()
    assert bench.posted() == []
    bench.now_ns += 20 * S
    bench.engine.tick()
    assert bench.posted() == [("firing", ["ended"])]


def log_many(bench: Bench, losses: list[float]) -> None:
    """Stores many losses at once, as of a fast training, and has the engine look at them."""
    source, many = Source("r-1", "s1", 0, "h"), len(losses)
    rows = (np.arange(many), bench.now_ns + np.arange(1, many + 1) * 1_000_000, np.array(losses)[:, None])
    bench.now_ns = int(rows[1][-1])
    bench.process = replace(bench.process, last_ns=bench.now_ns)
    with bench.store.transaction():
        bench.store.put_process(bench.process)
        bench.store.append(source, ["loss"], *rows)
    bench.engine.take(Table(source, ["loss"], *rows))
    bench.engine.settle()


def test_an_agent_that_starts_late_evaluates_all_points_of_a_run(make_bench) -> None:
    bench = make_bench({"name": "bad", "when": "nonfinite(loss, 20 points) > 0"})
    other = Source("r-2", "s1", 0, "h")
    rows = (np.arange(500), NOON + np.arange(500) * 1_000_000, np.ones((500, 1)))
    rows[2][100] = np.nan
    with bench.store.transaction():
        bench.store.put_process(replace(bench.process, run_id="r-2"))
        bench.store.append(other, ["loss"], *rows)
    bench.engine.follow(replace(bench.process, run_id="r-2"))
    bench.engine.settle()
    assert bench.posted() == [("firing", ["bad"])]


def test_the_next_agent_does_not_evaluate_points_again(make_bench) -> None:
    bench = make_bench({"name": "bad", "when": "nonfinite(loss, 20 points) > 0", "cooldown": 0})
    log_many(bench, [1.0, float("nan"), *[1.0] * 300])
    bench.now_ns += S
    bench.engine.tick()
    assert bench.posted() == [("firing", ["bad"]), ("resolved", ["bad"])]
    bench.begin()
    bench.now_ns += S
    bench.engine.tick()
    assert len(bench.posted()) == 2
