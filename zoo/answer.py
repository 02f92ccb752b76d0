"""What the diagnosis says of a run, reduced to what is scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepscope.analysis.diagnose import Diagnosis

HEALTHY = "ok"
"""The id of the verdict that calls a run healthy."""


@dataclass(frozen=True)
class Said:
    """One finding."""

    id: str
    severity: str
    headline: str
    text: str = ""
    """Headline, detail, evidence and place."""
    advice: str = ""
    """Remedies with their code, and short hints."""
    gain: tuple[float, float, float] | None = None
    """The estimated gain: lowest, likely and highest share."""

    @classmethod
    def from_dict(cls, finding: Mapping[str, Any]) -> "Said":
        """Takes a finding as `stepscope diagnose --json` prints it."""
        evidence = [f"{item['label']} {item['value']} {item['note']}" for item in finding["evidence"]]
        remedies = [f"{remedy['text']}\n{remedy['code'] or ''}" for remedy in finding["remedies"]]
        gain = finding["estimate"]
        return cls(
            finding["id"],
            finding["severity"],
            finding["headline"],
            "\n".join([finding["headline"], finding["detail"], finding["where"], *evidence]),
            "\n".join([*remedies, *finding["tries"]]),
            None if gain is None else (gain["low"], gain["likely"], gain["high"]),
        )


@dataclass(frozen=True)
class Answer:
    """The verdict and the findings above `info`, the most important first."""

    verdict: str
    """Its id."""
    headline: str
    findings: tuple[Said, ...] = ()
    earlier: tuple[Said, ...] = ()
    """Findings that were reported during the run and are over."""

    @property
    def is_healthy(self) -> bool:
        """Whether it calls the run healthy."""
        return self.verdict == HEALTHY

    @property
    def ids(self) -> tuple[str, ...]:
        """What it names, in order: the failure of the run, if it failed, and the findings."""
        failure = (self.verdict,) if self.verdict.startswith("status.") else ()
        return (*failure, *(said.id for said in self.findings))


def answer_of(diagnosis: Diagnosis) -> Answer:
    """Returns what a diagnosis of a window says."""
    verdict = diagnosis.verdict
    return Answer(verdict.id, verdict.headline, _reported([f.as_dict() for f in diagnosis.findings]))


def answer_in(report: Mapping[str, Any]) -> Answer:
    """Returns what `stepscope diagnose --json` says."""
    verdict = report["verdict"]
    earlier = [finding for finding in report["earlier"] if "evidence" in finding]
    return Answer(verdict["id"], verdict["headline"], _reported(report["findings"]), _reported(earlier))


def _reported(findings: list[Mapping[str, Any]] | list[dict[str, Any]]) -> tuple[Said, ...]:
    return tuple(Said.from_dict(finding) for finding in findings if finding["severity"] != "info")
