"""Scores what was said of a run against what is true of it, and sums the scores up."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from zoo.answer import Answer, Said
from zoo.case import Case

CONTENTION = ("host.oversubscribed", "host.contention")
"""True findings wherever other programs keep the processors busy."""

DEVIATIONS = 1.96
"""Half the width of an interval of 95%, in standard deviations."""

MIN_RIGHT = 0.95
MAX_STEPS = 60


@dataclass(frozen=True)
class Share:
    """How many of some cases, with the interval that contains the true share with 95%."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None of no cases."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of Wilson, which is right for small numbers and shares near 0 and 1 as well."""
        if not self.of:
            return 0.0, 1.0
        share, square = self.count / self.of, DEVIATIONS**2 / self.of
        centre = (share + square / 2) / (1 + square)
        spread = DEVIATIONS * math.sqrt(share * (1 - share) / self.of + square / (4 * self.of))
        return max(centre - spread / (1 + square), 0.0), min(centre + spread / (1 + square), 1.0)

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        low, high = self.interval
        return f"{self.value:.0%} ({self.count} of {self.of}; {low:.0%} to {high:.0%})"


@dataclass(frozen=True)
class Score:
    """How right an answer is."""

    case: Case
    answer: Answer
    is_named: bool
    """Whether the first cause is an expected one, and all faults are reported; False without one."""
    is_advice_right: bool
    """Whether the findings that name the faults say what helps, and where; False if none does."""
    named: tuple[str, ...]
    """Expected findings that were reported."""
    missed: tuple[str, ...]
    """For each fault that was not reported, the finding that should have been."""
    false: tuple[str, ...]
    """Findings that are not true."""
    has_detector: bool = True
    """Whether there is a detector for every planted fault."""
    steps: int | None = None
    """After how many steady steps with the fault it was first reported; None if it never was."""
    measured_gain: float | None = None
    """The share of time that the training takes less without the fault."""
    is_busy: bool = False
    """Whether other programs kept the processors busy."""

    @property
    def is_right(self) -> bool:
        """Whether cause and advice are right; of a healthy run, whether nothing was reported."""
        if self.case.is_healthy:
            return not self.false
        return self.is_named and self.is_advice_right

    @property
    def is_abstained(self) -> bool:
        """Whether nothing was reported of a faulty run, nor was it called healthy."""
        return not self.case.is_healthy and not self.answer.ids and not self.answer.is_healthy

    @property
    def is_called_healthy(self) -> bool:
        """Whether a faulty run was called healthy."""
        return not self.case.is_healthy and self.answer.is_healthy

    @property
    def predicted_gain(self) -> tuple[float, float, float] | None:
        """The gain that the finding predicted."""
        return next((said.gain for said in self.answer.findings if said.id in self.named), None)


def score(case: Case, answer: Answer, detectors: Collection[str], *, is_busy: bool = False) -> Score:
    """Compares an answer with the declaration of its case."""
    ignored = set(CONTENTION) - case.all_expected if is_busy else set()
    ids = [name for name in answer.ids if name not in ignored]
    named = tuple(name for name in ids if name in case.all_expected)
    missed = tuple(group[0] for group in case.expects if set(group).isdisjoint(ids))
    true = {*case.all_expected, *case.also, *ignored}
    reported = [*(said.id for said in answer.findings)]
    if case.is_healthy:
        reported += [said.id for said in answer.earlier] + [
            name for name in ids if name.startswith("status.")
        ]
    return Score(
        case,
        answer,
        is_named=bool(ids) and ids[0] in case.all_expected and not missed,
        is_advice_right=bool(named) and _is_right(case, answer.findings, named),
        named=named,
        missed=missed,
        false=tuple(dict.fromkeys(name for name in reported if name not in true)),
        has_detector=all(_is_known(group, detectors) for group in case.expects),
        is_busy=is_busy,
    )


def _is_known(group: Iterable[str], detectors: Collection[str]) -> bool:
    return any(name in detectors or name.startswith("status.") for name in group)


def _is_right(case: Case, findings: Iterable[Said], named: Collection[str]) -> bool:
    said = [finding for finding in findings if finding.id in named]
    advice = "\n".join(finding.advice for finding in said)
    text = "\n".join(finding.text for finding in said)
    return (
        all(_contains(advice, words) for words in case.advice)
        and all(_contains(text, words) for words in case.names)
        and not any(_contains(advice, words) for words in case.wrong_advice)
    )


def _contains(text: str, words: str) -> bool:
    return any(word.lower() in text.lower() for word in words.split("|"))


@dataclass
class Record:
    """How often a detector was right."""

    right: int = 0
    false: int = 0
    missed: int = 0

    @property
    def precision(self) -> Share:
        """The share of its findings that are true."""
        return Share(self.right, self.right + self.false)

    @property
    def recall(self) -> Share:
        """The share of its faults that it found."""
        return Share(self.right, self.right + self.missed)


@dataclass
class Summary:
    """Figures of all scores at full dose; those at lower doses show where detection begins."""

    scores: Sequence[Score]
    records: dict[str, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.scores:
            # An acceptable finding counts for the detector that made it.
            for names, counter in ((each.named, "right"), (each.missed, "missed"), (each.false, "false")):
                for name in names:
                    record = self.records.setdefault(name, Record())
                    setattr(record, counter, getattr(record, counter) + 1)

    @property
    def faulty(self) -> list[Score]:
        """Runs with a planted fault."""
        return [each for each in self.scores if not each.case.is_healthy]

    @property
    def named(self) -> Share:
        """Top-1 accuracy: the first cause is the planted one."""
        return Share(sum(each.is_named for each in self.faulty), len(self.faulty))

    @property
    def advised(self) -> Share:
        """Cause and advice are both right."""
        return Share(sum(each.is_right for each in self.faulty), len(self.faulty))

    @property
    def abstained(self) -> Share:
        """Nothing was said of a faulty run."""
        return Share(sum(each.is_abstained for each in self.faulty), len(self.faulty))

    @property
    def called_healthy(self) -> list[Score]:
        """Faulty runs that were called healthy."""
        return [each for each in self.scores if each.is_called_healthy]

    @property
    def false_alarms(self) -> list[Score]:
        """Healthy runs with a finding."""
        return [each for each in self.scores if each.case.is_healthy and each.false]

    @property
    def steps(self) -> list[int]:
        """Steady steps until each fault was reported, in order."""
        return sorted(each.steps for each in self.faulty if each.steps is not None)

    @property
    def gains(self) -> list[tuple[tuple[float, float, float], float]]:
        """Predicted gain (lowest, likely, highest) and the measured one."""
        return [
            (each.predicted_gain, each.measured_gain)
            for each in self.faulty
            if each.predicted_gain is not None and each.measured_gain is not None
        ]

    @property
    def bounds(self) -> list[tuple[str, bool]]:
        """What must hold, and whether it does."""
        healthy = sum(each.case.is_healthy for each in self.scores)
        in_time = Share(sum(count <= MAX_STEPS for count in self.steps), len(self.steps))
        return [
            (
                f"cause and advice are right in {MIN_RIGHT:.0%} of the faulty runs: {self.advised}",
                (self.advised.value or 0.0) >= MIN_RIGHT,
            ),
            (
                f"no false alarm on a healthy run: {len(self.false_alarms)} of {healthy}",
                not self.false_alarms,
            ),
            (
                f"no faulty run is called healthy: {len(self.called_healthy)} of {len(self.faulty)}",
                not self.called_healthy,
            ),
            (
                f"faults are reported within {MAX_STEPS} steady steps: {in_time}",
                in_time.count == in_time.of,
            ),
        ]
