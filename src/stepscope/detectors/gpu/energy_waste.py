"""Detects energy that GPUs use while they are idle, and what they wait for meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.gpu.gpu_readings import GPU_EVENT, GPU_KEYS, UTILIZATION, gpus_of
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.config.sections import recorded_energy
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.number_format import duration, number
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import EPOCH_GAP_SECONDS, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.analysis.gpu.gpu_readings import Gpu
    from stepscope.schema.window import Floats, RankWindow, Window

POWER, COMPILE = "gpu/power_watts", "compile/seconds"
JOULES_PER_KWH, DAY_S = 3.6e6, 86_400.0

MIN_READINGS = 10
MAX_GAP = 5
"""A reading stands for at most so many usual intervals."""

CAUSES = {
    "data": (
        phase_key("data"),
        "waiting for data",
        "Make batches faster: more loader workers, or cheaper transforms.",
    ),
    "eval": (phase_key("eval"), "evaluation", "Evaluate less often, or on a part of the data."),
    "checkpoint": (phase_key("checkpoint"), "checkpoints", "Save less often, or asynchronously."),
    "epoch": (EPOCH_GAP_SECONDS, "changes of epochs", "Keep loader workers alive: persistent_workers=True."),
    "compile": (COMPILE, "compilation", "Keep the cache of compiled code: TORCHINDUCTOR_CACHE_DIR."),
}
"""What a GPU may wait for: the key of its seconds, words, and advice."""

REST = "other work of the host"

POWER_LIMIT = Remedy(
    "Where the host limits the steps, a lower power limit of the GPU may save energy at the same speed. "
    "Measure steps and power with several limits.",
    "sudo nvidia-smi -i 0 -pl 400      # watts",
)


class _Energy(NamedTuple):
    """What GPUs used during the steps, in joules."""

    total: float
    idle: float
    by_cause: Mapping[str, float]
    """The idle part, by words for what they waited for."""
    idle_s: float
    seconds: float
    """Of all GPUs together."""


@dataclass(frozen=True)
class WastedEnergy(MachineDetector):
    """Adds up the power of GPUs at readings without a kernel, and divides it by what ranks did meanwhile."""

    id: ClassVar[str] = "energy.waste"
    title: ClassVar[str] = "Idle GPUs use energy"
    sentence: ClassVar[str] = "a share of the energy of the GPUs is used at readings in which they are idle"
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((POWER,), (UTILIZATION,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (*GPU_KEYS, *(key for key, _, _ in CAUSES.values()))
    events: ClassVar[tuple[str, ...]] = (GPU_EVENT,)

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of the energy of the GPUs."""

    large_share: Annotated[float, Range(0.01, 1)] = 0.2
    """The share from which it is a notice."""

    idle: Annotated[float, Range(0, 1)] = 0.05
    """A GPU is idle at a reading with a lower utilization."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Adds up the energy of all GPUs of the run."""
        gpus = [gpu for gpu in gpus_of(window) if {POWER, UTILIZATION} <= gpu.figures.keys()]
        gpus = [gpu for gpu in gpus if len(gpu.figures[POWER].values) >= MIN_READINGS]
        if not gpus:
            return TooLittleEvidence(f"Needs {MIN_READINGS} readings of the power of a GPU of the run.")
        energy = _together([_energy_of(gpu, _rank_of(gpu, rank, window), self.idle) for gpu in gpus])
        share = energy.idle / energy.total if energy.total > 0 else 0.0
        if share < self.share:
            return f"{percent(share)} of the energy was used by idle GPUs; threshold: {percent(self.share)}."
        return self._finding(rank, window, energy, share, len(gpus))

    def _finding(self, rank: RankWindow, window: Window, energy: _Energy, share: float, gpus: int) -> Finding:
        price = _Price.of(window.facts.get(rank.rank, {}))
        causes = sorted(energy.by_cause.items(), key=lambda item: -item[1])
        daily = energy.idle / JOULES_PER_KWH * DAY_S * gpus / energy.seconds
        whose = (
            "the GPU's energy was used while it was idle"
            if gpus == 1
            else f"the energy of {gpus} GPUs was used while they were idle"
        )
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        advice = [text for cause, _ in causes for _, words, text in CAUSES.values() if words == cause]
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(share)} of {whose}, mostly during {causes[0][0]}: {price.text(daily)} a day.",
            detail="A GPU without work still draws a good part of its power, and is paid for.",
            severity="notice" if share >= self.large_share else "info",
            confidence=min(0.9, 0.5 + 0.01 * energy.idle_s),
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence(
                    "used while idle",
                    price.text(energy.idle / JOULES_PER_KWH),
                    f"in {duration(energy.idle_s)}",
                ),
                Evidence(
                    "mean power while idle",
                    f"{number(energy.idle / max(energy.idle_s, 1e-9), 3)} W",
                    "of a GPU",
                ),
                *(
                    Evidence(cause, price.text(joules / JOULES_PER_KWH), percent(joules / energy.idle))
                    for cause, joules in causes
                    if joules > 0
                ),
            ),
            chart=Chart((POWER, UTILIZATION), first, last),
            remedies=(*(Remedy(text) for text in advice[:2]), POWER_LIMIT),
            tries=tuple(advice[:1]),
            how="Power of each reading times the time since the one before, at readings with a utilization "
            f"below {percent(self.idle)}, divided by the seconds that the rank spent on each cause then.",
        )


