"""A rule is evaluated only when its result may have changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from stepscope.alerts.catching_up import catch_up
from stepscope.alerts.defaults import default_rules
from stepscope.alerts.rule import rules_from
from stepscope.alerts.run_watch import RunWatch
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

S = 10**9
RUN = Source("r", "s", 0, "h")
HOST = Source("r", "s", None, "h", axis="seconds")


class Watch:
    """A run that is watched by some rules, with a clock that is set by hand."""

    def __init__(self, *rules: dict) -> None:
        self.now_ns = 1000 * S
        made = rules_from(rules) if rules else default_rules()
        self.run = RunWatch("r", made)
        self.steps = 0

    def log(self, after_s: float = 1.0, source: Source = RUN, **values: float) -> list[tuple[str, str]]:
        """Logs a row after a while, and looks at what has changed."""
        self.now_ns += int(after_s * S)
        row = np.array([list(values.values())])
        self.run.history.add(source, list(values), np.array([1]), np.array([self.now_ns]), row)
        return self.look(0.0)

    def look(self, after_s: float) -> list[tuple[str, str]]:
        """Looks after a while without a new row; the rules that begin to fire, and those that resolve."""
        self.now_ns += int(after_s * S)
        changes = list(self.run.changes(self.now_ns))
        for number, change in enumerate(changes):
            if change.turn == "fires":
                self.run.fired(change, self.now_ns + number)
            else:
                self.run.resolved(change)
        return [(change.rule.name, change.turn) for change in changes]


def calls_into_alerts(act: Callable[[], object]) -> int:
    """How many functions of the alerts are called."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and "stepscope/alerts" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def steps_of_a_training(watch: Watch, steps: int) -> None:
    for _ in range(steps):
        watch.log(0.2, loss=1.0, step_seconds=0.2, **{"phase/data_seconds": 0.01})


def test_an_evaluation_without_new_rows_costs_almost_nothing() -> None:
    watch = Watch()
    steps_of_a_training(watch, 30)
    assert calls_into_alerts(lambda: watch.look(0.5)) <= 5


def test_only_rules_that_use_a_metric_are_evaluated_for_its_rows() -> None:
    watch = Watch()
    steps_of_a_training(watch, 30)
    watch.log(0.2, accuracy=0.5)
    other = calls_into_alerts(lambda: watch.log(0.2, accuracy=0.5))
    loss = calls_into_alerts(lambda: watch.log(0.2, loss=1.0))
    assert other <= 10 < loss


@pytest.mark.parametrize(
    ("rule", "looks"),
    [
        ({"when": "loss > 1", "for": "10s"}, {9.0: [], 2.0: [("rule", "fires")]}),
        ({"when": "age(loss) > 30"}, {29.0: [], 2.0: [("rule", "fires")]}),
        ({"when": "count(loss, 30s) == 0"}, {29.0: [], 2.0: [("rule", "fires")]}),
        ({"when": "not (max(loss, 30s) > 1)", "for": "5s"}, {31.0: [], 6.0: []}),
    ],
)
def test_a_rule_that_depends_on_time_fires_without_new_rows(rule: dict, looks: dict) -> None:
    watch = Watch({"name": "rule", **rule})
    assert watch.log(loss=2.0) == []
    for after_s, expected in looks.items():
        assert watch.look(after_s) == expected


def test_a_rule_that_depends_on_time_resolves_without_new_rows() -> None:
    watch = Watch({"name": "rule", "when": "loss > 1", "clear": "age(loss) > 30"})
    assert watch.log(loss=2.0) == [("rule", "fires")]
    assert watch.look(29.0) == []
    assert watch.look(2.0) == [("rule", "resolves")]


def test_a_change_of_status_is_evaluated_without_new_rows() -> None:
    watch = Watch()
    steps_of_a_training(watch, 5)
    assert watch.look(1.0) == []
    watch.run.status = "stalled"
    assert watch.look(1.0) == [("stalled", "fires")]
    watch.run.status = "running"
    assert watch.look(1.0) == [("stalled", "resolves")]


def test_a_change_that_could_not_be_stored_is_reported_again() -> None:
    watch = Watch({"name": "rule", "when": "loss > 1"})
    watch.run.history.add(RUN, ["loss"], np.array([1]), np.array([watch.now_ns]), np.array([[2.0]]))
    assert [change.turn for change in watch.run.changes(watch.now_ns)] == ["fires"]
    assert watch.look(0.5) == [("rule", "fires")]


