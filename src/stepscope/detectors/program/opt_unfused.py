"""Detects an optimizer that updates many tensors one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from stepscope.analysis.phase_shares import device_shares, phase_shares
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number, percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, severity_of
from stepscope.schema.keys import STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"
OPTIMIZER = phase_key("optimizer")

FUSED_ON_CPU = ("Adam", "AdamW", "SGD", "Adagrad")
FUSED_SINCE = (2, 4)
"""The version of PyTorch with these on processors."""

SAVED_ON_CPU, SAVED_ON_GPU = (0.3, 0.6, 0.9), (0.5, 0.8, 0.97)
"""Shares of the optimizer's time that one fused call saves: at least, usually, at most. On a processor, Adam
on 600 tensors of 16 elements took 30 ms in a loop and 10 ms fused, SGD 11 ms and 1.4 ms."""


class _Unfused(NamedTuple):
    """An optimizer that updates its tensors in a loop."""

    name: str
    option: str
    """What to set."""
    is_explicit: bool
    """Whether the training has chosen the loop."""
    is_on_gpu: bool


@dataclass(frozen=True)
class UnfusedOptimizer(Detector):
    """Reads the options of the optimizers, the number of tensors, and the time of the optimizer phase."""

    id: ClassVar[str] = "opt.unfused"
    title: ClassVar[str] = "The optimizer updates tensors one by one"
    sentence: ClassVar[str] = (
        "the optimizer takes a share of the step, updates many tensors, and is neither `fused` nor "
        "`foreach`; on a processor, where a loop is the default, if these are small"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((OPTIMIZER,), (STEP_SECONDS,))
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 5
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of the step in the optimizer; on the GPU's clock where there is one."""

    tensors: Annotated[int, Range(2)] = 200
    """Minimum number of tensors."""

    small: Annotated[int, Range(1)] = 10_000
    """On a processor, maximum number of elements of a mean tensor: larger ones are limited by memory."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the share of time, then the newest setup."""
        share = device_shares(rank).get("optimizer") or phase_shares(rank).get("optimizer")
        if share is None:
            return TooLittleEvidence("Needs more steps that were timed phase by phase.")
        taken = f"The optimizer takes {percent(share)} of the step"
        if share < self.share:
            return f"{taken}; threshold: {percent(self.share)}."
        setups = window.events_of(SETUP_EVENT, rank.rank)
        setup = setups[-1].fields if setups else {}
        tensors = setup.get("trainable_tensors")
        if not setup.get("optimizers") or tensors is None:
            return TooLittleEvidence(
                "Needs the optimizer, which is passed to `watch`, and the number of tensors, which is known "
                "after about 20 steps."
            )
        is_on_gpu = bool(setup.get("devices"))
        options = [_unfused(entry, window, rank.rank, is_on_gpu=is_on_gpu) for entry in setup["optimizers"]]
        unfused = next((option for option in options if option is not None), None)
        mean = int(setup.get("trainable_parameters", 0)) / max(tensors, 1)
        if unfused is None:
            return f"{taken}. It is fused, or has no fused form here."
        if tensors < self.tensors or (not is_on_gpu and mean > self.small):
            return f"{taken} for {tensors:,} tensors of {number(mean)} elements on average."
        return self._finding(rank, window, unfused, tensors, share)

    def _finding(
        self, rank: RankWindow, window: Window, unfused: _Unfused, tensors: int, share: float
    ) -> Finding:
        chosen = rank.where(STEP_SECONDS)
        step_s = float(rank.columns[STEP_SECONDS].values[chosen].mean())
        low, likely, high = (share * part for part in (SAVED_ON_GPU if unfused.is_on_gpu else SAVED_ON_CPU))
        estimate = Estimate(round(low, 3), round(likely, 3), round(high, 3))
        first, last = int(rank.steps[chosen][0]), int(rank.steps[chosen][-1])
        why = "`foreach=False` was set" if unfused.is_explicit else "on a processor that is the default"
        codes = {
            "torch": f"optimizer = torch.optim.{unfused.name}(parameters, ..., {unfused.option})",
            "transformers": 'arguments = TrainingArguments(..., optim="adamw_torch_fused")',
        }
        if unfused.name != "AdamW":
            del codes["transformers"]
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(share)} of each step is spent in {unfused.name}, which updates {tensors:,} "
            "tensors one by one.",
            detail=f"Each tensor costs several operations, however small it is; {why}. A fused optimizer "
            "updates all tensors with a few operations.",
            severity=severity_of(estimate.likely),
            confidence=0.9,
            share=estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[chosen][0]),
            last_time=float(rank.times[chosen][-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("time of the optimizer", seconds(share * step_s), f"in a step of {seconds(step_s)}"),
                Evidence("tensors", f"{tensors:,}", f"{seconds(share * step_s / tensors)} for each"),
                Evidence("options", "neither fused nor foreach", why.replace("`", "")),
            ),
            chart=Chart((OPTIMIZER, STEP_SECONDS), first, last),
            ruled_out=("Few large tensors: the number of tensors is what costs time.",),
            remedies=remedies_in(window.libraries(rank.rank), "Use the fused form.", codes),
            tries=(unfused.option,),
            estimate=estimate,
            how="Share of the optimizer phase, times what a fused optimizer saves of it: measured with small "
            "tensors on a processor, and assumed on a GPU.",
            refs=("https://pytorch.org/docs/stable/optim.html#algorithms",),
        )


def _unfused(entry: Mapping[str, Any], window: Window, rank: int, *, is_on_gpu: bool) -> _Unfused | None:
    """Returns an optimizer that loops over its tensors although it need not; None for any other."""
    if entry.get("fused") or "foreach" not in entry or entry["foreach"]:
        return None
    is_explicit = entry["foreach"] is False
    has_fused = "fused" in entry
    if is_on_gpu:
        option = "fused=True" if has_fused else "foreach=True"
        return _Unfused(entry["name"], option, is_explicit, is_on_gpu) if is_explicit else None
    is_supported = has_fused and entry["name"] in FUSED_ON_CPU and _version(window, rank) >= FUSED_SINCE
    return _Unfused(entry["name"], "fused=True", is_explicit, is_on_gpu) if is_supported else None


def _version(window: Window, rank: int) -> tuple[int, ...]:
    """Returns the first two parts of PyTorch's version; zeros if it is not known."""
    text = str(window.facts.get(rank, {}).get("libraries", {}).get("torch", "0.0"))
    parts = text.split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
