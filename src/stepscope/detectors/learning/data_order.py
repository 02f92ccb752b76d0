"""Detects training data that come in the same order in each epoch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding
from stepscope.schema.keys import EPOCH_GAP_SECONDS, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.schema.window import Floats, RankWindow, Window

LOADER_EVENT = "loader"

SHIFTS = 10
"""The correlation is also computed with one epoch shifted by up to this many steps."""

SHIFTED = 0.75
"""A loss with a period of its own correlates when it is shifted, too: by more than this share."""

SHUFFLED = "loader = DataLoader(dataset, batch_size={batch}, shuffle=True)"

SET_EPOCH = """\
for epoch in range(epochs):
    loader.sampler.set_epoch(epoch)      # another order in each epoch
    for batch in loader:
        ..."""

IN_LIGHTNING = """\
def train_dataloader(self):
    return DataLoader(self.dataset, batch_size={batch}, shuffle=True)"""


@dataclass(frozen=True)
class DataOrder(Detector):
    """Correlates the losses at the same place of neighbouring epochs."""

    id: ClassVar[str] = "data.order"
    title: ClassVar[str] = "Data come in the same order in each epoch"
    sentence: ClassVar[str] = (
        "changes of the loss from step to step correlate with those at the same place of the next epoch, and "
        "not with those at other places"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((EPOCH_GAP_SECONDS,), LOSS_KEYS)
    events: ClassVar[tuple[str, ...]] = (LOADER_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    correlation: Annotated[float, Range(0.1, 1)] = 0.5
    """Minimum median of the correlations of neighbouring epochs."""

    epochs: Annotated[int, Range(3)] = 4
    """Minimum number of complete epochs of the same length."""

    batches: Annotated[int, Range(10)] = 20
    """Minimum number of steps of an epoch."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Cuts the losses into epochs and compares neighbouring ones."""
        key = rank.first_of(LOSS_KEYS) or LOSS_KEYS[0]
        parts, length = _epochs(rank, key)
        if len(parts) < self.epochs or length < self.batches:
            return TooLittleEvidence(f"Needs {self.epochs} epochs of at least {self.batches} steps.")
        changes = np.diff(parts, axis=1)
        same = float(np.median(_correlations(changes, 0)))
        shifted = max(float(np.median(_correlations(changes, shift))) for shift in range(1, SHIFTS + 1))
        if same < self.correlation:
            return (
                f"Losses at the same place of two epochs correlate by {number(same, 2)}: data are shuffled."
            )
        if shifted > SHIFTED * same:
            return "The loss has a period of its own, which hides the order of the data."
        return self._finding(rank, window, key, (len(parts), length, same, shifted))

    def _finding(
        self, rank: RankWindow, window: Window, key: str, comparison: tuple[int, int, float, float]
    ) -> Finding:
        epochs, length, same, shifted = comparison
        loaders = [event.fields for event in window.events_of(LOADER_EVENT, rank.rank)]
        samplers = {str(fields.get("sampler")) for fields in loaders}
        is_distributed = "DistributedSampler" in samplers or len(window.ranks) > 1
        batch = next((fields["batch_size"] for fields in loaders if fields.get("batch_size")), 64)
        remedy = (
            remedies_in((), "Tell the sampler which epoch it is, so that it shuffles.", {"torch": SET_EPOCH})
            if is_distributed
            else remedies_in(
                window.libraries(rank.rank),
                "Shuffle the data anew in each epoch.",
                {"torch": SHUFFLED.format(batch=batch), "lightning": IN_LIGHTNING.format(batch=batch)},
            )
        )
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Batches come in the same order in each epoch: losses of {epochs} epochs of {length:,} "
            f"steps correlate by {number(same, 2)}.",
            detail="The model sees the same neighbours in each epoch. If the samples are sorted, such as by "
            "class, it forgets what came before; otherwise it learns somewhat worse than with shuffled data.",
            severity="notice",
            confidence=min(0.95, 0.5 + 0.5 * same),
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence(
                    "correlation at the same place",
                    number(same, 2),
                    f"of {epochs} epochs; threshold: {number(self.correlation, 2)}",
                ),
                Evidence("correlation at other places", number(shifted, 2), f"up to {SHIFTS} steps away"),
                *((Evidence("sampler", ", ".join(sorted(samplers))),) if loaders else ()),
            ),
            chart=Chart((key,), int(rank.steps[0]), int(rank.steps[-1])),
            ruled_out=("A period of the schedule: only changes from one step to the next are compared.",),
            remedies=remedy,
            tries=("call set_epoch",) if is_distributed else ("shuffle=True",),
            how="Losses are cut into epochs where a pass over the data began. The changes from step to step "
            "are correlated for each pair of neighbouring epochs; the median is used.",
            refs=("https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",),
        )


def _epochs(rank: RankWindow, key: str) -> tuple[Floats, int]:
    """Returns the losses of the complete epochs of the most frequent length, one row for each."""
    begins = np.flatnonzero(rank.columns[EPOCH_GAP_SECONDS].present)
    column = rank.columns[key]
    pieces = [
        column.values[begin:end]
        for begin, end in itertools.pairwise(begins)
        if column.finite[begin:end].all()
    ]
    if not pieces:
        return np.empty((0, 0)), 0
    lengths, counts = np.unique([len(piece) for piece in pieces], return_counts=True)
    length = int(lengths[np.argmax(counts)])
    return np.array([piece for piece in pieces if len(piece) == length]), length


def _correlations(changes: Floats, shift: int) -> list[float]:
    """Returns the correlation of each epoch with the next one, shifted by so many steps."""
    width = changes.shape[1] - shift
    return [_correlation(first[:width], second[shift:]) for first, second in itertools.pairwise(changes)]


def _correlation(first: Floats, second: Floats) -> float:
    first, second = _ranked(first), _ranked(second)
    power = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / power if power > 0 else 0.0


def _ranked(values: Floats) -> Floats:
    """Returns the ranks of values around 0: single large losses must not decide."""
    ranks: Floats = np.argsort(np.argsort(values)).astype(np.float64)
    ranks -= (len(values) - 1) / 2
    return ranks
