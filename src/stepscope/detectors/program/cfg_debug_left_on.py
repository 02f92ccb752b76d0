"""Detects debugging aids of PyTorch that are still on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.schema.finding import Severity
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

ANOMALY_COST = Estimate(0.2, 0.5, 0.7)
"""It took 27 to 58% of the step of four small models on a processor: perceptrons of 2 and 20 layers,
convolutions, attention."""


class _Aid(NamedTuple):
    """A switch that helps to find an error, and slows every step down."""

    name: str
    is_on: Callable[[Mapping[str, Any], int], bool]
    """Tells it from the setup of a training and the number of its ranks."""
    effect: str
    remedy: Remedy
    severity: Severity
    estimate: Estimate | None = None
    """What it costs, where that was measured."""


AIDS = (
    _Aid(
        "anomaly detection",
        lambda setup, _: setup.get("detect_anomaly") is True,
        "It keeps a stack for every operation and checks every gradient",
        Remedy(
            "Use it only for the steps before an error.",
            "torch.autograd.set_detect_anomaly(False)",
            "PyTorch",
        ),
        "warning",
        ANOMALY_COST,
    ),
    _Aid(
        "CUDA_LAUNCH_BLOCKING",
        lambda setup, _: _has_gpu(setup) and _variable(setup, "CUDA_LAUNCH_BLOCKING") == "1",
        "The processor waits for every operation of the GPU",
        Remedy("Start the training without the variable.", "unset CUDA_LAUNCH_BLOCKING"),
        "warning",
    ),
    _Aid(
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        lambda setup, _: _has_gpu(setup) and _variable(setup, "PYTORCH_NO_CUDA_MEMORY_CACHING") == "1",
        "Every tensor is allocated by the driver, which waits for the GPU",
        Remedy("Start the training without the variable.", "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
        "warning",
    ),
    _Aid(
        "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        lambda setup, ranks: ranks > 1 and _variable(setup, "TORCH_DISTRIBUTED_DEBUG").upper() == "DETAIL",
        "All ranks compare every collective operation before they start it",
        Remedy("Start the training without the variable.", "unset TORCH_DISTRIBUTED_DEBUG"),
        "notice",
    ),
    _Aid(
        "the warning of CUDA synchronisations",
        lambda setup, _: _has_gpu(setup) and setup.get("sync_debug_mode") in (1, 2),
        "Every operation is checked for whether it waits for the GPU",
        Remedy("Switch it off.", 'torch.cuda.set_sync_debug_mode("default")', "PyTorch"),
        "notice",
    ),
    _Aid(
        "the deterministic mode",
        lambda setup, _: _has_gpu(setup) and setup.get("deterministic_algorithms") is True,
        "Operations use slower kernels that give the same bits each time",
        Remedy(
            "Keep it where results must be the same bit by bit, and switch it off otherwise.",
            "torch.use_deterministic_algorithms(False)",
            "PyTorch",
        ),
        "info",
    ),
)


@dataclass(frozen=True)
class DebugLeftOn(Detector):
    """Reads the recorded setup of the training."""

    id: ClassVar[str] = "cfg.debug_left_on"
    title: ClassVar[str] = "A debugging aid slows every step down"
    sentence: ClassVar[str] = (
        "anomaly detection is on, or `CUDA_LAUNCH_BLOCKING`, `PYTORCH_NO_CUDA_MEMORY_CACHING`, "
        "`TORCH_DISTRIBUTED_DEBUG=DETAIL`, the warning of CUDA synchronisations or, as a mere hint, the "
        "deterministic mode where they have an effect"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup."""
        setups = window.events_of(SETUP_EVENT, rank.rank)
        if not setups:
            return TooLittleEvidence("Needs the setup of the training, which is recorded with `watch`.")
        aids = [aid for aid in AIDS if aid.is_on(setups[-1].fields, len(window.ranks))]
        if not aids:
            return "No debugging aid is on."
        return self._finding(rank, aids)

    def _finding(self, rank: RankWindow, aids: list[_Aid]) -> Finding:
        worst, *others = aids
        is_or_are = "is" if len(aids) == 1 else "are"
        names = " and ".join(aid.name for aid in aids)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{names[0].upper()}{names[1:]} {is_or_are} on: {worst.effect[0].lower()}"
            f"{worst.effect[1:]}.",
            detail="Switch it on to find an error, and off for the training itself."
            + "".join(f" {aid.effect}." for aid in others),
            severity=worst.severity,
            confidence=0.95,
            share=None if worst.estimate is None else worst.estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=tuple(Evidence(aid.name, "on", aid.effect) for aid in aids),
            chart=Chart((STEP_SECONDS,), first, last),
            remedies=tuple(aid.remedy for aid in aids),
            tries=tuple(f"switch off {aid.name}" for aid in aids),
            estimate=worst.estimate,
            how="The setting is read from PyTorch and from the environment after the first step and once a "
            "minute. What it costs in this run is not measured"
            + (": the estimate is from other models." if worst.estimate else "."),
        )


def _has_gpu(setup: Mapping[str, Any]) -> bool:
    return bool(setup.get("devices"))


def _variable(setup: Mapping[str, Any], name: str) -> str:
    environment = setup.get("environment")
    return str(environment.get(name, "")) if isinstance(environment, dict) else ""