def test_a_changed_rule_is_evaluated_with_existing_points() -> None:
    watch = Watch({"name": "rule", "when": "loss > 3"})
    assert watch.log(loss=2.0) == []
    (changed,) = rules_from([{"name": "rule", "when": "loss > 1"}])
    watch.run.add_rule(changed)
    assert watch.look(0.5) == [("rule", "fires")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.sqlite")
    with opened.transaction():
        opened.put_process(Process("r", "r", "p", "s", 0, "h", 7, "rank", 1))
    yield opened
    opened.close()


def test_points_that_are_not_stored_yet_survive_a_new_rule(
    store: SqliteStore,
) -> None:
    watch = Watch({"name": "rule", "when": "heat > 90"})
    kept = (np.array([0, 0]), np.array([1, 2]) * S, np.array([[50.0], [60.0]]))
    with store.transaction():
        store.append(HOST, ["heat"], *kept)
    watch.run.history.add(HOST, ["heat"], *kept)
    watch.run.history.add(HOST, ["heat"], np.array([0]), np.array([3 * S]), np.array([[70.0]]))
    (wider,) = rules_from([{"name": "wider", "when": "max(heat, 2000 points) > 90"}])
    watch.run.add_rule(wider)
    catch_up(watch.run, store, "s")
    (recent,) = watch.run.history.of("heat").values()
    assert recent.values.tolist() == [50.0, 60.0, 70.0]


def logged_at_once(watch: Watch, losses: list[float], each_s: float = 0.001) -> list[tuple[str, str]]:
    """Logs many losses between two looks."""
    steps = np.arange(watch.steps, watch.steps + len(losses))
    times_ns = watch.now_ns + ((np.arange(len(losses)) + 1) * each_s * S).astype(np.int64)
    watch.steps += len(losses)
    watch.now_ns = int(times_ns[-1])
    watch.run.history.add(RUN, ["loss"], steps, times_ns, np.array(losses)[:, None])
    return watch.look(0.0)


def test_a_single_nan_between_two_evaluations_of_a_fast_run_fires() -> None:
    watch = Watch()
    losses = [1.0] * 3000
    losses[700] = float("nan")
    assert logged_at_once(watch, losses) == [("nonfinite_loss", "fires")]
    ((_, alert),) = watch.run.open.values()
    assert (alert.step, alert.value) == (700, 1.0)
    assert watch.look(0.5) == [("nonfinite_loss", "resolves")]


def test_a_nan_among_more_points_than_are_kept_fires() -> None:
    watch = Watch()
    losses = [1.0] * 50_000
    losses[1000] = float("nan")
    assert logged_at_once(watch, losses, 1e-5) == [("nonfinite_loss", "fires")]


def test_an_alert_fires_while_any_point_since_the_last_evaluation_is_true() -> None:
    watch = Watch()
    losses = [float("nan"), *[1.0] * 499]
    assert logged_at_once(watch, losses) == [("nonfinite_loss", "fires")]
    assert logged_at_once(watch, losses) == []
    assert logged_at_once(watch, [1.0] * 500) == [("nonfinite_loss", "resolves")]


def falling_then_back_at_the_start(steps: int, breaks_at: int) -> list[float]:
    at = np.arange(steps)
    losses = np.where(at < breaks_at, 0.3 + 2 * np.exp(-at / 200), 2.3)
    return (losses * np.random.default_rng(1).normal(1, 0.02, steps)).tolist()


@pytest.mark.parametrize("at_once", [425, 2000, 9000])
def test_a_loss_that_returns_to_its_start_between_evaluations_fires_and_does_not_resolve(
    at_once: int,
) -> None:
    watch = Watch()
    losses = falling_then_back_at_the_start(9000, 900)
    changes = [
        change
        for begin in range(0, 9000, at_once)
        for change in logged_at_once(watch, losses[begin : begin + at_once])
    ]
    assert changes == [("loss_divergence", "fires")]
    assert logged_at_once(watch, [0.4] * 500) == [("loss_divergence", "resolves")]


@pytest.mark.parametrize("at_once", [1, 7, 40, 200])
@pytest.mark.parametrize(
    ("when", "lasting"),
    [
        ("loss > 2", "3 points"),
        ("min(loss, 4 points) > 2", "0s"),
        ("max(loss, 5 points) > 3.2", "0s"),
        ("median(loss, 9 points) > 2.2 or nonfinite(loss, 3 points) > 1", "0s"),
        (
            "count(loss, 150 points) > 120 and mean(loss, 6 points) - std(loss, 6 points) > baseline(loss)",
            "1 points",
        ),
        ("not (abs(last(loss) - first(loss, 3 points)) < 2.5) and count(loss, 20 points) > 9", "0s"),
        ("sum(loss, 4 points) / max(p90(loss, 20 points), 1) > 3.5", "0s"),
    ],
)
def test_the_first_alert_does_not_depend_on_how_many_points_an_evaluation_covers(
    when: str, lasting: str, at_once: int
) -> None:
    chance = np.random.default_rng(4)
    losses = chance.normal(1.5, 0.8, 400)
    losses[chance.random(400) < 0.02] = np.nan

    def first_step(rows: int) -> int | None:
        watch = Watch({"name": "rule", "when": when, "for": lasting})
        for begin in range(0, 400, rows):
            if logged_at_once(watch, losses[begin : begin + rows].tolist()):
                ((_, alert),) = watch.run.open.values()
                return alert.step
        return None

    assert first_step(at_once) == first_step(1) is not None


def test_a_new_rule_does_not_fire_for_earlier_points() -> None:
    watch = Watch({"name": "rule", "when": "loss > 10"})
    assert logged_at_once(watch, [1.0, 5.0, 1.0]) == []
    (later,) = rules_from([{"name": "later", "when": "loss > 3"}])
    watch.run.add_rule(later)
    assert watch.look(0.5) == []
    assert logged_at_once(watch, [1.0, 5.0, 1.0]) == [("later", "fires")]


def test_points_whose_alert_could_not_be_stored_are_evaluated_again() -> None:
    watch = Watch({"name": "rule", "when": "loss > 3"})
    watch.run.history.add(
        RUN, ["loss"], np.arange(3), watch.now_ns + np.arange(3), np.array([[1.0], [5.0], [1.0]])
    )
    assert [change.turn for change in watch.run.changes(watch.now_ns)] == ["fires"]
    assert watch.look(0.5) == [("rule", "fires")]
