"""Detects replicas of a model whose parameters differ from rank to rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.wording import listed, number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import REPLICA_CHECKSUM, REPLICA_UPDATES, STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Flags, Floats, RankWindow, Window

REPLICAS_EVENT = "replicas"

CALL_THE_WRAPPER = Remedy(
    "Call the `DistributedDataParallel` wrapper in the loop, not the module inside it: only the forward pass "
    "of the wrapper starts an exchange of gradients.",
    "model = DistributedDataParallel(module)\n"
    "loss = criterion(model(x), y)      # not module(x), nor model.module(x)",
    "PyTorch",
)
OTHER_CAUSES = (
    Remedy(
        "Leave `no_sync` in the last backward pass before the optimizer steps, and make all passes through "
        "the `DistributedDataParallel` wrapper.",
        "with model.no_sync() if accumulates else contextlib.nullcontext():\n"
        "    criterion(model(x), y).backward()",
        "PyTorch",
    ),
    Remedy(
        "Look for code that changes parameters after the model was wrapped: an initialisation, a checkpoint "
        "or a frozen layer that not all ranks have, or an optimizer with other settings.",
        "for parameter in model.parameters():      # once, after loading\n"
        "    torch.distributed.broadcast(parameter.data, src=0)",
        "PyTorch",
    ),
)


class _Readings(NamedTuple):
    """Checksums of all ranks after the same updates, oldest first."""

    ranks: tuple[RankWindow, ...]
    steps: Floats
    """The steps of the first rank."""
    times: Floats
    values: Mapping[str, Floats]
    """By parameter: a row for each rank, a column for each reading."""

    def differences(self, parameter: str) -> Floats:
        """The difference between ranks, as a share of the value."""
        values = self.values[parameter]
        scale = np.maximum(np.median(values, axis=0), np.finfo(float).tiny)
        spread: Floats = np.ptp(values, axis=0) / scale
        return spread


@dataclass(frozen=True)
class DivergedReplicas(Detector):
    """Compares checksums that ranks have recorded of a few parameters after the same updates."""

    id: ClassVar[str] = "dist.divergence"
    title: ClassVar[str] = "Replicas of the model differ"
    sentence: ClassVar[str] = (
        "the model is wrapped in `DistributedDataParallel`, and sampled parameters differ between ranks in "
        "several readings up to the newest, and have not been equal since they first differed"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (f"{REPLICA_CHECKSUM}/*", REPLICA_UPDATES)
    events: ClassVar[tuple[str, ...]] = (REPLICAS_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    least_ranks: ClassVar[int] = 2
    for_each_rank: ClassVar[bool] = False

    tolerance: Annotated[float, Range(0, 1)] = 1e-6
    """Minimum difference between ranks, as a share of the checksum: different GPUs may round differently."""

    readings: Annotated[int, Range(1)] = 3
    """Minimum number of readings in a row that differ."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the readings of all ranks."""
        readings = _readings(window)
        if readings is None or len(readings.steps) < self.readings:
            return self._why_not_compared(window, 0 if readings is None else len(readings.steps))
        parameter = max(readings.values, key=lambda name: float(readings.differences(name)[-1]))
        differs = _any_differs(readings, self.tolerance)
        newest = len(differs) - int(np.flatnonzero(np.r_[True, ~differs])[-1])
        if not differs.any():
            return f"Parameters are equal on {len(readings.ranks)} ranks in all {len(differs)} readings."
        if not differs[int(np.argmax(differs)) :].all():
            return "Parameters differ at times and are equal again: ranks exchange them now and then."
        if newest < self.readings:
            return f"Parameters differ in the newest {newest} readings; threshold: {self.readings}."
        return self._finding(readings, parameter, newest, _wrapper(window))

    def _why_not_compared(self, window: Window, count: int) -> str:
        described = window.events_of(REPLICAS_EVENT)
        reasons = described[-1].fields if described else {}
        if "may_differ" in reasons:
            return f"Ranks need not have equal parameters: {reasons['may_differ']}."
        if "unknown" in reasons:
            return TooLittleEvidence(
                f"Cannot tell whether ranks should have equal parameters: {reasons['unknown']}."
            )
        return TooLittleEvidence(
            f"Needs {self.readings} checksums of all ranks after the same updates; {count} recorded."
        )

    def _finding(
        self, readings: _Readings, parameter: str, newest: int, wrapper: Mapping[str, Any]
    ) -> Finding:
        difference = float(readings.differences(parameter)[-1])
        first, last = int(readings.steps[-newest]), int(readings.steps[-1])
        others = _odd_ranks(readings, parameter, self.tolerance)
        who = f"rank {listed(others)} from the others" if others else f"on {len(readings.ranks)} ranks"
        is_unused = wrapper.get("wrapper_was_called") is False
        why = (
            "the `DistributedDataParallel` wrapper was never called"
            if is_unused
            else "ranks train models of their own"
        )
        remedies = (CALL_THE_WRAPPER, *(() if is_unused else OTHER_CAUSES))
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Parameters differ {who} since step {first} (`{parameter}` by {_share(difference)}): "
            f"{why}.",
            detail="Replicas are equal as long as each update uses the gradients of all ranks. Here each "
            "rank learns from its own part of the data only, and the saved model is that of one rank.",
            severity="critical",
            confidence=0.95 if is_unused else 0.9,
            first_step=first,
            last_step=last,
            first_time=float(readings.times[-newest]),
            last_time=float(readings.times[-1]),
            rank=others[0] if len(others) == 1 else None,
            evidence=(
                Evidence("difference between ranks", _share(difference), f"of the checksum of {parameter}"),
                Evidence(
                    "readings that differ", f"{newest}", f"of {len(readings.steps)}, newest at step {last}"
                ),
                *((Evidence("calls of the wrapper", "0", "before the first reading"),) if is_unused else ()),
            ),
            chart=Chart(tuple(f"{REPLICA_CHECKSUM}/{name}" for name in readings.values), first, last),
            ruled_out=(
                f"Rounding: the threshold is a difference of {_share(self.tolerance)}.",
                "Ranks that average their parameters now and then: they have not been equal since.",
            ),
            remedies=remedies,
            tries=("call the wrapper, not its module",)
            if is_unused
            else ("make all passes through the wrapper",),
            how="After the same numbers of updates, each rank adds up the absolute values of at most 4,096 "
            "elements of three parameters. The agent compares the sums; ranks do not wait for each other.",
            refs=("https://pytorch.org/docs/stable/notes/ddp.html",),
        )


