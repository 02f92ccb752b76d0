"""Detects a compiled model that PyTorch compiles again and again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.record import Event
    from stepscope.schema.window import RankWindow, Window

RECOMPILATIONS, SECONDS = "compile/recompiles", "compile/seconds"
RECOMPILED, GAVE_UP = "recompile", "compile_limit"

MAX_SHOWN = 3
MAX_LENGTH = 160

_PREFIX = re.compile(r"^\d+/\d+: ")
_SOURCE = re.compile(r"\s+#.*|\s+User stack trace:.*", re.DOTALL)
"""What PyTorch appends to a reason: the line of code, and the stack."""


class _Cause(NamedTuple):
    """What differs from one compilation to the next."""

    pattern: re.Pattern[str]
    remedy: Remedy
    attempt: str


CAUSES = (
    _Cause(
        re.compile(r"size mismatch|stride mismatch|rank mismatch|\.size\(\)|shape", re.IGNORECASE),
        Remedy(
            "Keep shapes the same, or tell the compiler which dimension varies.",
            "loader = DataLoader(dataset, batch_size=64, drop_last=True)\n"
            "torch._dynamo.mark_dynamic(x, 0)           # or torch.compile(model, dynamic=True)",
            "PyTorch",
        ),
        "the same shapes in every step",
    ),
    _Cause(
        re.compile(r"=="),
        Remedy(
            "Compile only what computes with tensors: each new value of a Python number or text is compiled. "
            "Pass numbers that change as tensors.",
            "model(x, torch.tensor(temperature))",
            "PyTorch",
        ),
        "no Python values that change",
    ),
)
UNKNOWN = Remedy(
    "Let PyTorch print why it compiles again, and keep that the same in every step.",
    "TORCH_LOGS=recompiles python train.py",
    "PyTorch",
)


@dataclass(frozen=True)
class Recompilations(Detector):
    """Counts compilations after the first steps, and the time they take."""

    id: ClassVar[str] = "compile.recompile"
    title: ClassVar[str] = "The model is compiled again and again"
    sentence: ClassVar[str] = (
        "PyTorch has given up compiling a function because of too many compilations; or several of them "
        "after the first steps take a share of the time"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((RECOMPILATIONS,),)
    reads: ClassVar[tuple[str, ...]] = (STEP_SECONDS, SECONDS)
    events: ClassVar[tuple[str, ...]] = (RECOMPILED, GAVE_UP)
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    first_steps: Annotated[int, Range(0)] = 20
    """Compilations in the first steps of a run do not count, except for those that were given up."""

    recompilations: Annotated[int, Range(1)] = 3
    """Minimum number of compilations after these steps."""

    share: Annotated[float, Range(0.001, 1)] = 0.02
    """Minimum share of time that they take."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Counts what was compiled again in the examined steps."""
        wall = wall_seconds(rank)
        if wall is None:
            return TooLittleEvidence("Too little time was recorded.")
        gave_up = window.events_of(GAVE_UP, rank.rank)
        late = np.arange(len(rank.steps)) >= (self.first_steps if rank.is_whole else 0)
        late &= rank.where(RECOMPILATIONS, steady=False) & (rank.columns[RECOMPILATIONS].values > 0)
        count = int(rank.columns[RECOMPILATIONS].values[late].sum())
        spent = float(np.nansum(rank.columns[SECONDS].values[late])) if SECONDS in rank.columns else 0.0
        lost = min(spent / wall, 1.0)
        if not gave_up and (count < self.recompilations or lost < self.share):
            times = f"{count} time{'s' if count != 1 else ''}"
            return f"Compiled again {times} after the first steps, which took {percent(lost)} of the time."
        return self._finding(rank, window, gave_up, count, lost)

    def _finding(
        self, rank: RankWindow, window: Window, gave_up: list[Event], count: int, lost: float
    ) -> Finding:
        events = [*gave_up, *window.events_of(RECOMPILED, rank.rank)]
        reasons = list(dict.fromkeys(_reason(event) for event in events))
        causes = [cause for cause in CAUSES if any(cause.pattern.search(reason) for reason in reasons)]
        place = next((str(event.fields["place"]) for event in events if event.fields.get("place")), "")
        where = f" at {place}" if place else ""
        again = (
            f"The model is compiled again in {count} steps{where}, which takes {percent(lost)} of the time"
        )
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"PyTorch has given up compiling {_function(gave_up[0])}{where}."
            if gave_up
            else f"{again}.",
            detail="A compiled function holds for the shapes and Python values it was compiled for, and is "
            "compiled again for others. After eight times PyTorch runs it without compilation.",
            # What is not compiled any more runs slowly from then on, and that is not measured.
            severity="warning" if gave_up else severity_of(lost),
            confidence=0.9 if reasons else 0.75,
            share=None if gave_up else lost,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            where=place,
            evidence=(
                Evidence(
                    "compiled again",
                    f"{np.nansum(rank.columns[RECOMPILATIONS].values):,.0f} times",
                    f"{seconds(_spent(rank))} with the first compilation",
                ),
                *(Evidence("because", reason) for reason in reasons[:MAX_SHOWN]),
            ),
            chart=Chart((RECOMPILATIONS, SECONDS), first, last),
            ruled_out=() if gave_up else ("The first compilation: the first steps are left out.",),
            remedies=tuple(cause.remedy for cause in causes) or (UNKNOWN,),
            tries=tuple(cause.attempt for cause in causes) or ("TORCH_LOGS=recompiles",),
            estimate=None if gave_up else Estimate(0.5 * lost, lost, lost, "the time of the run"),
            how="PyTorch reports each compilation, its reason and how long it took.",
            refs=(
                "https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamic_shapes.html",
            ),
        )


def _reason(event: Event) -> str:
    text = _SOURCE.sub("", _PREFIX.sub("", str(event.fields.get("reason", "")).strip()))
    return f"{text[:MAX_LENGTH]}…" if len(text) > MAX_LENGTH else text


def _function(event: Event) -> str:
    name = event.fields.get("function")
    return f"`{name}`" if name else "the function"


def _spent(rank: RankWindow) -> float:
    return float(np.nansum(rank.columns[SECONDS].values)) if SECONDS in rank.columns else 0.0
