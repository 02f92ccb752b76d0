"""Explains why a run is slow or failing, with evidence, and what to change."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from stepscope.cli.find import add_run_arguments, chosen_run
from stepscope.cli.main import FINE
from stepscope.cli.output import text
from stepscope.views.overview.run_verdict import verdict_for
from stepscope.views.run_figures import figures_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from stepscope.reading import Run

MAX_WIDTH = 100
"""Longer lines are hard to read, even on a wide screen."""

_STYLES = {"critical": "problem", "warning": "note", "notice": "running", "ok": "ok"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which run, and how to print it."""
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints the diagnosis."""
    store, chosen = chosen_run(options)
    report = report_of(chosen)
    text.emit([text.to_json(report)] if options.json else _page(chosen, report))
    store.close()
    return FINE


def report_of(run: Run) -> dict[str, Any]:
    """Findings in the newest steps, and earlier findings that are over, as plain values."""
    diagnosis = run.diagnose()
    current = [finding.as_dict() for finding in diagnosis.findings]
    stored = {finding["key"]: finding for finding in run.findings() if "key" in finding}
    for finding in current:
        before = stored.pop(finding["key"], None)
        if before is not None:
            # The stored finding is older: it knows when the problem began.
            finding.update(first_step=before["first_step"], first_time=before["first_time"])
    return {
        "run": run.id,
        "name": run.name,
        "verdict": verdict_for(run, (), figures_of(run), diagnosis).as_dict(),
        "findings": current,
        "earlier": [{**finding, "open": False} for finding in stored.values()],
        "considered": [vars(reason) for reason in diagnosis.considered],
    }


def _page(run: Run, report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{text.paint(text.safe(run.name), 'heading')}  {text.paint(run.status, run.status)}"
    verdict = report["verdict"]
    style = _STYLES.get(verdict["severity"], "faint")
    yield from _wrapped(text.safe(verdict["headline"]), "  ", style)
    if verdict["tries"]:
        yield from _wrapped(f"try: {', '.join(verdict['tries'])}", "  ")
    for number, finding in enumerate(report["findings"], 1):
        yield from _finding(number, finding)
    if report["earlier"]:
        yield from _heading("earlier findings, not in the newest steps")
        for finding in report["earlier"]:
            yield from _wrapped(f"{finding['id']}: {text.safe(finding['headline'])}", "  ")
    if report["considered"]:
        yield from _heading("checks passed, and checks that could not run")
        for reason in report["considered"]:
            yield from _wrapped(f"{reason['id']}: {text.safe(reason['why_not'])}", "  ", "faint")


def _finding(number: int, finding: Mapping[str, Any]) -> Iterator[str]:
    severity = str(finding["severity"])
    yield ""
    title = text.paint(f"{number}. {text.safe(finding['title'])}", "heading")
    confidence = f"confidence {finding['confidence']:.0%}"
    yield f"{title}  {text.paint(severity, _STYLES.get(severity, 'faint'))}, {confidence}  {finding['id']}"
    yield from _wrapped(text.safe(finding["headline"]), "   ")
    yield from _wrapped(text.safe(finding["detail"]), "   ")
    yield from _evidence(finding["evidence"])
    for reason in finding["ruled_out"]:
        yield from _wrapped(f"ruled out: {text.safe(reason)}", "   ", "faint")
    for remedy in finding["remedies"]:
        yield from _remedy(remedy)
    estimate = finding["estimate"]
    if estimate is not None:
        yield from _wrapped(_gain(estimate), "   ")
    if finding["how"]:
        yield from _wrapped(f"how: {text.safe(finding['how'])}", "   ", "faint")


def _gain(estimate: Mapping[str, Any]) -> str:
    low, likely, high = (f"{estimate[name]:.0%}" for name in ("low", "likely", "high"))
    span = "" if low == high else f" ({low} to {high})"
    return f"estimated gain: {likely} of {estimate['of']}{span}"


def _evidence(evidence: Sequence[Mapping[str, str]]) -> Iterator[str]:
    width = max((len(figure["label"]) for figure in evidence), default=0)
    for figure in evidence:
        note = f"  ({text.safe(figure['note'])})" if figure["note"] else ""
        yield f"   - {text.safe(figure['label']):<{width}}  {text.safe(figure['value'])}{note}"


def _remedy(remedy: Mapping[str, Any]) -> Iterator[str]:
    framework = f" [{remedy['framework']}]" if remedy["framework"] else ""
    yield from _wrapped(f"do: {text.safe(remedy['text'])}{framework}", "   ")
    for line in (remedy["code"] or "").splitlines():
        yield f"       {text.safe(line)}"


def _heading(title: str) -> Iterator[str]:
    yield ""
    yield text.paint(title, "heading")


def _wrapped(sentence: str, margin: str, style: str = "") -> Iterator[str]:
    width = min(text.screen_width(), MAX_WIDTH)
    for line in textwrap.wrap(sentence, width, initial_indent=margin, subsequent_indent=margin + "  "):
        yield text.paint(line, style) if style else line
