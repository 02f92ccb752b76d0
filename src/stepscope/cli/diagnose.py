"""Says why a run is slow or failing, how that is known, and what to change."""

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

WIDEST = 100
"""Longer lines of text are hard to read, however wide the screen is."""

_STYLES = {"critical": "problem", "warning": "note", "notice": "running", "ok": "ok"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which run, and how to print it."""
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints the diagnosis."""
    store, one = chosen_run(options)
    told = diagnosed(one)
    text.emit([text.to_json(told)] if options.json else _page(one, told))
    store.close()
    return FINE


def diagnosed(one: Run) -> dict[str, Any]:
    """What the newest steps show now, and what was found earlier and is over, as plain values."""
    found = one.diagnose()
    now = [finding.as_dict() for finding in found.findings]
    kept = {finding["key"]: finding for finding in one.findings() if "key" in finding}
    for finding in now:
        before = kept.pop(finding["key"], None)
        if before is not None:
            # Since when it is known is told by whoever has seen it first.
            finding.update(first_step=before["first_step"], first_time=before["first_time"])
    return {
        "run": one.id,
        "name": one.name,
        "verdict": verdict_for(one, (), figures_of(one), found).as_dict(),
        "findings": now,
        "earlier": [{**finding, "open": False} for finding in kept.values()],
        "considered": [vars(reason) for reason in found.considered],
    }


def _page(one: Run, told: Mapping[str, Any]) -> Iterator[str]:
    yield f"{text.paint(text.safe(one.name), 'heading')}  {text.paint(one.status, one.status)}"
    verdict = told["verdict"]
    style = _STYLES.get(verdict["severity"], "faint")
    yield from _wrapped(text.safe(verdict["headline"]), "  ", style)
    if verdict["tries"]:
        yield from _wrapped(f"try: {', '.join(verdict['tries'])}", "  ")
    for number, finding in enumerate(told["findings"], 1):
        yield from _finding(number, finding)
    if told["earlier"]:
        yield from _heading("found earlier, and not in the newest steps")
        for finding in told["earlier"]:
            yield from _wrapped(f"{finding['id']}: {text.safe(finding['headline'])}", "  ")
    if told["considered"]:
        yield from _heading("checks passed, and checks that could not run")
        for reason in told["considered"]:
            yield from _wrapped(f"{reason['id']}: {text.safe(reason['why_not'])}", "  ", "faint")


def _finding(number: int, finding: Mapping[str, Any]) -> Iterator[str]:
    severity = str(finding["severity"])
    yield ""
    title = text.paint(f"{number}. {text.safe(finding['title'])}", "heading")
    sure = f"{finding['confidence']:.0%} sure"
    yield f"{title}  {text.paint(severity, _STYLES.get(severity, 'faint'))}, {sure}  {finding['id']}"
    yield from _wrapped(text.safe(finding["headline"]), "   ")
    yield from _wrapped(text.safe(finding["detail"]), "   ")
    yield from _evidence(finding["evidence"])
    for said in finding["ruled_out"]:
        yield from _wrapped(f"ruled out: {text.safe(said)}", "   ", "faint")
    for remedy in finding["remedies"]:
        yield from _remedy(remedy)
    estimate = finding["estimate"]
    if estimate is not None:
        worth = f"worth {estimate['likely']:.0%} of {estimate['of']}"
        yield from _wrapped(f"{worth}, from {estimate['low']:.0%} to {estimate['high']:.0%}", "   ")
    if finding["how"]:
        yield from _wrapped(f"how: {text.safe(finding['how'])}", "   ", "faint")


def _evidence(evidence: Sequence[Mapping[str, str]]) -> Iterator[str]:
    width = max((len(one["label"]) for one in evidence), default=0)
    for one in evidence:
        note = f"  ({text.safe(one['note'])})" if one["note"] else ""
        yield f"   - {text.safe(one['label']):<{width}}  {text.safe(one['value'])}{note}"


def _remedy(remedy: Mapping[str, Any]) -> Iterator[str]:
    framework = f" [{remedy['framework']}]" if remedy["framework"] else ""
    yield from _wrapped(f"do: {text.safe(remedy['text'])}{framework}", "   ")
    for line in (remedy["code"] or "").splitlines():
        yield f"       {text.safe(line)}"


def _heading(title: str) -> Iterator[str]:
    yield ""
    yield text.paint(title, "heading")


def _wrapped(said: str, margin: str, style: str = "") -> Iterator[str]:
    width = min(text.screen_width(), WIDEST)
    for line in textwrap.wrap(said, width, initial_indent=margin, subsequent_indent=margin + "  "):
        yield text.paint(line, style) if style else line
