"""Explains why a run is slow or failing, with evidence, and what to change."""

from __future__ import annotations

import contextlib
import shlex
import sys
import textwrap
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stepscope.analysis.verdict import importance
from stepscope.cli.main import FINE
from stepscope.cli.options.find import add_run_arguments, chosen_run
from stepscope.cli.output import text
from stepscope.errors import NotFound, StoreError
from stepscope.schema.finding import is_muted
from stepscope.schema.run import LIVE
from stepscope.store.open import open_marks
from stepscope.views.history.run_history import history_of
from stepscope.views.overview.run_findings import NOT_STORED, checks_of, feedback_on
from stepscope.views.overview.run_verdict import findings_of, is_open, verdict_for
from stepscope.views.run_figures import figures_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from stepscope.reading import Run, Runs
    from stepscope.store.mark_store import Feedback, Opinion

MAX_WIDTH = 100
"""Longer lines are hard to read, even on a wide screen."""

WATCH_INTERVAL_S = 5.0

_STYLES = {"critical": "problem", "warning": "note", "notice": "running", "ok": "ok"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which run, and how to print it."""
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object; with --watch one a line")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="print the diagnosis again whenever its findings change, until the run ends",
    )

    opinions = parser.add_mutually_exclusive_group()
    opinions.add_argument(
        "--wrong", metavar="FINDING", help="say that a finding is wrong; mutes it in the run's project"
    )
    opinions.add_argument("--not-wanted", metavar="FINDING", help="mark a finding as not wanted and mute it")
    opinions.add_argument("--unmute", metavar="FINDING", help="report a finding of the project again")
    parser.add_argument("--note", metavar="TEXT", default="", help="why a finding is wrong or not wanted")


def run(options: argparse.Namespace) -> int:
    """Prints the diagnosis, once or until the run ends, or saves an opinion on a finding."""
    if options.note and options.wrong is None and options.not_wanted is None:
        options.parser.error(
            "--note needs the finding that it is about: --wrong FINDING or --not-wanted FINDING"
        )
    store, chosen = chosen_run(options)
    if any(named is not None for named in (options.wrong, options.not_wanted, options.unmute)):
        saved = _save_opinion(store, chosen, options)
        if not options.json:
            text.emit([saved])
            store.close()
            return FINE
        text.say(saved)
    reports = reports_until_end(store, chosen) if options.watch else [report_of(store, chosen)]
    for report in reports:
        indent = None if options.watch else 2
        text.emit([text.to_json(report, indent)] if options.json else _page(report))
        for reason in report["history"]["unreadable"]:
            print(f"Not compared with an earlier run: {text.safe(reason)}", file=sys.stderr)
    store.close()
    return FINE


def _save_opinion(store: Runs, run: Run, options: argparse.Namespace) -> str:
    project = text.safe(run.project)
    with contextlib.closing(open_marks(store.folder)) as marks:
        if options.unmute is not None:
            if not marks.withdraw_feedback(run.project, options.unmute):
                known = ", ".join(given.finding for given in marks.feedback(run.project))
                raise NotFound(
                    f"No finding {text.safe(options.unmute)!r} is muted in the project {project}"
                    f"{f'; muted there: {text.safe(known)}' if known else ''}."
                )
            return f"{text.safe(options.unmute)} is reported again in the project {project}."
        opinion: Opinion = "not_wanted" if options.wrong is None else "wrong"
        finding = options.not_wanted if options.wrong is None else options.wrong
        marks.give_feedback(feedback_on(run, finding, opinion, options.note, time.time()))
    undo = text.safe(f"stepscope diagnose {shlex.quote(run.name)} --unmute {finding}")
    words = opinion.replace("_", " ")
    return f"{finding} is marked as {words} and muted in the project {project}. Undo with: {undo}"


def reports_until_end(
    store: Runs, run: Run, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Reports on a run: now, whenever its findings change, and when it has ended."""
    reported = None
    while True:
        run = store.run(run.id)
        report = report_of(store, run)
        state = (run.status, [(finding["key"], finding["severity"]) for finding in report["findings"]])
        if state != reported:
            yield report
            reported = state
        if run.status not in LIVE:
            return
        sleep(WATCH_INTERVAL_S)


def report_of(store: Runs, run: Run) -> dict[str, Any]:
    """Findings in the newest steps, and earlier findings that are over, as plain values."""
    diagnosis = run.diagnose()
    muted, feedback = _opinions(store, run)
    history = history_of(run, store.runs(), diagnosis)
    # Those that the verdict is about, as on the page; figures of open ones are as they were stored.
    shown = [{**NOT_STORED, **finding} for finding in findings_of(run, diagnosis) if "key" in finding]
    current = sorted(filter(is_open, shown), key=importance)
    over = {finding["key"]: finding for finding in shown if not is_open(finding)}
    for finding in current:
        before = over.pop(finding["key"], None)
        if before is not None:  # it knows when the problem began
            finding.update(first_step=before["first_step"], first_time=before["first_time"])
        finding["detail"] = f"{finding['detail']} {history.saved_before(finding['id'])}".strip()
        # The short answer: the first remedy, and what it is estimated to gain.
        remedy = next(iter(finding["remedies"]), {"text": "", "code": None})
        finding.update(gain=finding["estimate"], remedy=remedy["text"], code=remedy["code"])
        finding["muted"] = is_muted(finding, muted)
    return {
        "run": run.id,
        "name": run.name,
        "status": run.status,
        "verdict": verdict_for(run, muted, figures_of(run), diagnosis).as_dict(),
        "findings": current,
        "earlier": list(over.values()),
        "checks": [asdict(check) for check in checks_of(diagnosis)],
        "history": asdict(history.answer),
        "feedback": [asdict(given) for given in feedback],
    }


def _opinions(store: Runs, run: Run) -> tuple[frozenset[str], tuple[Feedback, ...]]:
    """The findings that are muted, and why; none where the file of opinions is another user's."""
    with contextlib.closing(open_marks(store.folder)) as marks:
        try:
            return marks.muted(run.id, run.project), marks.feedback(run.project)
        except StoreError:
            return frozenset(), ()


def _page(report: Mapping[str, Any]) -> Iterator[str]:
    status = report["status"]
    yield f"{text.paint(text.safe(report['name']), 'heading')}  {text.paint(status, status)}"
    verdict = report["verdict"]
    style = _STYLES.get(verdict["severity"], "faint")
    yield from _wrapped(text.safe(verdict["headline"]), "  ", style)
    if verdict["tries"]:
        yield from _wrapped(f"try: {', '.join(verdict['tries'])}", "  ")
    yield from _history(report["history"])
    for number, finding in enumerate(report["findings"], 1):
        yield from _finding(number, finding)
    if report["earlier"]:
        yield from _heading("earlier findings, not in the newest steps")
        for finding in report["earlier"]:
            yield from _wrapped(f"{finding['id']}: {text.safe(finding['headline'])}", "  ")
    yield from _other_checks(report["checks"])


def _other_checks(checks: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for result, title in (("passed", "checks passed"), ("could not run", "checks that could not run")):
        chosen = [check for check in checks if check["result"] == result]
        if chosen:
            yield from _heading(title)
        for check in chosen:
            yield from _wrapped(f"{check['id']}: {text.safe(check['why'])}", "  ", "faint")
    skipped = sum(check["result"] == "skipped" for check in checks)
    if skipped:
        plural = "check that does" if skipped == 1 else "checks that do"
        yield from _heading(f"{skipped} {plural} not apply to this run: see --json")


def _history(history: Mapping[str, Any]) -> Iterator[str]:
    """Says nothing where no earlier run of the project is similar."""
    style = "note" if history["result"] == "slower" else ""
    if history["runs"]:
        yield from _wrapped(text.safe(history["sentence"]), "  ", style)
    if history["loss"] is not None:
        yield from _wrapped(text.safe(history["loss"]["sentence"]), "  ")
    for advice in history["helped"]:
        yield from _wrapped(text.safe(f"helped: {advice['sentence']}"), "  ", "faint")


def _finding(number: int, finding: Mapping[str, Any]) -> Iterator[str]:
    severity = str(finding["severity"])
    yield ""
    title = text.paint(f"{number}. {text.safe(finding['title'])}", "heading")
    confidence = f"confidence {finding['confidence']:.0%}"
    muted = ", muted" if finding["muted"] else ""
    painted = text.paint(severity, _STYLES.get(severity, "faint"))
    yield f"{title}  {painted}, {confidence}{muted}  {finding['id']}"
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
