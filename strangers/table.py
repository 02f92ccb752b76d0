"""Draws one table of all trainings, and under it what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from strangers.attempts import Attempt
from strangers.catalogue import Trainer
from strangers.checks import is_identical, warnings_of
from strangers.recorded import Recorded

HEAD = (
    "trainer", "version", "mode", "steps", "seen", "explained", "in phases", "identical",
    "warnings", "alarms", "loop s", "loop ×", "CPU ×", "",
)  # fmt: skip
NUMBERS = {"steps", "seen", "explained", "in phases", "warnings", "alarms", "loop s", "loop ×", "CPU ×"}


@dataclass(frozen=True)
class Line:
    """One way of running one trainer, beside the bare training."""

    trainer: Trainer
    version: str
    bare: Attempt
    attempt: Attempt
    recorded: Recorded | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[str]:
        """What the table shows."""
        outcome = self.attempt.outcome
        steps = "-" if outcome is None else str(outcome.steps)
        first = [self.trainer.name, self.version, self.attempt.mode, steps]
        last = [*self._times(), "FAIL" if self.failures else "ok"]
        if self.recorded is None:
            return [*first, *(["-"] * 6), *last]
        named = self.recorded.in_named_phases
        return [
            *first,
            "/".join(str(len(steps)) for steps in self.recorded.steps.values()) or "0",
            f"{self.recorded.explained:.1%}",
            "-" if named is None else f"{named:.0%}",
            self._identical(),
            str(len(warnings_of(self.bare, self.attempt))),
            str(len(self.recorded.alerts) + len(self.recorded.findings)),
            *last,
        ]

    def _identical(self) -> str:
        bare, other = self.bare.outcome, self.attempt.outcome
        if bare is None or other is None or self.attempt.mode.endswith("resumed"):
            return "-"
        return "yes" if is_identical(bare, other) else "NO"

    def _times(self) -> list[str]:
        bare, other = self.bare.outcome, self.attempt.outcome
        if bare is None or other is None or self.attempt.mode.endswith("resumed"):
            return ["-", "-", "-"]
        ratios = (other.seconds / bare.seconds, other.cpu_seconds / bare.cpu_seconds)
        return [f"{other.seconds:.1f}", *(f"{ratio:.2f}" for ratio in ratios)]


def drawn(lines: Sequence[Line]) -> str:
    """The table, and a paragraph for each line that failed."""
    rows = [list(HEAD), *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    table = [
        "  ".join(
            cell.rjust(width) if name in NUMBERS else cell.ljust(width)
            for name, cell, width in zip(HEAD, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    notes = [
        f"\n{line.trainer.name}, {line.attempt.mode}:\n"
        + "\n".join(f"  - {failure}" for failure in line.failures)
        for line in lines
        if line.failures
    ]
    return "\n".join([*table, *notes])