class _Price(NamedTuple):
    """What energy costs, as the settings of the run say."""

    per_kwh: float | None
    currency: str

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> _Price:
        """Reads the facts of a process."""
        energy = recorded_energy(facts)
        price = energy.electricity_price_per_kwh
        return cls(None if price is None else price * energy.pue, energy.currency)

    def text(self, kwh: float) -> str:
        """Writes energy, and its price if that is known."""
        energy = f"{number(kwh, 3)} kWh"
        return (
            energy if self.per_kwh is None else f"{energy} ({number(kwh * self.per_kwh, 3)} {self.currency})"
        )


def _rank_of(gpu: Gpu, first: RankWindow, window: Window) -> RankWindow:
    return next((rank for rank in window.ranks if rank.rank == gpu.rank), first)


def _energy_of(gpu: Gpu, rank: RankWindow, idle: float) -> _Energy:
    power = gpu.figures[POWER]
    passed = np.diff(power.times)
    usual = float(np.median(passed))
    lasted = np.minimum(np.r_[usual, passed], MAX_GAP * usual)
    is_idle = gpu.at_times_of(UTILIZATION, POWER) < idle
    joules = power.values * lasted
    shares = _shares_of_causes(rank, power.times[is_idle], lasted[is_idle])
    by_cause = {words: float((part * joules[is_idle]).sum()) for words, part in shares.items()}
    return _Energy(
        float(joules.sum()),
        float(joules[is_idle].sum()),
        by_cause,
        float(lasted[is_idle].sum()),
        float(lasted.sum()),
    )


def _shares_of_causes(rank: RankWindow, times: Floats, lasted: Floats) -> dict[str, Floats]:
    """Returns which share of the time before each reading a rank spent on each cause, and on the rest."""
    shares = {}
    for key, words, _ in CAUSES.values():
        if key in rank.columns:
            column = rank.columns[key]
            spent = np.cumsum(np.where(column.finite, column.values, 0.0))
            during = np.interp(times, rank.times, spent) - np.interp(times - lasted, rank.times, spent)
            shares[words] = np.clip(during / lasted, 0.0, 1.0)
    together = np.sum(list(shares.values()), axis=0) if shares else np.zeros(len(times))
    scale = np.maximum(together, 1.0)
    return {**{words: part / scale for words, part in shares.items()}, REST: 1 - together / scale}


def _together(energies: list[_Energy]) -> _Energy:
    by_cause: dict[str, float] = {}
    for energy in energies:
        for cause, joules in energy.by_cause.items():
            by_cause[cause] = by_cause.get(cause, 0.0) + joules
    return _Energy(
        sum(energy.total for energy in energies),
        sum(energy.idle for energy in energies),
        by_cause,
        sum(energy.idle_s for energy in energies),
        sum(energy.seconds for energy in energies),
    )
