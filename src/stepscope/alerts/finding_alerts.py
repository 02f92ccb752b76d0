"""Turns open findings of the diagnosis into alerts, so that people are notified of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.alerts.rule import MAX_NAME_LENGTH, Rule
from stepscope.alerts.run_watch import ReportedCondition
from stepscope.schema import finding as schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from stepscope.alerts.run_watch import RunWatch
    from stepscope.schema.alert import Severity

PREFIX = "finding."
"""The beginning of the names of these rules: `finding.mem.leak`."""

COVERED = frozenset(
    {
        "conv.diverging", "grad.explode", "hostmem.limit", "hw.throttle", "input.exposed_wait",
        "num.nonfinite", "run.stall",
    }
)  # fmt: skip
"""Findings of problems for which there is a default rule, which fires earlier."""

SEVERITIES: dict[str, Severity] = {"critical": "critical", "warning": "warning", "notice": "info"}
"""The severity of the alert by that of the finding."""


def alerting_findings(
    findings: Iterable[Mapping[str, Any]], least: str, disabled: Collection[str]
) -> list[Mapping[str, Any]]:
    """Returns the findings that raise an alert: at least as severe as `least`, not covered, not disabled."""
    if least == "none":
        return []
    most = schema.SEVERITIES.index(least)
    return [
        finding
        for finding in findings
        if finding["severity"] in schema.SEVERITIES[: most + 1]
        and finding["id"] not in COVERED
        and f"{PREFIX}{finding['id']}" not in disabled
    ]


def report_findings(run: RunWatch, findings: Iterable[Mapping[str, Any]]) -> None:
    """Reports the findings that raise an alert now: alerts on all others are resolved."""
    current = {_rule_name(finding): finding for finding in findings}
    for name, finding in current.items():
        rule = _rule(name, finding)
        if run.training_rules.get(name) != rule:
            run.add_rule(rule)
        last = run.reported.get(name)
        if last is None or not last.is_true:
            # The rank is that of the first report: with another one it would be another alert.
            fields = {"rank": finding.get("rank"), "step": finding.get("first_step")}
            run.report(name, ReportedCondition(is_true=True, fields=fields))
    for name, last in list(run.reported.items()):
        if name.startswith(PREFIX) and name not in current and last.is_true:
            run.report(name, ReportedCondition(is_true=False, fields=last.fields))


def _rule_name(finding: Mapping[str, Any]) -> str:
    return f"{PREFIX}{finding['key']}"[:MAX_NAME_LENGTH]


def _rule(name: str, finding: Mapping[str, Any]) -> Rule:
    remedies = finding.get("remedies") or [{"text": ""}]
    return Rule(
        name,
        condition=None,
        severity=SEVERITIES[finding["severity"]],
        message=str(finding["headline"]).replace("{", "{{").replace("}", "}}"),
        advice=remedies[0]["text"],
    )
