"""Targets become alert rules like others: named, switched off, replaced, and not missing from the records."""

from __future__ import annotations

import numpy as np

from stepscope.alerts.defaults import all_rules, check_rules
from stepscope.alerts.rule import Rule
from stepscope.alerts.run_watch import RunWatch
from stepscope.alerts.target_rules import NAMES, target_rules
from stepscope.alerts.unrecorded import UnrecordedMetrics
from stepscope.config.sections import Alerts, Targets
from stepscope.schema.series import Source
from stepscope.store.open import empty_store

ALL = Targets(10.0, 4000.0, 80.0, 30.0, 1e-7)
MINUTE_NS = 60 * 10**9


def by_name(settings: Alerts) -> dict[str, Rule]:
    return {rule.name: rule for rule in all_rules(settings, target_rules(ALL, "EUR"))}


def test_each_target_that_is_set_is_a_rule() -> None:
    assert {rule.name for rule in target_rules(ALL, "EUR")} == NAMES
    assert target_rules(Targets(), "EUR") == []


def test_a_target_can_be_switched_off_by_name() -> None:
    settings = Alerts(disabled=["target_cost"])
    check_rules(settings)
    rules = by_name(settings)
    assert (rules["target_cost"].enabled, rules["target_steps_per_second"].enabled) == (False, True)


def test_a_rule_of_the_same_name_replaces_that_of_a_target() -> None:
    settings = Alerts(rules=[{"name": "target_cost", "when": "target/cost > 7", "severity": "critical"}])
    assert by_name(settings)["target_cost"].severity == "critical"


def test_any_text_may_be_the_name_of_a_currency() -> None:
    [rule] = target_rules(Targets(cost=2.0), "{kr}")
    run = RunWatch("r", [rule])
    source = Source("r", "s", None, "", axis="seconds")
    zero = np.zeros(1, np.int64)
    run.history.add(source, ["target/cost"], zero, zero + MINUTE_NS, np.array([[2.5]]))
    [change] = run.changes(MINUTE_NS)
    assert change.detail.message == "The run has cost 2.5 {kr}, 0.5 {kr} above the target of 2 {kr}."


def test_figures_of_targets_do_not_count_as_metrics_that_nobody_records() -> None:
    check = UnrecordedMetrics("r", 0)
    assert list(check.check(target_rules(ALL, "EUR"), empty_store(), 2 * MINUTE_NS, has_ended=False)) == []
