"""`generate_performance_recommendations`: what to change, from lists of figures, by the same detectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.analysis.diagnose import Diagnostician
from stepscope.analysis.wording import percent
from stepscope.errors import ConfigError
from stepscope.facade.metrics_window import rows_of, window_of
from stepscope.filesystem import atomic_file
from stepscope.guard import shown

if TYPE_CHECKING:
    import os

    from stepscope.schema.finding import Estimate, Finding, Remedy

CATEGORIES = {
    "act": "model",
    "amp": "convergence",
    "compile": "model",
    "conv": "convergence",
    "gpu": "resource allocation",
    "grad": "convergence",
    "host": "system",
    "hostmem": "resource allocation",
    "hw": "system",
    "lr": "convergence",
    "mem": "resource allocation",
    "mode": "model",
    "num": "convergence",
    "opt": "model",
}
"""Categories by the first part of a finding's id; all others are `training`."""


@dataclass(frozen=True)
class Recommendation:
    """One thing to change."""

    id: str
    """The id of the problem, such as `input.exposed_wait`."""
    category: str
    """`training`, `system`, `model`, `resource allocation` or `convergence`."""
    priority: str
    """The severity of the problem: critical, warning, notice or info."""
    title: str
    problem: str
    """What is wrong, with its most important number."""
    description: str
    evidence: tuple[str, ...]
    steps: tuple[Remedy, ...]
    """What to do, the best first: each has a `text`, and `code` where there is some."""
    gain: Estimate | None
    """The estimated gain, as shares from 0 to 1; None where the problem is a risk."""


class Recommendations(list[Recommendation]):
    """Recommendations, the most urgent first, with the verdict they belong to."""

    def __init__(self, recommendations: Iterable[Recommendation] = (), verdict: str = "") -> None:
        super().__init__(recommendations)
        self.verdict = verdict
        """How the training is doing in one sentence; without a problem, how many checks could not run."""


def generate_performance_recommendations(
    training_metrics: Any, system_metrics: Any = None, model_metrics: Mapping[str, Any] | None = None
) -> Recommendations:
    """Runs all detectors over figures of a training; what was not recorded is not judged.

        with MetricsDatabase() as database:
            training = database.get_training_metrics("mnist")
            system = database.get_system_metrics("mnist")
        recommendations = generate_performance_recommendations(training, system)

    Both are lists of mappings, or mappings of lists, with the names of recorded metrics. `model_metrics` is
    the setup of the training, as its event `census` has it. What ruins a run comes first, then the largest
    gain.
    """
    if model_metrics is not None and not isinstance(model_metrics, Mapping):
        raise ConfigError(
            f"argument: model_metrics is {shown(model_metrics)}; it must be a mapping, such as "
            "{'detect_anomaly': False}."
        )
    training = rows_of(training_metrics, "training_metrics")
    system = rows_of(system_metrics, "system_metrics")
    diagnosis = Diagnostician({}).examine(window_of(training, system, model_metrics or {}))
    findings = sorted(diagnosis.findings, key=_urgency)
    return Recommendations(map(_recommendation, findings), diagnosis.verdict.headline)


def save_recommendations_report(
    recommendations: Iterable[Recommendation], path: str | os.PathLike[str]
) -> Path:
    """Writes recommendations as Markdown, by category; returns the path. An existing file is replaced."""
    report = Path(path)
    verdict = recommendations.verdict if isinstance(recommendations, Recommendations) else ""
    recommendations = list(recommendations)
    for recommendation in recommendations:
        if not isinstance(recommendation, Recommendation):
            raise ConfigError(
                f"argument: recommendations has {shown(recommendation)}; it must have what "
                "generate_performance_recommendations returns."
            )
    report.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(report) as part:
        part.write_text(_report(recommendations, verdict), encoding="utf-8")
    return report


def _urgency(finding: Finding) -> tuple[bool, float]:
    gain = finding.estimate.likely if finding.estimate else finding.share or 0.0
    return finding.severity != "critical", -gain


def _recommendation(finding: Finding) -> Recommendation:
    return Recommendation(
        id=finding.id,
        category=CATEGORIES.get(finding.id.split(".")[0], "training"),
        priority=finding.severity,
        title=finding.title,
        problem=finding.headline,
        description=finding.detail,
        evidence=tuple(
            f"{evidence.label}: {evidence.value}{f' ({evidence.note})' if evidence.note else ''}"
            for evidence in finding.evidence
        ),
        steps=finding.remedies,
        gain=finding.estimate,
    )


def _report(recommendations: list[Recommendation], verdict: str) -> str:
    lines = ["# Performance recommendations", ""]
    lines += [verdict, ""] if verdict else []
    if not recommendations:
        lines += ["There is nothing to recommend.", ""]
    categories = dict.fromkeys(recommendation.category for recommendation in recommendations)
    for category in categories:
        lines += [f"## {category.capitalize()}", ""]
        for recommendation in recommendations:
            if recommendation.category == category:
                lines += [*_section(recommendation), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(recommendation: Recommendation) -> list[str]:
    gain = recommendation.gain
    lines = [f"### {recommendation.title} ({recommendation.priority})", "", recommendation.problem]
    if gain is not None:
        spread = "" if gain.low == gain.high else f" ({percent(gain.low)} to {percent(gain.high)})"
        lines += ["", f"Estimated gain: {percent(gain.likely)} of {gain.of}{spread}."]
    lines += ["", recommendation.description] if recommendation.description else []
    lines += ["", *(f"- {line}" for line in recommendation.evidence)] if recommendation.evidence else []
    lines += ["", "What to do:"] if recommendation.steps else []
    for number, step in enumerate(recommendation.steps, 1):
        lines += ["", f"{number}. {step.text}"]
        code = step.code.splitlines() if step.code else []
        lines += ["", *(f"    {line}" for line in ("```python", *code, "```"))] if code else []
    return lines
