"""Detects steps that wait for the exchange of gradients itself, not for a late rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import RANK_WAIT_SECONDS, STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

MIN_STEPS = 30
SETUP_EVENT = "census"
SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")

COMPRESS = """\
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
model.register_comm_hook(None, bf16_compress_hook)   # half of the bytes"""

CONNECTION = Remedy(
    "Look at the connection: NVLink or InfiniBand may not be used.", "NCCL_DEBUG=INFO torchrun ..."
)


class _Waits(NamedTuple):
    """Median seconds of a step, over the steps that all ranks recorded."""

    steps: int
    exposed: float
    """What even the last rank waits: the exchange itself."""
    late: float
    """What a mean rank waits in addition: for the last one."""
    step: float


@dataclass(frozen=True)
class ExposedCommunication(Detector):
    """Takes the least wait of any rank in each step: the last rank waits for nobody."""

    id: ClassVar[str] = "dist.comm_exposed"
    title: ClassVar[str] = "Steps wait for the exchange of gradients"
    sentence: ClassVar[str] = (
        "even the rank that waits least waits for the exchange of gradients for a share of the step, after "
        "the last of them was computed"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((RANK_WAIT_SECONDS,), (STEP_SECONDS,))
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = MIN_STEPS
    least_ranks: ClassVar[int] = 2
    for_each_rank: ClassVar[bool] = False

    share: Annotated[float, Range(0.01, 1)] = 0.1
    """Minimum share of the step."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the waits of all ranks, step by step."""
        waits = _waits(window)
        if waits is None:
            return TooLittleEvidence(f"Needs {MIN_STEPS} steps in which all ranks recorded their waits.")
        share = min(waits.exposed / max(waits.step, 1e-9), 1.0)
        if share < self.share:
            return (
                f"Ranks wait {percent(share)} of a step for the exchange; threshold: {percent(self.share)}."
            )
        return self._finding(rank, window, waits, share)

    def _finding(self, rank: RankWindow, window: Window, waits: _Waits, share: float) -> Finding:
        setups = window.events_of(SETUP_EVENT, rank.rank)
        wrappers = str(setups[-1].fields.get("wrappers", "")) if setups else ""
        is_sharded = any(name in wrappers for name in SHARDED)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"All ranks wait {seconds(waits.exposed)} of each {seconds(waits.step)} step for the "
            f"exchange of {'parameters and gradients' if is_sharded else 'gradients'} ({percent(share)}).",
            detail="Most of the exchange runs while gradients are still computed; this part comes after it. "
            "It is limited by the connection between the ranks and by the number of bytes.",
            severity=severity_of(0.5 * share),
            confidence=min(0.9, 0.6 + 0.0005 * waits.steps),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("exchange", seconds(waits.exposed), "waited by the rank that waits least"),
                Evidence("late ranks", seconds(waits.late), "waited by a mean rank in addition"),
                Evidence("ranks", f"{len(window.ranks)}", f"in {waits.steps:,} steps"),
            ),
            chart=Chart((RANK_WAIT_SECONDS, STEP_SECONDS), first, last),
            ruled_out=("A late rank: the rank that is last in a step waits for no other.",),
            remedies=_sharded_remedies() if is_sharded else _replica_remedies(window.libraries(rank.rank)),
            tries=("exchange less often", "larger batches")
            if is_sharded
            else ("half the bytes", "exchange once in several batches"),
            estimate=Estimate(0.2 * share, 0.5 * share, share),
            how="A rank's wait is the part of its backward pass after its own last gradient. In each step, "
            "the least wait of any rank is taken. Medians over the steps that all ranks recorded.",
        )


def _replica_remedies(libraries: set[str]) -> tuple[Remedy, ...]:
    return (
        *remedies_in(
            libraries,
            "Exchange 16-bit gradients.",
            {
                "torch": COMPRESS,
                "lightning": "trainer = Trainer(strategy=DDPStrategy(ddp_comm_hook=bf16_compress_hook))",
            },
        ),
        *remedies_in(
            libraries,
            "Exchange once for several batches; that changes the size of a batch.",
            {
                "torch": "with model.no_sync():            # for all batches of a step but the last\n"
                "    loss_of(model(x), y).backward()",
                "lightning": "trainer = Trainer(accumulate_grad_batches=4)",
                "transformers": "arguments = TrainingArguments(..., gradient_accumulation_steps=4)",
            },
        ),
        Remedy(
            "Look at the connection: NVLink or InfiniBand may not be used.", "NCCL_DEBUG=INFO torchrun ..."
        ),
    )


def _sharded_remedies() -> tuple[Remedy, ...]:
    return (
        Remedy("Use larger batches: the number of bytes for a step stays the same."),
        Remedy("Shard within a host only, and keep replicas across hosts (hybrid sharding)."),
        Remedy(
            "Look at the connection: NVLink or InfiniBand may not be used.", "NCCL_DEBUG=INFO torchrun ..."
        ),
    )


def _waits(window: Window) -> _Waits | None:
    """Returns the waits of all ranks; None if a rank is missing: it may be the one that waits least."""
    ranks = [rank for rank in window.ranks if rank.has(RANK_WAIT_SECONDS, STEP_SECONDS)]
    worlds = [facts.get("world_size") for facts in window.facts.values()]
    known = max((world for world in worlds if isinstance(world, int)), default=0)
    if len(ranks) < max(known, 2):
        return None
    chosen = [rank.where(RANK_WAIT_SECONDS, STEP_SECONDS) for rank in ranks]
    common = ranks[0].steps[chosen[0]]
    for rank, where in zip(ranks[1:], chosen[1:], strict=True):
        common = np.intersect1d(common, rank.steps[where])
    if len(common) < MIN_STEPS:
        return None
    places = [np.searchsorted(rank.steps, common) for rank in ranks]
    waits, taken = (
        np.array([rank.columns[key].values[at] for rank, at in zip(ranks, places, strict=True)])
        for key in (RANK_WAIT_SECONDS, STEP_SECONDS)
    )
    least = waits.min(axis=0)
    late = float(np.median(waits.mean(axis=0) - least))
    return _Waits(len(common), float(np.median(least)), late, float(np.median(taken)))
