"""Draws the table of cases, then the figures of all of them."""

from collections.abc import Iterator, Sequence
from statistics import median

from zoo.catalogue import LEFT_TO_TESTS
from zoo.scoring import Score, Share, Summary
from zoo.trial import Settings

HEAD = ("case", "dose", "seed", "busy", "expected", "reported", "cause", "advice", "steps", "gain", "result")
NUMBERS = {"dose", "seed", "busy", "steps"}

Line = tuple[Score, Settings]


def drawn(lines: Sequence[Line]) -> str:
    """The table, with a paragraph for each case that is wrong, and a summary."""
    rows = [list(HEAD), *(_cells(*line) for line in lines)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    table = [
        "  ".join(
            cell.rjust(width) if name in NUMBERS else cell.ljust(width)
            for name, cell, width in zip(HEAD, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    # What is said at lower doses shows where detection begins; it is not part of the scores.
    counted = [score for score, settings in lines if settings.dose >= 1 or score.case.is_healthy]
    wrong = [(score, settings) for score, settings in lines if not score.is_right]
    return "\n".join([*table, *_wrong(wrong), "", *_summary(Summary(counted))])


def _cells(score: Score, settings: Settings) -> list[str]:
    case, reported = score.case, [said.id for said in score.answer.findings]
    predicted, measured = score.predicted_gain, score.measured_gain
    gain = "-" if predicted is None else f"{predicted[1]:.0%}"
    if measured is not None:
        gain += f", measured {measured:.0%}"
    return [
        case.name,
        f"{settings.dose:g}",
        str(settings.seed),
        "yes" if score.is_busy else "no",
        " + ".join(group[0] for group in case.expects) or "nothing",
        ", ".join(dict.fromkeys([*score.answer.ids, *reported])) or f"nothing ({score.answer.verdict})",
        "-" if case.is_healthy else _yes(score.is_named),
        _yes(score.is_advice_right) if score.named else "-",
        "-" if score.steps is None else str(score.steps),
        gain,
        _result(score),
    ]


def _yes(is_right: object) -> str:
    return "right" if is_right else "wrong"


def _result(score: Score) -> str:
    if score.is_right:
        return "ok"
    if score.is_called_healthy:
        return "CALLED HEALTHY"
    if not score.has_detector:
        return "no detector yet"
    if score.case.is_healthy:
        return "FALSE ALARM"
    return "abstained" if score.is_abstained else "WRONG"


def _wrong(lines: Sequence[Line]) -> Iterator[str]:
    for score, settings in lines:
        planted = score.case.fault or "nothing is planted"
        yield f"\n{score.case.name}, dose {settings.dose:g}: {planted}"
        yield f"  - verdict: {score.answer.headline}"
        for said in score.answer.findings:
            yield f"  - {said.id}, {said.severity}: {said.headline}"
        for said in score.answer.earlier:
            yield f"  - during the run {said.id}, {said.severity}: {said.headline}"
        if score.named and not score.is_advice_right:
            yield f"  - the advice or the text lacks {score.case.advice} or {score.case.names}"


def _summary(summary: Summary) -> Iterator[str]:
    yield f"{len(summary.scores)} runs, {len(summary.faulty)} of them with a planted fault, dose 1 or more"
    yield f"first cause is right     {summary.named}"
    yield f"cause and advice right   {summary.advised}"
    yield f"nothing said of a fault  {summary.abstained}"
    yield f"called healthy           {Share(len(summary.called_healthy), len(summary.faulty))}"
    healthy = len(summary.scores) - len(summary.faulty)
    yield f"false alarms             {Share(len(summary.false_alarms), healthy)}"
    if summary.steps:
        yield f"steps until reported     median {median(summary.steps):g}, highest {summary.steps[-1]}"
    yield from _calibration(summary)
    yield "\ndetector               precision                           recall"
    for name, record in sorted(summary.records.items()):
        yield f"{name:<22} {record.precision!s:<35} {record.recall}"
    missing = [score.case.name for score in summary.faulty if not score.has_detector]
    if missing:
        yield f"\nno detector yet, counted as missed: {', '.join(missing)}"
    yield f"not run here, but simulated in tests/detectors: {', '.join(LEFT_TO_TESTS)}"
    yield ""
    for sentence, holds in summary.bounds:
        yield f"{'met' if holds else 'MISSED':<7} {sentence}"


def _calibration(summary: Summary) -> Iterator[str]:
    if not summary.gains:
        return
    inside = sum(low <= measured <= high for (low, _, high), measured in summary.gains)
    errors = [abs(likely - measured) for (_, likely, _), measured in summary.gains]
    yield f"measured gain in range   {Share(inside, len(summary.gains))}"
    yield f"error of the likely gain median {median(errors):.0%} of the time, largest {max(errors):.0%}"
