"""Says in a sentence how a run fares: by the most worthwhile of its findings, or what bounds its steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.analysis.steady import SHORTEST_S
from stepscope.analysis.wording import percent, seconds
from stepscope.schema.keys import PHASES, STEP_SECONDS, device_key, phase_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.schema.finding import Finding
    from stepscope.schema.window import RankWindow, Window

FEWEST_STEPS = 20
"""Steady steps before which nothing is said of how a run fares."""

WATCH = "monitor.watch(model, optimizer)"


@dataclass(frozen=True)
class Verdict:
    """How a run fares."""

    id: str
    headline: str
    severity: str
    """That of the finding it is about; `ok` without one, `unknown` where nothing can be said yet."""
    confidence: float | None
    steps: tuple[int, int] | None
    """The first and the last step it is about."""
    tries: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        fields = asdict(self)
        return {
            **fields,
            "steps": None if self.steps is None else list(self.steps),
            "tries": list(self.tries),
        }


def verdict_of(findings: Sequence[Finding], window: Window | None) -> Verdict:
    """The first finding that is more than information; else what bounds the step."""
    telling = [one for one in findings if one.severity != "info"]
    if telling:
        one = telling[0]
        has_steps = one.first_step is not None and one.last_step is not None
        steps = (one.first_step or 0, one.last_step or 0) if has_steps else None
        return Verdict(one.id, one.headline, one.severity, one.confidence, steps, one.tries)
    ranks = [] if window is None else [one for one in window.ranks if STEP_SECONDS in one.columns]
    if not ranks:
        return Verdict(
            "unmeasured",
            "Steps are not timed, so little can be said of them.",
            "unknown",
            None,
            None,
            (WATCH,),
        )
    rank = max(ranks, key=lambda one: int(one.steady.sum()))
    steady = int(rank.steady.sum())
    if steady < FEWEST_STEPS:
        told = f"Not enough steps yet: {steady} after the warm-up, of {FEWEST_STEPS}."
        return Verdict("few_steps", told, "unknown", None, None)
    return _healthy(rank)


def _healthy(rank: RankWindow) -> Verdict:
    steps = rank.steps[rank.steady]
    (taken,) = rank.aligned(STEP_SECONDS)
    pace = f"{seconds(float(np.median(taken)))} a step"
    bound = _bound(rank)
    told = f"Healthy: {pace}{', ' + bound if bound else ''}."
    amount = len(taken) / (len(taken) + 20)
    return Verdict("ok", told, "ok", round(0.95 * amount, 3), (int(steps[0]), int(steps[-1])))


def _bound(rank: RankWindow) -> str:
    """What sets the pace: the phase that takes most, on the GPU's clock where there is one."""
    for key_of, whole, where in (
        (device_key, device_key("step"), " on the GPU"),
        (phase_key, STEP_SECONDS, ""),
    ):
        shares: dict[str, float] = {}
        for phase in PHASES:
            key = key_of(phase)
            if rank.has(key, whole):
                part, taken = rank.aligned(key, whole)
                if len(part) >= 5 and taken.sum() > SHORTEST_S:
                    shares[phase] = float(part.sum() / taken.sum())
        # The wait for data alone was timed where nothing is watched: that bounds nothing.
        if len(shares) > 1:
            phase = max(shares, key=lambda one: shares[one])
            return f"bound by {phase}{where} ({percent(shares[phase])})"
    return ""
