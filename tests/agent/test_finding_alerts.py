"""Findings of the diagnosis raise alerts while a run is live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.agent.alerting import Alerting
from stepscope.agent.run_settings import RunSettingsRegistry
from stepscope.alerts.defaults import check_rules
from stepscope.config.sections import Alerts
from stepscope.errors import ConfigError
from stepscope.schema.finding import Finding, Remedy
from stepscope.schema.run import Process
from stepscope.store.mark_store import Feedback
from stepscope.store.open import open_marks
from stepscope.store.sqlite import SqliteStore

NS = 10**9
BEGAN_NS = 1_760_000_000 * NS
LEAK, SPIKE = "mem.leak", "conv.spike"


def finding(detector: str, severity: Any = "critical", **fields: Any) -> dict[str, Any]:
    headline = fields.pop("headline", "Memory grows by {4} MiB each step.")
    remedies = (Remedy("Keep no tensors."),)
    return Finding(
        detector, "A title", headline, "", severity, 0.9, 1.0, 2.0, remedies=remedies, **fields
    ).as_dict()


class Bench:
    """The alerting of an agent over a real store, with a run whose findings are written by hand."""

    def __init__(self, folder: Path, alerts: dict[str, Any] | None = None) -> None:
        self.folder, self.now_ns = folder, BEGAN_NS
        self.store = SqliteStore(folder / "store.sqlite")
        facts = {} if alerts is None else {"alerts": alerts}
        self.process = Process("r", "r", "p", "s1", 0, "h", 7, "rank", started_ns=BEGAN_NS, facts=facts)
        with self.store.transaction():
            self.store.put_process(self.process)
        self.start_agent()

    def start_agent(self) -> None:
        """Starts the alerting, as an agent does that takes over from another one."""
        settings = RunSettingsRegistry(self.folder, self.store)
        settings.on_process(self.process)
        self.alerting = Alerting(self.folder, self.store, settings.get, lambda: self.now_ns)
        self.alerting.on_process(self.process)
        self.alerting.on_round_end()

    def diagnose(self, *opened: dict[str, Any], closed: str | None = None) -> list[dict[str, Any]]:
        """Stores what a diagnosis found, and returns all alerts of the run."""
        self.now_ns += 10 * NS
        with self.store.transaction():
            for document in opened:
                self.store.put_finding("r", document, self.now_ns)
            if closed is not None:
                self.store.clear_finding("r", closed, self.now_ns)
        self.alerting.on_findings("r")
        self.alerting.on_round_end()
        return self.store.alerts("r")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Any]:
    made: list[Bench] = []

    def make(**alerts: Any) -> Bench:
        made.append(Bench(tmp_path, alerts or None))
        return made[-1]

    yield make
    for one_bench in made:
        one_bench.alerting.close()
        one_bench.store.close()


def test_a_critical_finding_is_an_alert_until_it_is_closed(bench) -> None:
    run = bench()
    [alert] = run.diagnose(finding(LEAK, rank=3, first_step=40))
    assert (alert["rule"], alert["severity"], alert["rank"], alert["step"]) == (
        "finding.mem.leak",
        "critical",
        3,
        40,
    )
    assert alert["message"] == "Memory grows by {4} MiB each step."
    assert alert["advice"] == "Keep no tensors."
    assert alert["resolved_ns"] is None
    [alert] = run.diagnose(finding(LEAK, rank=2, headline="Memory grows by 5 MiB each step."))
    assert alert["resolved_ns"] is None
    [alert] = run.diagnose(closed=LEAK)
    assert alert["resolved_ns"] == run.now_ns
    assert len(run.diagnose(finding(LEAK))) == 2


@pytest.mark.parametrize(
    ("alerts", "severity", "raised"),
    [
        ({}, "warning", []),
        ({"findings": "warning"}, "warning", ["warning"]),
        ({"findings": "warning"}, "notice", []),
        ({"findings": "notice"}, "notice", ["info"]),
        ({"findings": "notice"}, "info", []),
        ({"findings": "none"}, "critical", []),
        ({"findings": "a value of another version"}, "critical", ["critical"]),
        ({"enabled": False}, "critical", []),
        ({"disabled": ["finding.mem.leak"]}, "critical", []),
    ],
)
def test_the_settings_of_a_run_say_which_findings_are_alerts(bench, alerts, severity, raised) -> None:
    alerts_of_run = bench(**alerts).diagnose(finding(LEAK, severity))
    assert [alert["severity"] for alert in alerts_of_run] == raised


def test_a_problem_with_a_rule_of_its_own_is_one_alert(bench) -> None:
    assert bench().diagnose(finding("num.nonfinite"), finding("conv.diverging")) == []


def test_a_finding_that_people_have_muted_is_no_alert(bench) -> None:
    run = bench(findings="warning")
    assert len(run.diagnose(finding(SPIKE, "warning"))) == 1
    marks = open_marks(run.folder)
    marks.give_feedback(Feedback("p", SPIKE, "wrong", "r", "A spike.", "", 1.0))
    marks.close()
    [alert] = run.diagnose()
    assert alert["resolved_ns"] == run.now_ns


def test_findings_with_different_subjects_are_alerts_of_their_own(bench) -> None:
    alerts = bench().diagnose(finding("hw.errors", subject="GPU-0"), finding("hw.errors", subject="GPU-1"))
    assert {alert["rule"] for alert in alerts} == {"finding.hw.errors:GPU-0", "finding.hw.errors:GPU-1"}


def test_another_agent_continues_the_alert(bench) -> None:
    run = bench()
    run.diagnose(finding(LEAK))
    run.start_agent()
    [alert] = run.store.alerts("r")
    assert alert["resolved_ns"] is None
    [alert] = run.diagnose(closed=LEAK)
    assert alert["resolved_ns"] == run.now_ns


def test_an_alert_of_an_unknown_finding_cannot_be_switched_off() -> None:
    check_rules(Alerts(disabled=["finding.mem.leak"]))
    with pytest.raises(ConfigError, match=r"'finding.mem.leek'.*did you mean 'finding.mem.leak'"):
        check_rules(Alerts(disabled=["finding.mem.leek"]))
