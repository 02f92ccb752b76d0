"""Rules of the page survive damage of their file, and are evaluated in live runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from stepscope.alerts.delivery.routing import Routing
from stepscope.alerts.engine import Engine
from stepscope.alerts.page_rules import MAX_RULES, PageRules
from stepscope.alerts.rule import rules_from
from stepscope.alerts.shared_file import SharedFile
from stepscope.alerts.silences import Silences
from stepscope.errors import ConfigError
from stepscope.exporters.base import Table
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

S = 10**9
NOON = 12 * 3600 * S
HIGH = {"name": "high", "when": "loss > 2"}


class Bench:
    """An engine over a real store and a real file of rules, with a clock that is set by hand."""

    def __init__(self, folder: Path, given: list[dict] | None = None, *, is_off: bool = False) -> None:
        self.now_ns, self.folder = NOON, folder
        self.given = None if is_off else rules_from(given or [])
        self.store = SqliteStore(folder / "runs.sqlite")
        self.page = PageRules(folder)
        self.process = Process("r-1", "r", "p", "s1", 0, "h", 7, "rank", started_ns=NOON)
        self.begin()

    def begin(self) -> None:
        """Begins as an agent does that was started anew."""
        routing = Routing(("one",), Silences(self.folder))
        self.engine = Engine(
            self.store, lambda _: self.given, lambda _: routing, lambda: self.now_ns, PageRules(self.folder)
        )
        with self.store.transaction():
            self.store.put_process(self.process)
        self.engine.follow(self.process)
        self.engine.settle()

    def log(self, axis: str = "step", device: str = "", **values: float) -> None:
        self.now_ns += S
        source = Source("r-1", "s1", 0 if axis == "step" else None, "h", device, axis)
        row, steps, times = np.array([list(values.values())]), np.array([1]), np.array([self.now_ns])
        with self.store.transaction():
            self.store.append(source, list(values), steps, times, row)
        self.engine.take(Table(source, list(values), steps, times, row))
        self.engine.settle()

    def wait(self) -> None:
        """A second without news."""
        self.now_ns += S
        self.engine.tick()

    def fires(self) -> list[str]:
        return [alert["rule"] for alert in self.store.alerts("r-1") if alert["resolved_ns"] is None]

    def posted(self) -> list[tuple[str, list[str]]]:
        return [
            (notice["kind"], [each["rule"] for each in notice["alerts"]]) for notice in self.store.notices()
        ]


@pytest.fixture
def make_bench(tmp_path: Path):
    benches: list[Bench] = []

    def make(*given: dict, **options) -> Bench:
        benches.append(Bench(tmp_path, list(given), **options))
        return benches[-1]

    yield make
    for opened in benches:
        opened.store.close()


# What the engine makes of the file.


def test_a_rule_created_during_a_live_run_fires_without_another_record(make_bench) -> None:
    bench = make_bench()
    bench.log(loss=5.0)
    bench.page.put(HIGH)
    bench.wait()
    assert bench.fires() == ["high"]
    assert bench.posted() == [("firing", ["high"])]


def test_a_new_rule_uses_earlier_points_that_no_other_rule_needed(make_bench) -> None:
    bench = make_bench()
    for number in range(150):
        bench.log(other=1.0 if number < 120 else 2.0)
    bench.page.put({"name": "slow", "when": "median(other, 20 points) > 1.5 * baseline"})
    bench.wait()
    assert bench.fires() == ["slow"]
    [alert] = bench.store.alerts("r-1")
    assert alert["threshold"] == pytest.approx(1.5)


@pytest.mark.slow
def test_a_wider_window_than_any_before_is_filled_from_the_store_and_no_point_counts_twice(
    make_bench,
) -> None:
    bench = make_bench(HIGH)
    for _ in range(1500):
        bench.log(loss=1.0)
    bench.page.put({"name": "many", "when": "count(loss, 5000 points) == 1500"})
    bench.wait()
    assert bench.fires() == ["many"]
    bench.log(loss=1.0)
    assert bench.fires() == []


def test_a_new_rule_uses_earlier_points_of_machine_metrics(make_bench) -> None:
    bench = make_bench()
    for value in (50.0, 90.0):
        bench.log("seconds", "GPU-a", **{"gpu/temperature_celsius": value})
    bench.page.put({"name": "hot", "when": "first(gpu/temperature_celsius, 1h) < 60"})
    bench.wait()
    assert [(alert["rule"], alert["device"]) for alert in bench.store.alerts("r-1")] == [("hot", "GPU-a")]


def test_an_alert_of_a_deleted_rule_is_resolved_without_a_notice(make_bench) -> None:
    bench = make_bench()
    bench.page.put(HIGH)
    bench.log(loss=5.0)
    assert bench.page.delete("high")
    bench.wait()
    [alert] = bench.store.alerts("r-1")
    assert (alert["resolved_ns"], alert["ended_with_rule"]) == (bench.now_ns, True)
    bench.log(loss=6.0)
    assert bench.posted() == [("firing", ["high"])]


def test_an_alert_of_a_rule_that_was_deleted_while_no_agent_ran_is_resolved_by_the_next(make_bench) -> None:
    bench = make_bench()
    bench.page.put(HIGH)
    bench.log(loss=5.0)
    bench.page.delete("high")
    bench.begin()
    bench.wait()
    assert bench.fires() == []


def test_a_rule_with_another_condition_starts_again(make_bench) -> None:
    bench = make_bench()
    bench.page.put(HIGH)
    bench.log(loss=5.0, other=1.0)
    bench.page.put({**HIGH, "when": "loss > 9"})
    bench.wait()
    assert bench.fires() == []
    bench.log(loss=10.0)
    assert bench.fires() == ["high"]


def test_a_new_message_of_a_rule_does_not_change_its_alert(make_bench) -> None:
    bench = make_bench()
    bench.page.put(HIGH)
    bench.log(loss=5.0)
    bench.page.put({**HIGH, "message": "Oh no.", "cooldown": "1h", "severity": "critical"})
    bench.wait()
    assert len(bench.store.alerts("r-1")) == 1
    assert bench.fires() == ["high"]


def test_a_rule_of_the_settings_can_be_disabled_and_enabled(make_bench) -> None:
    bench = make_bench(HIGH)
    bench.page.switch("high", on=False)
    bench.log(loss=5.0)
    assert bench.fires() == []
    bench.page.switch("high", on=None)
    bench.wait()
    assert bench.fires() == ["high"]


def test_a_rule_that_the_settings_disable_can_be_enabled(make_bench) -> None:
    bench = make_bench({**HIGH, "enabled": False})
    bench.log(loss=5.0)
    assert bench.fires() == []
    bench.page.switch("high", on=True)
    bench.wait()
    assert bench.fires() == ["high"]


def test_a_page_rule_replaces_a_rule_of_the_same_name_until_it_is_deleted(make_bench) -> None:
    bench = make_bench(HIGH)
    bench.page.put({**HIGH, "when": "loss > 100"})
    bench.log(loss=5.0)
    assert bench.fires() == []
    bench.page.delete("high")
    bench.wait()
    assert bench.fires() == ["high"]


def test_a_rule_of_the_training_can_be_disabled_and_replaced(make_bench) -> None:
    bench = make_bench()
    bench.page.switch("own", on=False)
    bench.engine.hear("r-1", Event("alert_rule", NOON, 0, 0, "s1", {"name": "own", "when": "loss > 2"}))
    bench.log(loss=5.0)
    assert bench.fires() == []
    bench.page.put({"name": "own", "when": "loss > 4"})
    bench.wait()
    assert bench.fires() == ["own"]


@pytest.mark.parametrize(
    ("scope", "holds"),
    [
        ({"run": "r"}, True),
        ({"run": "r-1"}, True),
        ({"run": "r*"}, True),
        ({"run": "s"}, False),
        ({"project": "p"}, True),
        ({"project": "q"}, False),
        ({"run": "r", "project": "q"}, False),
    ],
)
def test_a_rule_applies_to_its_runs_only(make_bench, scope: dict, holds: bool) -> None:
    bench = make_bench()
    bench.page.put({**HIGH, **scope})
    bench.log(loss=5.0)
    assert bench.fires() == (["high"] if holds else [])


def test_page_rules_do_not_apply_if_alerts_are_disabled(make_bench) -> None:
    bench = make_bench(is_off=True)
    bench.page.put(HIGH)
    bench.log(loss=5.0)
    assert bench.fires() == []


def test_an_invalid_rule_is_ignored_and_logged_once(make_bench, caplog) -> None:
    bench = make_bench()
    bad = [{"name": "bad", "when": "loss >"}, "nonsense", {"name": "\x1b[2J", "when": "loss > 1"}]
    (bench.folder / "rules.json").write_text(json.dumps({"rules": [*bad, HIGH]}))
    bench.log(loss=5.0)
    assert bench.fires() == ["high"]
    bench.page.put({**HIGH, "message": "Again."})
    bench.wait()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "Rule 'bad' of the page is ignored" in said[0]
    kept = json.loads((bench.folder / "rules.json").read_text())["rules"]
    assert kept[:3] == bad, "What somebody wrote by hand is theirs to mend."


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"rules": 1}', '{"rules": [], "switches": []}', "[" * 5000, "\xff\x00"]
)
def test_a_damaged_file_is_logged_once_and_its_previous_content_applies(
    make_bench, caplog, damage: str
) -> None:
    bench = make_bench()
    bench.page.put(HIGH)
    bench.log(loss=5.0)
    (bench.folder / "rules.json").write_bytes(damage.encode("latin-1"))
    for _ in range(3):
        bench.wait()
    assert bench.fires() == ["high"]
    assert [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len(caplog.records) == 1
    bench.page.put({"name": "other", "when": "loss > 1"})
    bench.wait()
    assert bench.fires() == ["other"]
    assert (bench.folder / "rules.damaged").read_bytes() == damage.encode("latin-1")


def test_checking_the_file_costs_one_stat(make_bench, monkeypatch) -> None:
    bench = make_bench(HIGH)
    bench.log(loss=1.0)
    stats: list[Path] = []
    mark = SharedFile.mark

    def counted(file: SharedFile):
        stats.append(file.path)
        return mark(file)

    monkeypatch.setattr(SharedFile, "mark", counted)
    monkeypatch.setattr(SharedFile, "read", lambda _: pytest.fail("there is nothing to read"))
    for _ in range(5):
        bench.wait()
    assert [path.name for path in stats] == ["rules.json"] * 5
    bench.now_ns += 1000
    bench.engine.tick()
    assert len(stats) == 5, "A round in which nothing is judged costs nothing."


# The file itself.


def test_an_invalid_rule_is_not_stored(tmp_path: Path) -> None:
    page = PageRules(tmp_path)
    for wrong in (
        {"name": "x"},
        {"name": "", "when": "loss > 1"},
        {"name": "x" * 101, "when": "loss > 1"},
        {"name": " x", "when": "loss > 1"},
        {"name": "a\nb", "when": "loss > 1"},
        {"name": "..", "when": "loss > 1"},
        {"name": "x", "when": "loss >"},
        {"name": "x", "when": "loss > 1", "for": "soon"},
        {"name": "x", "when": "loss > 1", "run": 5},
        {"name": "x", "when": "loss > 1", "project": "p" * 301},
        {"name": "x", "when": "loss > 1", "colour": "red"},
    ):
        with pytest.raises(ConfigError):
            page.put(wrong)
    assert not (tmp_path / "rules.json").exists()


def test_there_are_at_most_two_hundred_rules(tmp_path: Path) -> None:
    page = PageRules(tmp_path)
    for number in range(MAX_RULES):
        page.put({"name": f"r{number}", "when": "loss > 1"})
    with pytest.raises(ConfigError, match="200 rules"):
        page.put(HIGH)
    page.put({"name": "r7", "when": "loss > 2"})
    assert len(PageRules(tmp_path).read().rules) == MAX_RULES


def test_rules_written_concurrently_are_all_kept(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 10):
            PageRules(tmp_path).put({"name": f"r{number}", "when": "loss > 1"})

    writers = [threading.Thread(target=write, args=(10 * number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(PageRules(tmp_path).read().rules) == 40


def test_a_page_rule_is_disabled_by_its_own_field(tmp_path: Path) -> None:
    page = PageRules(tmp_path)
    page.put(HIGH)
    page.switch("high", on=False)
    made = page.read()
    assert (made.rules[0].rule.enabled, dict(made.switches)) == (False, {})
    page.switch("high", on=None)
    assert page.read().rules[0].rule.enabled


def test_a_cooldown_may_be_zero(tmp_path: Path) -> None:
    page = PageRules(tmp_path)
    page.put({**HIGH, "cooldown": "0s"})
    assert page.read().rules[0].rule.cooldown_s == 0.0