def _readings(window: Window) -> _Readings | None:
    """Returns the readings that all ranks have in common; None if a rank has none."""
    names = [set(rank.below(REPLICA_CHECKSUM)) for rank in window.ranks]
    parameters = [
        name for name in window.ranks[0].below(REPLICA_CHECKSUM) if all(name in known for known in names)
    ]
    keys = [f"{REPLICA_CHECKSUM}/{name}" for name in parameters]
    if not parameters or not all(rank.has(REPLICA_UPDATES) for rank in window.ranks):
        return None
    chosen = [np.flatnonzero(rank.where(REPLICA_UPDATES, *keys, steady=False)) for rank in window.ranks]
    updates = [
        rank.columns[REPLICA_UPDATES].values[places]
        for rank, places in zip(window.ranks, chosen, strict=True)
    ]
    common = updates[0]
    for made in updates[1:]:
        common = np.intersect1d(common, made)
    places = [rows[np.searchsorted(made, common)] for made, rows in zip(updates, chosen, strict=True)]
    first = window.ranks[0]
    return _Readings(
        window.ranks,
        first.steps[places[0]].astype(float),
        first.times[places[0]],
        {
            name: np.array(
                [rank.columns[key].values[rows] for rank, rows in zip(window.ranks, places, strict=True)]
            )
            for name, key in zip(parameters, keys, strict=True)
        },
    )


def _any_differs(readings: _Readings, tolerance: float) -> Flags:
    flags: Flags = np.logical_or.reduce([readings.differences(name) > tolerance for name in readings.values])
    return flags


def _odd_ranks(readings: _Readings, parameter: str, tolerance: float) -> tuple[int, ...]:
    """Returns the ranks that differ from most of them in the newest reading; none if most differ."""
    newest = readings.values[parameter][:, -1]
    usual = float(np.median(newest))
    odd = np.abs(newest - usual) > tolerance * usual
    if len(newest) < 3 or not 0 < odd.sum() < len(newest) / 2:
        return ()
    return tuple(rank.rank for rank, is_odd in zip(readings.ranks, odd, strict=True) if is_odd)


def _wrapper(window: Window) -> Mapping[str, Any]:
    described = [event.fields for event in window.events_of(REPLICAS_EVENT) if "parameters" in event.fields]
    return described[-1] if described else {}


def _share(difference: float) -> str:
    return percent(difference) if difference >= 1e-4 else f"{number(difference, 2)} of its size"
