"""Reads which lines of the user's code the training thread was found running, from the events of a rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from stepscope.analysis.wording import percent
from stepscope.schema.finding import Evidence
from stepscope.schema.keys import STACKS_EVENT

if TYPE_CHECKING:
    from stepscope.schema.record import Event
    from stepscope.schema.window import Window

BLOCKED = "blocked"
"""The sign of samples that were taken because a single step took long."""

Z = 1.96
"""Of a 95% interval."""

KINDS = {
    "sleep": "it sleeps",
    "network": "it waits for the network",
    "subprocess": "it waits for another program",
    "plot": "it draws",
    "logging": "it prints, logs or writes",
    "sync": "it reads a value of a tensor",
}
"""What a line does, in words."""


@dataclass(frozen=True)
class SampledLine:
    """A line of the user's code, and how often it was found running."""

    place: str
    """Such as `train.py:83 in collate`."""
    kind: str
    """What it was called for; empty if not known."""
    call: str
    """The innermost function that was found running most often; empty for the line itself."""
    samples: int
    of: int
    """Number of samples it is compared with."""

    @property
    def share(self) -> float:
        """The share of these samples."""
        return self.samples / self.of

    @property
    def low(self) -> float:
        """The lower bound of its share, with a confidence of 97.5%."""
        return lower_bound(self.samples, self.of)

    @property
    def words(self) -> str:
        """What it does, or calls; empty if not known."""
        return KINDS.get(self.kind, "") or (f"in {self.call}" if self.call else "")

    def evidence(self) -> Evidence:
        """The evidence that it is this line."""
        words = f"; {self.words}" if self.words else ""
        return Evidence("line", self.place, f"in {percent(self.share)} of {self.of:,} stack samples{words}")


@dataclass(frozen=True)
class StackSamples:
    """Samples of the stack of a training thread, taken within some seconds."""

    sign: str
    """The phase that was the reason for them, or `blocked`."""
    step: int
    samples: int
    lines: tuple[dict[str, Any], ...]
    fields: dict[str, Any]

    def count(self, *phases: str) -> int:
        """Number of samples in these phases."""
        counted = self.fields.get("phases", {})
        return sum(int(counted.get(phase, 0)) for phase in phases)

    def lines_in(self, *phases: str, kind: str = "") -> list[SampledLine]:
        """The lines in these phases, of any kind or of one, the most frequent first."""
        of = self.count(*phases)
        chosen = [line for line in self.lines if line["phase"] in phases and line["samples"] <= of]
        return _merged([line for line in chosen if kind in ("", line["kind"])], of)

    def logging_lines(self) -> list[SampledLine]:
        """The lines that print, log or write, in the phases of a step that are not about data or files."""
        others = ("data", "checkpoint", "eval", "compile")
        chosen = [line for line in self.lines if line["kind"] == "logging" and line["phase"] not in others]
        return _merged(chosen, self.samples)


def newest_samples(window: Window, rank: int) -> StackSamples | None:
    """Returns the newest samples of a rank that were taken because of a phase's share of the time."""
    of_shares = [samples for samples in _all_samples(window, rank) if samples.sign != BLOCKED]
    return of_shares[-1] if of_shares else None


def blocked_samples(window: Window, rank: int) -> list[StackSamples]:
    """Returns the samples of a rank that were taken because a step blocked, oldest first."""
    return [samples for samples in _all_samples(window, rank) if samples.sign == BLOCKED]


def line_in(window: Window, rank: int, *phases: str, kind: str = "") -> SampledLine | None:
    """Returns the line that was found most often in these phases; None unless it has most of the samples."""
    samples = newest_samples(window, rank)
    lines = [] if samples is None else samples.lines_in(*phases, kind=kind)
    return lines[0] if lines and lines[0].samples >= MIN_SAMPLES and lines[0].share >= MOST else None


MIN_SAMPLES, MOST = 5, 0.5
"""The fewest samples of a line, and its least share of those of its phase, for it to be named."""


def lower_bound(count: int, of: int) -> float:
    """Returns the lower end of the 95% interval of Wilson of a share."""
    if of <= 0:
        return 0.0
    share, spread = count / of, Z * Z / of
    center = share + spread / 2
    return max((center - Z * sqrt((share * (1 - share) + spread / 4) / of)) / (1 + spread), 0.0)


def _all_samples(window: Window, rank: int) -> list[StackSamples]:
    return [_samples_of(event) for event in window.events_of(STACKS_EVENT, rank)]


def _samples_of(event: Event) -> StackSamples:
    fields = dict(event.fields)
    lines = tuple(line for line in fields.get("lines", ()) if int(line.get("samples", 0)) > 0)
    return StackSamples(
        str(fields.get("sign", "")), event.step or 0, int(fields.get("samples", 0)), lines, fields
    )


def _merged(lines: list[dict[str, Any]], of: int) -> list[SampledLine]:
    """Returns the lines with all that they call; the kind and the call are the most frequent ones."""
    counts: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        counts.setdefault(str(line["place"]), []).append(line)
    merged = [_line(place, parts, max(of, 1)) for place, parts in counts.items()]
    return sorted(merged, key=lambda line: -line.samples)


def _line(place: str, parts: list[dict[str, Any]], of: int) -> SampledLine:
    kinds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for part in parts:
        kinds[str(part["kind"])] += int(part["samples"])
        calls[str(part["call"])] += int(part["samples"])
    samples = kinds.total()
    return SampledLine(place, kinds.most_common(1)[0][0], calls.most_common(1)[0][0], min(samples, of), of)
